"""Proofs about the way of an instruction to its engine."""

from __future__ import annotations

from verification.formal.engine import Cut
from verification.formal.issue import benches
from verification.formal.proof import Proof, Property

PROOFS: tuple[Proof, ...] = (
    Proof(
        "queue",
        benches.queue,
        True,
        1,
        (
            Property(
                "order",
                "the entry at the output is the oldest one pushed and not popped",
                Cut("queue.o_payload"),
            ),
            Property(
                "conservation",
                "`level` counts pushes minus pops: nothing is lost or there twice",
                Cut("queue.level"),
            ),
            Property(
                "overflow",
                "never more than `depth` entries; it takes entries exactly while there is room",
                Cut("queue.i_ready"),
            ),
            Property(
                "progress",
                "an entry is at the output exactly while there is one",
                Cut("queue.o_valid"),
            ),
        ),
    ),
    Proof(
        "block_queue",
        benches.block_queue,
        True,
        1,
        (
            Property(
                "order",
                "`BlockQueue`: the entry at the output is the oldest one pushed and not popped",
                Cut("queue.next_head"),
            ),
            Property(
                "conservation",
                "`BlockQueue`: `level` counts pushes minus pops: nothing is lost or there twice",
                Cut("queue.level"),
            ),
            Property(
                "overflow",
                "`BlockQueue`: never more than `depth` entries; it takes entries exactly while there is room",
                Cut("queue.i_ready"),
            ),
            Property(
                "progress",
                "`BlockQueue`: an entry is at the output exactly while there is one",
                Cut("queue.o_valid"),
            ),
        ),
    ),
    Proof(
        "head_queue",
        benches.head_queue,
        True,
        1,
        (
            Property(
                "order",
                "`HeadQueue`: the entry at the output is the oldest one pushed and not popped",
                Cut("queue.o_next"),
            ),
            Property(
                "conservation",
                "`HeadQueue`: `level` counts pushes minus pops, which count one cycle later: nothing is lost or there "
                "twice",
                Cut("queue.level"),
            ),
            Property(
                "overflow",
                "`HeadQueue`: never more than `depth` entries; it takes entries exactly while there is room",
                Cut("queue.i_ready"),
            ),
            Property(
                "progress",
                "`HeadQueue`: two cycles after there is an entry, none popped since, one is at the output",
                Cut("queue.o_load"),
            ),
        ),
    ),
    Proof(
        "front_end",
        benches.front_end,
        True,
        1,
        (
            Property(
                "once",
                "`FrontEnd`: every instruction of its engine, and no other, leaves the queue exactly when it starts or "
                "configures, each of them once and as what it is",
                Cut("front.entry_ready"),
            ),
            Property(
                "semaphores",
                "`FrontEnd`: an instruction starts after one grant of the semaphores it names, and asks for no others",
                Cut("front.pops"),
            ),
            Property(
                "progress",
                "`FrontEnd`: an instruction that configures goes at once, one with its semaphores in the first cycle "
                "in which the engine is ready, and one without asks in every cycle",
                Cut("front.held"),
            ),
            Property(
                "word_before",
                "`FrontEnd`: the word of an instruction is there in the cycle before its start",
                Cut("front.held"),
            ),
        ),
    ),
    Proof(
        "semaphores",
        benches.semaphores,
        True,
        1,
        (
            Property(
                "counted",
                "a counter is the number of gives minus takes: each counts once, whatever the engines do in one cycle",
                Cut("semaphores.total1"),
            ),
            Property(
                "not_negative",
                "no counter goes below 0",
                Cut("semaphores.takes__0__grant"),
            ),
            Property(
                "limit",
                "no counter goes beyond 255 without an error",
                Cut("semaphores.beyond1", 68),
            ),
            Property(
                "overflow",
                "the error is raised exactly one cycle after that in which a counter would go beyond 255",
                Cut("semaphores.beyond1"),
            ),
            Property(
                "grant",
                "an engine gets its two counts together, when it asks and both are there",
                Cut("semaphores.gemm_able"),
            ),
            Property(
                "priority",
                "an engine that could have both is refused exactly when a lower one could have one of them, or another "
                "took it in the cycle before",
                Cut("semaphores.gemm_able"),
            ),
            Property(
                "progress",
                "if an engine could have both and none took any in the cycle before, one is granted",
                Cut("semaphores.gemm_able"),
            ),
        ),
    ),
)  # fmt: skip
