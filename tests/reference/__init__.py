"""References that results are compared with: independent forms of quantised ops, random models of each, golden values.

What tests build with is in `tests/common`.
"""
