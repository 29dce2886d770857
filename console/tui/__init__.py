"""Everything that imports Textual."""
