"""Coded weights: code tables and streams for LOAD_CODED."""
