"""Proofs about VECTOR: its requantisers, lanes, steps and row unit, and what is around them."""

from __future__ import annotations

from functools import partial

from tilewright.hw.vector.row_norm import WRITE_STAGE
from verification.formal.proof import Proof, on
from verification.formal.vector import (
    benches,
    lane_benches,
    norm_benches,
    requantizer_benches,
    row_benches,
    row_control_benches,
    steps_benches,
    wide_benches,
)
from verification.formal.vector.steps_benches import PASSES, ROW_PASSES, ROWS, WHOLE, WIDE

_REQUANTIZER = (
    Proof("requantizer_convert", requantizer_benches.convert, False, 5),
    Proof("requantizer_multiply", requantizer_benches.multiply, False, 5),
    *(
        Proof(
            f"requantizer_{requantizer_benches.mode_name(mode).lower()}",
            partial(requantizer_benches.rounded, mode=mode),
            False,
            9,
            quick=False,
        )
        for mode in requantizer_benches.MODES
    ),
)

_LANES = (
    # Where the source stage differs: one pass or several, a row unit beside it.
    Proof("lane_source", partial(lane_benches.source, passes=1), False, 10),
    Proof("lane_source_passes", partial(lane_benches.source, passes=2), False, 10),
    Proof("lane_source_row", partial(lane_benches.source, passes=1, rows=26), False, 10),
    Proof("lane_source_row_passes", partial(lane_benches.source, passes=2, rows=25), False, 10),
    Proof("lane_finish", partial(lane_benches.finish, wide=False), False, 23),
    Proof("lane_finish_wide", partial(lane_benches.finish, wide=True), False, 23),
)

_MAXIMA = Proof("row_maxima", partial(row_benches.maxima, c=ROWS), True, 4)
_SUMS = Proof("row_sums", partial(row_benches.sums, c=ROWS), True, 4)
#: With trees of two registers.
_MANY = ROWS.with_(name="formal_rows_16", block_in=16, block_out=16)
_DIVIDE = Proof("row_divide", partial(row_benches.divide, c=ROWS), True, 2, quick=False)
_TOLD = Proof("row_told", partial(row_control_benches.control, c=ROWS), False, 25)
#: With a quarter of the lanes.
_FEW = _MANY.with_(name="formal_rows_16_passes", vector_passes=4)
_ROW_UNIT = (
    _MAXIMA,
    on(_MAXIMA, _MANY, "16"),
    on(_MAXIMA, _FEW, "passes", quick=True),
    _SUMS,
    on(_SUMS, _MANY, "16"),
    on(_SUMS, _FEW, "passes", quick=True),
    _DIVIDE,
    on(_DIVIDE, _FEW, "passes"),
    Proof("norm_radicand", partial(norm_benches.radicand, c=ROWS), False, 4, quick=False),
    Proof("norm_shifted", partial(norm_benches.shifted, c=ROWS), True, 1),
    Proof("norm_root", partial(norm_benches.root, c=ROWS), True, 1),
    Proof("norm_mean", partial(norm_benches.mean, c=ROWS), True, 1),
    Proof("norm_offset", partial(norm_benches.offset, c=ROWS), False, 4),
    Proof("norm_stages", partial(norm_benches.stages, c=ROWS), True, WRITE_STAGE + 1, quick=False),
    Proof("lane_row", partial(lane_benches.of_rows, rows=ROWS.row_word_bits), False, 8),
    Proof("lane_row_passes", partial(lane_benches.of_rows, rows=ROW_PASSES.row_word_bits, passes=2), False, 8),
    _TOLD,
    on(_TOLD, ROW_PASSES, "passes", quick=True),
)

_STEPS = (
    Proof("vector_steps", partial(steps_benches.steps, config=WHOLE), True, 1),
    Proof("vector_steps_passes", partial(steps_benches.steps, config=PASSES), True, 1),
    Proof("vector_steps_wide", partial(steps_benches.steps, config=WIDE), True, 1),
    Proof("vector_steps_row", partial(steps_benches.steps, config=ROWS), True, 1),
    Proof("vector_steps_row_passes", partial(steps_benches.steps, config=_FEW), True, 1),
)

_WHOLE = (
    Proof("vector", partial(benches.whole, config=WHOLE), False, 28, quick=False),
    # With two passes: four take longer than the depth holds twice.
    Proof("vector_passes", partial(benches.whole, config=PASSES.with_(vector_passes=2)), False, 30, quick=False),
    Proof("vector_row", partial(benches.whole, config=ROWS), False, 28, quick=False),
    Proof("vector_row_passes", partial(benches.whole, config=ROW_PASSES), False, 30, quick=False),
    Proof("vector_wide", partial(benches.whole, config=WIDE), False, 28, quick=False),
)

_WIDE = (
    Proof("wide_requantizer", wide_benches.requantizer, False, 13, quick=False),
    Proof("wide_sums", partial(wide_benches.sums, passes=1), False, 10),
    Proof("wide_sums_passes", partial(wide_benches.sums, passes=2), False, 10),
)

PROOFS: tuple[Proof, ...] = (*_REQUANTIZER, *_LANES, *_ROW_UNIT, *_STEPS, *_WHOLE, *_WIDE)
