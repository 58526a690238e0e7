"""The proofs about an SDRAM: the crossing between its clock and the NPU's, its controller, its AXI slave, the
serial bridge and resets."""

from __future__ import annotations

import functools

from tilewright.fpga.sdram.chip import LONGEST_WAIT, SDRAM_8M, SDRAM_32M, SdramChip
from verification.formal.boards.bridge_benches import (
    ANSWER_EDGES,
    FAR_EDGES,
    NEAR_EDGES,
    OFFER_EDGES,
    requests,
    resets,
)
from verification.formal.boards.crossing_benches import READER_EDGES, WRITER_EDGES, crossing
from verification.formal.boards.sdram_benches import TAKE_WAIT, rules
from verification.formal.boards.sdram_order_benches import order
from verification.formal.boards.slave_benches import claims, slave
from verification.formal.engine import Cut
from verification.formal.machines import WIDE
from verification.formal.proof import Proof, Property, on


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
            "`AsyncQueue`: of a pointer that the other side sees, an edge of its own clock changes at most one bit, "
            "and nothing else any",
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


def _rules(name: str, chip: SdramChip, hz: int, *, quick: bool) -> Proof:
    properties = (
        Property(
            "start",
            "SDRAM: no command before the time after power-on, the bytes are masked; then PRECHARGE of all banks, "
            "the REFRESH commands, LOAD MODE once, and only then rows",
            Cut("controller.left"),
        ),
        Property(
            "mode",
            "SDRAM: the mode is bursts of one pair, with the CAS latency of the clock",
            Cut("controller.sdram_a", 50),
        ),
        Property(
            "commands",
            "SDRAM: there is no other command than those six, and the chip's clock is enabled",
            Cut("controller.sdram_we"),
        ),
        Property(
            "recovery",
            "SDRAM: no command before tRFC after REFRESH and tMRD after LOAD MODE",
            Cut("controller.sdram_cas", 50),
        ),
        Property(
            "active",
            "SDRAM: ACTIVE only for a bank without an open row, tRP after its PRECHARGE, tRC after its last ACTIVE, "
            "tRRD after that of any bank",
            Cut("controller.sdram_ras"),
        ),
        Property(
            "precharge",
            "SDRAM: a row is closed tRAS after its ACTIVE, tWR after its last word was written, and no word that is "
            "read is cut",
            Cut("controller.may_close", 60),
        ),
        Property(
            "refresh",
            "SDRAM: REFRESH and LOAD MODE only when no bank has an open row, tRP after PRECHARGE",
            Cut("controller.sdram_ras", 60),
        ),
        Property(
            "columns",
            "SDRAM: READ and WRITE only in a bank with an open row, tRCD after its ACTIVE, without precharge, behind "
            "the words of the one before",
            Cut("controller.is_open", 60),
        ),
        Property(
            "interval",
            "SDRAM: from LOAD MODE on one REFRESH for every interval of the data sheet, at most "
            f"{LONGEST_WAIT} cycles after it; no row is open for 100 us",
            Cut("controller.left", 40),
        ),
        Property(
            "bus",
            "SDRAM: the FPGA drives data exactly with the words of a WRITE, and not before the chip has let go of "
            "those of a READ",
            Cut("controller.sdram_dq_oe"),
        ),
        Property(
            "progress",
            f"SDRAM: once it has loaded the mode, the controller takes a segment within {TAKE_WAIT} cycles",
            Cut("controller.i_ready", 260),
        ),
    )
    return Proof(name, functools.partial(rules, chip=chip, hz=hz), True, 1, properties, quick=quick)


def _order(name: str, chip: SdramChip, hz: int, *, quick: bool) -> Proof:
    properties = (
        Property(
            "order",
            "SDRAM: the pairs of the segments that were taken are read and written in order, each once, and no others: "
            "with their bank, their column, and their row open",
            Cut("controller.sdram_ba", 60),
        ),
        Property(
            "writes",
            "SDRAM: a pair is taken in the cycle before its WRITE, with its tag and marked if it is the last of its "
            "segment; its words and masks are at the pins with the WRITE and behind it",
            Cut("controller.sdram_dqm", 60),
        ),
        Property(
            "reads",
            "SDRAM: for every READ, CAS latency and registers of the pins later, one answer: the words that the chip "
            "gave, none of them masked, with the tag and the mark of their segment",
            Cut("controller.passing0", 16),
        ),
        Property(
            "idle",
            "SDRAM: `idle` only while every segment that was taken is done and answered",
            Cut("controller.idle", 50),
        ),
        Property(
            "memory",
            "SDRAM: with a chip that keeps its words, a read gives of every byte what the last write that did "
            "not mask it wrote there before",
            Cut("controller.sdram_dq_o", 80),
        ),
    )
    return Proof(name, functools.partial(order, chip=chip, hz=hz), True, 3, properties, quick=quick)


_SLAVE = Proof(
    "sdram_slave",
    slave,
    False,
    12,
    (
        Property(
            "segments",
            "SDRAM, `AxiSegments`: the segments of a burst follow each other from its first beat to its last, which is "
            "marked, with its ID and whether it is beyond the memory; bursts of a direction go in their order",
            Cut("slave.o_pair", 12),
        ),
        Property(
            "r_beats",
            "SDRAM, `AxiSegments`, R: as many beats as ARLEN says, in the order of the bursts, RLAST with the last, "
            "with ID and response of the burst",
            Cut("slave.axi__r__last", 12),
        ),
        Property(
            "b_once",
            "SDRAM, `AxiSegments`, B: one response for a burst, with its last beat, with ID and response of the burst",
            Cut("slave.axi__b__valid", 12),
        ),
        Property(
            "words",
            "SDRAM, `AxiSegments`, W: a pair is the beat at the output of the queue, with its strobes; none of a burst "
            "beyond the memory is written",
            Cut("slave.w_mask", 12),
        ),
    ),
    quick=False,
)
_ROOM = Proof(
    "sdram_room",
    claims,
    True,
    1,
    (
        Property(
            "beats",
            "SDRAM, `AxiSegments`, W: whenever the controller writes a pair, its beat has come",
            Cut("slave.aw_splitter.o_count", 14),
        ),
        Property(
            "room",
            "SDRAM, `AxiSegments`, R: whenever the controller reads a pair, the queue has room for it",
            Cut("slave.read_may", 110),
        ),
        Property(
            "answers",
            "SDRAM, `AxiSegments`, B: whenever a burst is answered, the queue has room for the response",
            Cut("slave.axi__b__valid", 14),
        ),
    ),
    quick=False,
)
_BRIDGE = Proof(
    "sdram_bridge",
    requests,
    True,
    1,
    (
        Property(
            "once",
            "SDRAM, serial bridge: a request that was taken is offered to the controller once; the next one is taken "
            "when it has been done, and a word that was read given",
            Cut("memory.mem_asking"),
        ),
        Property(
            "request",
            "SDRAM, serial bridge: the controller is offered what was taken, and gets its word and the bytes to write",
            Cut("memory.data_there", 16),
        ),
        Property(
            "stays",
            "SDRAM, serial bridge: a request stays until the controller takes it",
            Cut("memory.mem_asking"),
        ),
        Property(
            "answer",
            "SDRAM, serial bridge: one answer to a read, with the word that the controller gave for it",
            Cut("memory.word", 16),
        ),
        Property(
            "still",
            "SDRAM, serial bridge: what crosses beside the levels that announce it was there for a cycle of the other "
            "clock, and does not change in the step in which it is taken",
            Cut("memory.mem_seen"),
        ),
        Property(
            "progress",
            f"SDRAM, serial bridge: {OFFER_EDGES} edges of the chip's clock after a request was taken it is offered, "
            f"{ANSWER_EDGES} edges of the NPU's after it was done it is answered or the next one may come",
            Cut("memory.mem_asking", 16),
        ),
    ),
)
_RESET = Proof(
    "sdram_reset",
    resets,
    True,
    1,
    (
        Property(
            "shut",
            "SDRAM, reset of the bus: nothing passes from the edge that sees it on, until it opens again",
            Cut("memory.is_open"),
        ),
        Property(
            "ended",
            "SDRAM, reset of the bus: it opens when the segments that were under way have ended; while the far side is "
            "in reset it asks for none",
            Cut("memory.reset_done", 16),
        ),
        Property(
            "far",
            "SDRAM, reset of the bus: the far side, unless it is in reset, sees no pointer of the near side from "
            "before it went back to the start",
            Cut("memory.far_reset", 16),
        ),
        Property(
            "near",
            "SDRAM, reset of the bus: the near side, from the end of its reset on until the next one of the bus, sees "
            "no pointer of the far side from before it went back to the start",
            Cut("memory.reset_done", 16),
        ),
        Property(
            "progress",
            f"SDRAM, reset of the bus: with the controller idle, the far side has done what the near side asks for in "
            f"{FAR_EDGES} edges; then the near side goes on within {NEAR_EDGES} of its own",
            Cut("memory.far_reset", 16),
        ),
    ),
)
#: Clocks with either CAS latency, those of boards among them.
_CLOCKS = {25_000_000: False, 100_000_000: False, 120_000_000: True, 133_000_000: False}
PROOFS: tuple[Proof, ...] = (
    _crossing("crossing", 4, quick=True),
    *(_crossing(f"crossing_{n}", n, quick=n < 16) for n in (8, 16, 32, 64)),
    *(_rules(f"sdram_rules_{hz // 1_000_000}", SDRAM_32M, hz, quick=quick) for hz, quick in _CLOCKS.items()),
    _rules("sdram_rules_wide", SDRAM_8M, 54_000_000, quick=False),
    *(_order(f"sdram_order_{hz // 1_000_000}", SDRAM_32M, hz, quick=quick) for hz, quick in _CLOCKS.items()),
    _order("sdram_order_wide", SDRAM_8M, 54_000_000, quick=False),
    _SLAVE,
    on(_SLAVE, WIDE, "64"),
    _ROOM,
    on(_ROOM, WIDE, "64"),
    _BRIDGE,
    _RESET,
)
