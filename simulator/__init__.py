"""Simulated devices: the functional simulator (reference and fast path) and the cycle-level simulator."""
