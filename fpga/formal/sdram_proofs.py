"""The proofs about an SDRAM: the crossing between its clock and the NPU's, its controller, its AXI slave."""

from __future__ import annotations

import functools

from fpga.formal.crossing_benches import READER_EDGES, WRITER_EDGES, crossing
from hw.formal.engine import Cut
from hw.formal.proof import Proof, Property


def _crossing(name: str, depth: int, *, quick: bool) -> Proof:
    properties = (
        Property(
            "order",
            "`AsyncQueue`: the entry at the output is the oldest one pushed and not popped",
            Cut("queue.produced_seen"),
        ),
        Property(
            "once",
            "`AsyncQueue`: an entry is at the output only if one is pushed and not popped: nothing is there twice",
            Cut("queue.produced_seen"),
        ),
        Property(
            "overflow",
            "`AsyncQueue`: the RAM never has more entries than it has room for; one is taken only where the writer "
            "knows of room",
            Cut("queue.left"),
        ),
        Property(
            "still",
            "`AsyncQueue`: a word of the RAM is not written in the step in which the reader takes it",
            Cut("queue.produced_seen"),
        ),
        Property(
            "gray",
            "`AsyncQueue`: of a pointer that the other side sees, an edge of its own clock changes at most one bit, and "
            "nothing else any",
            Cut("queue.produced_gray"),
        ),
        Property(
            "counts",
            "`AsyncQueue`: `left` counts no entry that has not left the RAM; of the entries that `come` counts, "
            "the oldest that was not popped is at the output",
            Cut("queue.come"),
        ),
        Property(
            "progress",
            f"`AsyncQueue`: {READER_EDGES} edges of the reader after there is an entry one is at the output, "
            f"{WRITER_EDGES} edges of the writer after there is room it takes one",
            Cut("queue.o_valid"),
        ),
    )
    return Proof(name, functools.partial(crossing, depth=depth), True, 1, properties, quick=quick)


PROOFS: tuple[Proof, ...] = (
    _crossing("crossing", 4, quick=True),
    *(_crossing(f"crossing_{n}", n, quick=n < 32) for n in (8, 16, 32, 64)),
)
