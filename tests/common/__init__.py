"""What tests build with: models, programs, boards, waiting, what they need.

What they compare with is in `tests/reference`.
"""
