"""Proofs about LOAD and STORE; `load_benches`, `store_benches` and `coded_benches` say how they chain."""

from __future__ import annotations

from verification.formal.proof import Proof, on
from verification.formal.transfer import (
    coded_benches,
    load_benches,
    load_data_benches,
    move_benches,
    store_benches,
    store_data_benches,
    weights_benches,
)
from verification.formal.transfer.move_benches import MOVES_CODED, MOVES_NARROW, MOVES_PACKED, MOVES_WIDE

_BOTH = (
    Proof("buffer", move_benches.buffer, True, 1),
    Proof("walker_runs", move_benches.walker_runs, True, 1),
    Proof("walker_bursts", move_benches.walker_bursts, True, 1, quick=False),
)

_LOAD_STARTS = Proof("load_starts", load_benches.load_starts, True, 1)
_LOAD_STEPS = Proof("load_steps", load_data_benches.load_steps, True, 1)
_LOAD_SEGMENTS = Proof("load_segments", load_benches.load_segments, True, 1)
_LOAD_WRITES = Proof("load_writes", load_data_benches.load_writes, True, 1)
_LOAD = (
    _LOAD_STARTS,
    Proof("load_beats", load_data_benches.load_beats, True, 1),
    _LOAD_SEGMENTS,
    _LOAD_STEPS,
    _LOAD_WRITES,
    Proof("load_codes", coded_benches.load_codes, True, 1),
    on(_LOAD_STARTS, MOVES_CODED, "coded"),
    on(_LOAD_STEPS, MOVES_CODED, "coded"),
    on(_LOAD_STEPS, MOVES_WIDE, "64"),
    on(_LOAD_STEPS, MOVES_NARROW, "narrow"),
    *(on(proof, MOVES_PACKED, "packed") for proof in (_LOAD_STARTS, _LOAD_SEGMENTS, _LOAD_STEPS, _LOAD_WRITES)),
    Proof("weights", weights_benches.weights, True, 3),
)

_DECODER = Proof("coded_decoder", coded_benches.decoder, True, 1, quick=False)
_CODED = (
    Proof("coded_table", coded_benches.table, True, 1),
    Proof("coded_lane", coded_benches.lane, True, 1),
    _DECODER,
    on(_DECODER, MOVES_WIDE.with_(name="formal_coded_64", weight_codes=16), "64"),
)

_REQUESTS = Proof("store_requests", store_benches.store_requests, True, 1)
_ROWS = Proof("store_rows", store_benches.store_rows, True, 1)
_BEATS = Proof("store_beats", store_data_benches.store_beats, True, 1)
_STORE = (
    Proof("store_starts", store_benches.store_starts, True, 1),
    _REQUESTS,
    _ROWS,
    _BEATS,
    Proof("store_writes", store_data_benches.store_writes, True, 1),
    *(on(proof, MOVES_WIDE, "64") for proof in (_REQUESTS, _ROWS, _BEATS)),
    on(_BEATS, MOVES_NARROW, "narrow"),
)

PROOFS: tuple[Proof, ...] = (*_BOTH, *_LOAD, *_CODED, *_STORE)
