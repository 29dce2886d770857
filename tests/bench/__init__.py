"""Timed figures for `scripts/bench`: measured in pseudo-terminals, printed beside references of the same run."""
