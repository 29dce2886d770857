"""The simulated box behind `--demo`: stand-ins that speak the real protocols."""
