"""Coded weights: tables and streams for LOAD_CODED."""
