"""Proofs about what LOAD and STORE have in common; `load_benches` and `store_benches` say how they chain."""

from __future__ import annotations

from verification.formal.engine import Cut
from verification.formal.proof import Proof, Property
from verification.formal.transfer import move_benches

PROOFS: tuple[Proof, ...] = (
    Proof(
        "buffer",
        move_benches.buffer,
        True,
        1,
        (
            Property(
                "order",
                "`Buffer`: the entry at the output is the oldest one pushed and not popped, there while there is one",
                Cut("buffer.spare"),
            ),
            Property("overflow", "`Buffer`: it takes entries exactly while it holds less than two", Cut("buffer.more")),
            Property("next", "`Buffer`: with `o_load` the output becomes `o_next`", Cut("buffer.o_load")),
        ),
    ),
    Proof(
        "walker_runs",
        move_benches.walker_runs,
        True,
        1,
        (
            Property(
                "runs",
                "LOAD, STORE: run y of plane z of a box is `bytes` bytes, offset + z * mem_stride1 + y * mem_stride0 "
                "on",
                Cut("walker.following"),
            ),
            Property(
                "once",
                "LOAD, STORE: the runs of a box come in order, each once, the last is marked; boxes come in order",
                Cut("walker.same_plane"),
            ),
            Property(
                "ready",
                "LOAD, STORE: the walker says a cycle ahead when it takes a box, and is ready until there is one",
                Cut("walker.ready_next"),
            ),
        ),
    ),
    Proof(
        "walker_bursts",
        move_benches.walker_bursts,
        True,
        1,
        (
            Property(
                "cover",
                "LOAD, STORE: the bursts of a run that lies in its region cover the beats that hold its bytes, in "
                "order, each once, from the region's base on",
                Cut("walker.beats3"),
            ),
            Property(
                "once",
                "LOAD, STORE: all bursts of a run come, before those of the next; the last of a box is marked; a SYNC "
                "is one item",
                Cut("walker.last3"),
            ),
            Property(
                "refused",
                "LOAD, STORE: a run is refused only if it leaves its region, when all bursts before it are taken; the "
                "error has its first byte and its instruction",
                Cut("walker.inside2"),
            ),
        ),
        quick=False,
    ),
)
