"""gpuconsole: a terminal console for one GPU inference box."""

__version__ = "0.1.0"
