"""Boards and bitstreams: platform definitions and the open-tool build around `hw`."""
