"""Proofs about what LOAD does; `load_benches` says how they chain."""

from __future__ import annotations

from verification.formal.engine import Cut
from verification.formal.proof import Proof, Property, on
from verification.formal.transfer import load_benches, load_data_benches
from verification.formal.transfer.move_benches import MOVES_CODED, MOVES_NARROW, MOVES_WIDE

_STARTS = Proof(
    "load_starts",
    load_benches.load_starts,
    True,
    1,
    (
        Property(
            "bursts",
            "LOAD: the walker gets the box of the instruction, count rows of its target, as LOAD_DIM set it last; none "
            "if there is nothing to read, or for a SYNC. LOAD_CODED: `beats` beats from offset on, its low bits 0",
            Cut("load.bytes_"),
        ),
        Property("operand", "LOAD: ILLEGAL_OPERAND exactly for a box without a row", Cut("load.top")),
        Property(
            "region",
            "LOAD: the region is the one that the instruction names, as it is at its start",
            Cut("load.kept_region__base"),
        ),
        Property(
            "told",
            "LOAD: the data half gets what the instruction, LOAD_DIM and LOAD_PAD say, whether it is one segment, and "
            "loses none",
            Cut("load.row_stride1"),
        ),
        Property(
            "passes",
            "LOAD: bursts, beats and writes pass unchanged; an instruction retires in the cycle after its last write",
            Cut("load.retire__give"),
        ),
        Property(
            "faults",
            "LOAD: a run outside its region is reported when its first beat is due and those before it have come, an "
            "error of a beat when that is taken",
            Cut("load.window_fault__error"),
        ),
    ),
)
_BEATS = Proof(
    "load_beats",
    load_data_benches.load_beats,
    True,
    1,
    (
        Property("asks", "`AxiRead`: every burst that is taken goes to AR as it is, in order", Cut("port.ar__addr")),
        Property(
            "beats",
            "`AxiRead`: the beats of a burst go to the engine that asked for it, as they are, in order, each with its "
            "address",
            Cut("port.position"),
        ),
    ),
)
_SEGMENTS = Proof(
    "load_segments",
    load_benches.load_segments,
    True,
    1,
    (
        Property(
            "once",
            "LOAD: a box is cut into segments without a gap, one after the other, and the last is marked; "
            "boxes follow in their order",
            Cut("finder.last_line"),
        ),
        Property(
            "rows",
            "LOAD: the segments of line y of plane z begin at row + z * row_stride1 + y * row_stride0, and are "
            "left + count + right rows",
            Cut("finder.line_row"),
        ),
        Property(
            "kind",
            "LOAD: the rows from `left` on of the lines from `top` on are `count` rows of a run that begins at "
            "offset + z * mem_stride1 + (y - top) * mem_stride0 (in a beat), for count0 lines; the rest is fill",
            Cut("finder.middle"),
        ),
        Property("told", "LOAD: segments have the signals and `pc` of their instruction", Cut("finder.d.signal0")),
        Property(
            "at_once",
            "LOAD: a segment that goes on where one ended comes as soon as that leaves",
            Cut("finder.fresh"),
        ),
    ),
)
_STEPS = Proof(
    "load_steps",
    load_data_benches.load_steps,
    True,
    1,
    (
        Property(
            "once",
            "LOAD: the chunks of a segment come in order, each once, before those of the next; the last is marked",
            Cut("part.rows_left"),
        ),
        Property(
            "beats",
            "LOAD: a run takes the beats that hold its bytes, (low + bytes) / bus rounded up; fill takes none",
            Cut("part.skips"),
        ),
        Property(
            "place",
            "LOAD: a chunk goes to the place of its bytes: row, chunk of the row; or to a whole row of fill",
            Cut("part.next_row"),
        ),
        Property("fill", "LOAD: every byte of a row of padding is `fill`", Cut("part.before")),
        Property(
            "data",
            "LOAD: byte p of a run is byte low + p of its beats, at any alignment; it is written when it has come",
            Cut("part.before"),
        ),
        Property(
            "range",
            "LOAD: a chunk with a row beyond the scratchpad is marked, and is the last",
            Cut("part.failed"),
        ),
        Property("told", "LOAD: chunks have the signals and `pc` of their segment", Cut("part.chunks.i_payload")),
    ),
)
_WRITES = Proof(
    "load_writes",
    load_data_benches.load_writes,
    True,
    1,
    (
        Property("write", "LOAD: every chunk is written once, as it is", Cut("part.chunks.spare")),
        Property("stays", "LOAD: a write stays until it is granted", Cut("part.chunks.payload")),
        Property("order", "LOAD: chunks are written in the order in which they were made", Cut("part.chunks.more")),
        Property(
            "retire",
            "LOAD: an instruction gives its own signals once, with the grant of its last chunk (SYNC: in its turn)",
            Cut("part.retire__give"),
        ),
        Property(
            "range",
            "LOAD: a chunk beyond its scratchpad is not written, nor anything after it; the error has the first "
            "row beyond and the instruction",
            Cut("part.range_fault__address"),
        ),
    ),
)
_CODES = Proof(
    "load_codes",
    load_data_benches.load_codes,
    True,
    1,
    (
        Property("steps", "LOAD_CODED: the decoder makes no step of its own, and ends with one", Cut("codes.step")),
        Property("beats", "LOAD_CODED: `beats` beats are taken, all by the end", Cut("codes.beat_ready")),
        Property(
            "tiles",
            "LOAD_CODED: the weights of a round go to the next part of `count` tiles from `row` on, once each; none to "
            "a tile beyond WGT, nor after one",
            Cut("codes.tiles_left", 12),
        ),
    ),
)
PROOFS: tuple[Proof, ...] = (
    _STARTS,
    _BEATS,
    _SEGMENTS,
    _STEPS,
    _WRITES,
    _CODES,
    on(_STARTS, MOVES_CODED, "coded"),
    on(_STEPS, MOVES_CODED, "coded"),
    on(_STEPS, MOVES_WIDE, "64"),
    on(_STEPS, MOVES_NARROW, "narrow"),
)
