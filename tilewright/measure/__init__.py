"""Measuring: speed, cycles, and where the cycles of a program go."""
