"""Pure: (Snapshot, History) -> Advice."""
