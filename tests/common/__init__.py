"""Helpers of several tests: models, programs, boards, waiting, and tools that a test may need.

What they compare with is in `tests/reference`.
"""
