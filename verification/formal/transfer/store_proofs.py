"""Proofs about what STORE does; `store_benches` says how they chain."""

from __future__ import annotations

from verification.formal.engine import Cut
from verification.formal.proof import Proof, Property, on
from verification.formal.transfer import store_benches, store_data_benches
from verification.formal.transfer.move_benches import MOVES_NARROW, MOVES_WIDE

_STARTS = Proof(
    "store_starts",
    store_benches.store_starts,
    True,
    1,
    (
        Property(
            "bursts",
            "STORE: the walker gets the box of the instruction, of count * block_in bytes, as STORE_DIM set it last; a "
            "SYNC takes its turn there",
            Cut("store.null"),
        ),
        Property("reads", "STORE: the reader gets the same box in rows", Cut("store.count0")),
        Property(
            "region",
            "STORE: the region is the one that the instruction names, as it is at its start",
            Cut("store.kept_region__base"),
        ),
        Property("passes", "STORE: bursts, rows, beats and what the bus says pass unchanged", Cut("store.i_valid")),
        Property(
            "retires", "STORE: an instruction retires in the cycle after its last response", Cut("store.retire__give")
        ),
        Property(
            "faults",
            "STORE: a row beyond ACT is reported when the beats before it are sent and its burst has begun, or lies in "
            "the region; a run outside its region when the bursts before it are complete",
            Cut("store.range_fault__error"),
        ),
    ),
)
_REQUESTS = Proof(
    "store_requests",
    store_benches.store_requests,
    True,
    1,
    (
        Property(
            "rows",
            "STORE: the rows of run y of plane z are asked for, `count` from row + z * row_stride1 + y * row_stride0 "
            "on, with the low bits of offset + z * mem_stride1 + y * mem_stride0",
            Cut("finder.next_line"),
        ),
        Property("once", "STORE: every run of the box comes once, and nothing else", Cut("finder.left1")),
        Property(
            "range",
            "STORE: a request with a row beyond ACT is marked and is the last; the error has the first such row "
            "and the instruction",
            Cut("finder.fault__address"),
        ),
    ),
)
_ROWS = Proof(
    "store_rows",
    store_benches.store_rows,
    True,
    1,
    (
        Property(
            "asks",
            "STORE: the rows of a request are asked for in order, till each was granted",
            Cut("part.act__valid"),
        ),
        Property(
            "rows",
            "STORE: what a read gave is handed on, with its number of rows, place in a beat, whether they end a run",
            Cut("part.granted1"),
        ),
        Property(
            "once", "STORE: reads are handed on in order, once each; none finds the queue full", Cut("part.reserved")
        ),
    ),
)
_BEATS = Proof(
    "store_beats",
    store_data_benches.store_beats,
    True,
    1,
    (
        Property(
            "strobes", "STORE: strobes of the beats of a run are exactly those of its bytes", Cut("aligner.kept_strobe")
        ),
        Property(
            "once", "STORE: a run gives the beats that hold its bytes, once each, and no other", Cut("aligner.flushing")
        ),
        Property(
            "data",
            "STORE: byte p of a run, in rows of block_in bytes, is byte low + p of its beats, at any alignment",
            Cut("aligner.position"),
        ),
    ),
)
_WRITES = Proof(
    "store_writes",
    store_data_benches.store_writes,
    True,
    1,
    (
        Property(
            "beats",
            "STORE: a burst takes as many beats as it has, before the next one; they go to W as they are, those after "
            "a halt without strobes",
            Cut("port.left"),
        ),
        Property("bursts", "STORE: bursts go to AW as they are", Cut("port.aw__addr")),
        Property(
            "complete",
            "STORE: an instruction is complete with the response to its last burst, a SYNC when all before it are, "
            "once and in order",
            Cut("port.pending.o_ready"),
        ),
        Property("error", "STORE: an error is that of the burst that the response is for", Cut("port.error")),
    ),
)
PROOFS: tuple[Proof, ...] = (
    _STARTS,
    _REQUESTS,
    _ROWS,
    _BEATS,
    _WRITES,
    *(on(proof, MOVES_WIDE, "64") for proof in (_REQUESTS, _ROWS, _BEATS)),
    on(_BEATS, MOVES_NARROW, "narrow"),
)
