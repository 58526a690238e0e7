"""Transports to boards: one file for each, all implementations of `Transport`."""
