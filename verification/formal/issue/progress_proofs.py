"""Proofs that FETCH, LOAD and STORE go on."""

from __future__ import annotations

from verification.formal.engine import Cut
from verification.formal.issue import progress_benches as benches
from verification.formal.proof import Proof, Property

_GOES_ON = (
    "in no {} cycles of its work in which neither the memory nor {} hold it up does it do nothing: no address, no beat"
)

PROOFS: tuple[Proof, ...] = (
    Proof(
        "load_accepts",
        benches.load_accepts,
        False,
        14,
        (
            Property(
                "accepted",
                "R: LOAD takes every beat within 5 cycles (boxes without padding, VECTOR holds a bank for one cycle)",
                Cut("load.data.beat_ready", 16),
            ),
        ),
    ),
    Proof(
        "fetch_goes_on",
        benches.fetch_goes_on,
        False,
        20,
        (
            Property(
                "goes_on",
                f"FETCH: {_GOES_ON.format(benches.FETCH_WITHIN, 'queues')}, no instruction, END or error",
                Cut("fetch.enough", 12),
            ),
        ),
    ),
    Proof(
        "load_goes_on",
        benches.load_goes_on,
        False,
        20,
        (
            Property(
                "goes_on",
                f"LOAD: {_GOES_ON.format(benches.LOAD_WITHIN, 'scratchpads')}, no write, no end of an instruction",
                Cut("load.data.beat_ready", 16),
            ),
        ),
        quick=False,
    ),
    Proof(
        "store_goes_on",
        benches.store_goes_on,
        False,
        20,
        (
            Property(
                "goes_on",
                f"STORE: {_GOES_ON.format(benches.STORE_WITHIN, 'ACT')}, no row of ACT, no end of an instruction",
                Cut("store.write.w__valid", 16),
            ),
        ),
        quick=False,
    ),
)
