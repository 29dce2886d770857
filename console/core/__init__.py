"""The nouns and the memory. Standard library and msgspec only; no I/O."""
