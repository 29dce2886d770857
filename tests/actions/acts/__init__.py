"""Actions for tests alone: they change a file instead of a box."""
