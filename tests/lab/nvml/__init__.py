"""A stand-in for NVIDIA's libnvidia-ml.so.1: a small C library that serves the figures of a memory-mapped file."""
