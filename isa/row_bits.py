"""Bit widths of the row statistics that `tilewright.isa.row_norm` computes."""

from __future__ import annotations

#: Bits of the sums of a row (the first and the second field of its words) and of their count.
SQUARES_BITS, TOTAL_BITS, COUNT_BITS = 28, 20, 13
#: Bits of the radicand; the most shifts left by two until one of its highest two bits is set; bits of that number.
RADICAND_BITS, SHIFTS, EXPONENT_BITS = 40, 20, 5
ROOT_BITS, FACTOR_BITS = 26, 23
#: Fraction bits of the epsilon added to the variance.
EPSILON_FRACTION = 16
#: Bits of a mean, of which so many are a fraction.
MEAN_BITS, MEAN_FRACTION = 28, 20
#: Bits of a fraction of PRM's bias as NORM adds it, and of the sum it is added to.
BIAS_FRACTION, SUM_FRACTION = 23, 26
