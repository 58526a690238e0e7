"""Bit positions of VECTOR_WIDE's parameters in the PRM word of a VECTOR scale.

`tilewright.isa.wide_numerics.wide_parameters` makes the words.
"""

from __future__ import annotations

#: Lowest bits of the shift less 1, which has 6 bits, and of the upper part of the bias, which has the rest; the
#: multiplier is in the 15 lowest.
WIDE_SHIFT_BIT, WIDE_BIAS_BIT = 16, 22
