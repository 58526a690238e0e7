"""Proofs about the way of an instruction to its engine, about loops, and that FETCH, LOAD and STORE go on."""

from __future__ import annotations

from verification.formal.issue import benches, loop_benches, progress_benches
from verification.formal.proof import Proof

PROOFS: tuple[Proof, ...] = (
    Proof("queue", benches.queue, True, 1),
    Proof("block_queue", benches.block_queue, True, 1),
    Proof("head_queue", benches.head_queue, True, 1),
    Proof("front_end", benches.front_end, True, 1),
    Proof("semaphores", benches.semaphores, True, 1),
    Proof("loop_nest", loop_benches.loop_nest, False, 14, quick=False),
    Proof("load_accepts", progress_benches.load_accepts, False, 14),
    Proof("fetch_goes_on", progress_benches.fetch_goes_on, False, 20),
    Proof("load_goes_on", progress_benches.load_goes_on, False, 20, quick=False),
    Proof("store_goes_on", progress_benches.store_goes_on, False, 20, quick=False),
)
