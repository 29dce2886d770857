"""Widgets without domain knowledge."""
