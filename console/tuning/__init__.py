"""The closed loop: what is predicted is tried live, measured and judged, and what does not hold is taken back."""
