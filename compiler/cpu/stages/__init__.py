"""Stages of a segment: from operators to kernel calls, with fusion and placement in memory."""
