"""Fuzzers: random programs, graphs, models and damaged files, each against an independent reference."""
