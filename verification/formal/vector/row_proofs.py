"""Proofs about the row unit."""

from __future__ import annotations

import functools
from collections.abc import Callable

from tilewright.hw.vector.row_norm import WRITE_STAGE
from verification.formal.bench import Bench
from verification.formal.engine import Cut
from verification.formal.proof import Proof, Property, on
from verification.formal.vector import lane_benches, row_benches, row_told_benches, steps_benches

_ROWS = steps_benches.ROWS
#: With trees of two registers.
_MANY = _ROWS.with_(name="formal_rows_16", block_in=16)


def _proof(
    name: str,
    bench: Callable[..., Bench],
    induction: bool,
    cycles: int,
    *properties: Property,
    quick: bool = True,
) -> Proof:
    return Proof(name, functools.partial(bench, c=_ROWS), induction, cycles, properties, quick)


_MAXIMA = _proof(
    "row_maxima",
    row_benches.maxima,
    True,
    4,
    Property(
        "maximum",
        "ROW: MAX of a place is the maximum of the row that named it last, of all vectors since its first one, of the "
        "lanes that count",
        Cut("part.tree0", 6),
    ),
)
_SUMS = _proof(
    "row_sums",
    row_benches.sums,
    True,
    4,
    Property(
        "sum",
        "ROW: the sum of all words of a row since its first vector, of the lanes that count; where words have two "
        "fields, of the first one",
        Cut("part.tree0", 6),
    ),
    Property("second", "ROW: the sum of the second fields", Cut("part.tree0", 6)),
)

PROOFS: tuple[Proof, ...] = (
    _MAXIMA,
    on(_MAXIMA, _MANY, "16"),
    _SUMS,
    on(_SUMS, _MANY, "16"),
    _proof(
        "row_divide",
        row_benches.divide,
        True,
        2,
        Property(
            "scale",
            "ROW: so many cycles after a row of EXP_SUM, and no others, `row_scale` of its sum and of the instruction "
            "is written to the scale of the row's PRM",
            Cut("part.zeros_high", 17),
        ),
        Property("factor", "ROW: so many cycles after it is asked, 2**48 / root", Cut("part.less1", 16)),
        quick=False,
    ),
    _proof(
        "norm_radicand",
        row_benches.radicand,
        False,
        4,
        Property(
            "radicand",
            "ROW: count * squares + epsilon, less total**2 in MOMENTS, without the fraction",
            Cut("part.product_high", 4),
        ),
        quick=False,
    ),
    _proof(
        "norm_shifted",
        row_benches.shifted,
        True,
        1,
        Property(
            "shifted",
            "ROW: the radicand shifted left by two until one of its highest two bits is set, at most 20 times, and how "
            "often that was",
            Cut("part.empty1", 14),
        ),
    ),
    _proof(
        "norm_root",
        row_benches.root,
        True,
        1,
        Property("root", "ROW: the square root of what was shifted, its lowest bit set", Cut("part.fits1", 16)),
    ),
    _proof(
        "norm_mean",
        row_benches.mean,
        True,
        1,
        Property("mean", "ROW: total / count with 20 bits of a fraction", Cut("part.divides0", 16)),
    ),
    _proof(
        "norm_offset",
        row_benches.offset,
        False,
        4,
        Property("offset", "ROW: (128 - mean) * factor, to nearest, wrapping", Cut("part.middle", 4)),
    ),
    _proof(
        "norm_stages",
        row_benches.stages,
        True,
        WRITE_STAGE + 1,
        Property(
            "loads",
            "ROW: radicand and root begin, and the divider is asked, when the unit before has its number",
            Cut("part.at2", 4),
        ),
        Property("mean", "ROW: the offset is made of the mean of the same row", Cut("part.mean1", 44)),
        Property(
            "kept",
            "ROW: STAT has factor, offset and exponent of a row at the place it named, until another row names it, "
            "which nothing else changes",
            Cut("part.place2", 47),
        ),
        quick=False,
    ),
    Proof(
        "lane_row",
        functools.partial(lane_benches.of_rows, rows=_ROWS.row_word_bits),
        False,
        8,
        (
            Property(
                "norm",
                "Lane, NORM: the requantiser gets a * factor + offset of its row, wrapping",
                Cut("lane.norm5"),
            ),
            Property(
                "word",
                "Lane, EXP: the requantiser gets the word of the wide table",
                Cut("lane.acc"),
            ),
            Property("index", "Lane, ROW: the wide table is asked for (a - za) & 255", Cut("lane.factor0")),
        ),
    ),
    _proof(
        "row_told",
        row_told_benches.told,
        False,
        25,
        Property(
            "maximum",
            "ROW: the row unit is told of every vector of MAXIMUM, of no other, whether it is the first or the last of "
            "its row, and of its place, when its maximum is there",
            Cut("vector.row_maximum_5", 12),
        ),
        Property(
            "sums",
            "ROW: so it is of vectors of EXP_SUM, MOMENTS and POWER, and of the end of their rows, when the sums are "
            "there",
            Cut("vector.row_moments_8", 14),
        ),
        Property(
            "vectors",
            "ROW: it gets the lanes' values and words, only those of the tail of a last vector, and is asked for MAX "
            "and STAT of the step",
            Cut("vector.result_3", 12),
        ),
        Property(
            "norm",
            "ROW: lanes get factor, offset and exponent of the step's STAT in NORM, and bias of its PRM behind the "
            "product",
            Cut("vector.row_factor_2", 12),
        ),
        Property(
            "exponential",
            "ROW: EXP requantises words; of EXP_SUM and EXP the maximum of the step's MAX is subtracted",
            Cut("vector.exponential_3", 12),
        ),
        Property("write", "ROW: of its functions EXP and NORM write rows", Cut("vector.results_21", 25)),
        Property(
            "instruction",
            "ROW: the row unit is told what the instruction says, and epsilon of VECTOR_ADD before it",
            Cut("vector.number", 8),
        ),
    ),
)
