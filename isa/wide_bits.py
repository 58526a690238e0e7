"""Places of what VECTOR_WIDE finds in the word of PRM that VECTOR takes a scale from (`isa.numerics.wide_parameters`)."""

from __future__ import annotations

#: Lowest bits of the shift less 1, which has 6, and of the upper part of the bias, which has the rest; the multiplier is
#: in the 15 lowest.
WIDE_SHIFT_BIT, WIDE_BIAS_BIT = 16, 22
