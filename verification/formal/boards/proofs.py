"""The proofs about what boards put around the NPU. docs/verification/formal.md has their table."""

from __future__ import annotations

from functools import partial

from tilewright.fpga.sdram.chip import SDRAM_8M, SDRAM_32M, SdramChip
from verification.formal.boards import memory_benches, zynq_benches
from verification.formal.boards.bridge_benches import requests, resets
from verification.formal.boards.crossing_benches import crossing
from verification.formal.boards.sdram_benches import rules
from verification.formal.boards.sdram_order_benches import order
from verification.formal.boards.slave_benches import claims, slave
from verification.formal.machines import WIDE
from verification.formal.proof import Proof, on


def _rules(name: str, chip: SdramChip, hz: int, *, quick: bool) -> Proof:
    return Proof(f"sdram_rules_{name}", partial(rules, chip=chip, hz=hz), True, 1, quick=quick)


def _order(name: str, chip: SdramChip, hz: int, *, quick: bool) -> Proof:
    return Proof(f"sdram_order_{name}", partial(order, chip=chip, hz=hz), True, 3, quick=quick)


_SLAVE = Proof("sdram_slave", slave, False, 12, quick=False)
_ROOM = Proof("sdram_room", claims, True, 1, quick=False)
#: Clocks with either CAS latency, those of boards among them.
_CLOCKS = {25_000_000: False, 100_000_000: False, 120_000_000: True, 133_000_000: False}
_SDRAM = (
    Proof("crossing", partial(crossing, depth=4), True, 1),
    *(Proof(f"crossing_{n}", partial(crossing, depth=n), True, 1, quick=n < 16) for n in (8, 16, 32, 64)),
    *(_rules(f"{hz // 1_000_000}", SDRAM_32M, hz, quick=quick) for hz, quick in _CLOCKS.items()),
    _rules("wide", SDRAM_8M, 54_000_000, quick=False),
    *(_order(f"{hz // 1_000_000}", SDRAM_32M, hz, quick=quick) for hz, quick in _CLOCKS.items()),
    _order("wide", SDRAM_8M, 54_000_000, quick=False),
    _SLAVE,
    on(_SLAVE, WIDE, "64"),
    _ROOM,
    on(_ROOM, WIDE, "64"),
    Proof("sdram_bridge", requests, True, 1),
    Proof("sdram_reset", resets, True, 1),
)
PROOFS: tuple[Proof, ...] = (
    Proof("split", zynq_benches.split, True, 1),
    Proof("split_beats", zynq_benches.split_beats, True, 1),
    Proof("bridge_reads", zynq_benches.bridge_reads, True, 1),
    Proof("bridge_writes", zynq_benches.bridge_writes, True, 1),
    Proof("block_ram", memory_benches.block_ram, False, 14),
    Proof("segments", memory_benches.segments, True, 1),
    *_SDRAM,
)
