"""Client -> Reading, one part of the Snapshot each."""
