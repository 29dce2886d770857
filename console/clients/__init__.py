"""One file per system: the only importers of vendor libraries."""
