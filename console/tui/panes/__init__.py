"""One file per pane: a slice of the Snapshot -> widgets."""
