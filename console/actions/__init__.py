"""Everything that changes the box. Nothing else does."""
