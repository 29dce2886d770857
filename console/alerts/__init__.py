"""Alerts: figures of the box that crossed a limit, told once each. The engine is pure; watch.py joins it
with the silence and the hook, and who owns a screen or a file shows it."""
