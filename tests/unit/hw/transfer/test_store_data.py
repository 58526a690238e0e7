"""The data path of STORE: rows of ACT become bus beats with strobes, against a walk of the box in Python."""

from __future__ import annotations

import random
from collections import deque

import pytest
from amaranth.hdl import Module

from tests.common.rtl_bench import PATIENCE, drive, simulate, words
from tilewright.hw.transfer.store_data import StoreAligner, StoreReader
from tilewright.isa.config import NpuConfig, preset
from tilewright.isa.timing import ACT_READ_CYCLES

TINY = preset("tiny").with_(act_rows=64)
CONFIGS = {
    "row of one beat": TINY,
    "row of four beats": TINY.with_(block_in=16, act_banks=2),
    "beat of four rows": TINY.with_(axi_data_bits=128, act_banks=8),
}
Box = dict[str, int]
#: A byte of a beat, None where there is no strobe.
Beat = list[int | None]


def runs(box: Box) -> list[tuple[int, int]]:
    """First row, and byte position in a beat, of every run of rows."""
    return [
        (
            box["row"] + z * box["row_stride1"] + y * box["row_stride0"],
            box["low"] + z * box["low_stride1"] + y * box["low_stride0"],
        )
        for z in range(box["count1"])
        for y in range(box["count0"])
    ]


def beats_of(config: NpuConfig, box: Box, act: list[bytes]) -> list[Beat]:
    """The beats of a box."""
    bus, found = config.bus_bytes, []
    for row, low in runs(box):
        data: Beat = [None] * (low % bus) + list(b"".join(act[row : row + box["count"]]))
        data += [None] * (-len(data) % bus)
        found += [data[i : i + bus] for i in range(0, len(data), bus)]
    return found


def random_box(config: NpuConfig, rng: random.Random, pc: int) -> Box:
    """One whose rows are all there."""
    while True:
        box = {
            "row": rng.randrange(config.act_rows),
            "count": rng.randint(1, 9),
            **{name: rng.randint(1, 3) for name in ("count0", "count1")},
            **{name: rng.randint(-9, 12) for name in ("row_stride0", "row_stride1")},
            **{name: rng.randrange(config.bus_bytes) for name in ("low", "low_stride0", "low_stride1")},
            "pc": pc,
        }
        if all(0 <= row <= config.act_rows - box["count"] for row, _ in runs(box)):
            return box


def run(config: NpuConfig, boxes: list[Box], act: list[bytes], count: int, seed: int) -> tuple[list[Beat], list[int]]:
    """The first `count` beats, or those until a fault, whose instruction and row are returned."""
    rng = random.Random(seed)
    m = Module()
    m.submodules.reader = reader = StoreReader(config)
    m.submodules.aligner = aligner = StoreAligner(config)
    for name in ("valid", "data", "more", "low", "last"):
        m.d.comb += getattr(aligner, f"i_{name}").eq(getattr(reader, f"o_{name}"))
    m.d.comb += reader.o_ready.eq(aligner.i_ready)
    found: list[Beat] = []

    async def start(ctx) -> None:
        for box in boxes:
            while not ctx.get(reader.ready) or rng.random() < 0.2:
                await ctx.tick()
            drive(ctx, reader, start=1, **box)
            await ctx.tick()
            ctx.set(reader.start, 0)

    async def scratchpad(ctx) -> None:
        due: deque[bytes] = deque([b""] * ACT_READ_CYCLES)
        port = reader.act
        while True:
            ctx.set(port.data, words(due.popleft()))
            asked = ctx.get(port.more) + 1 if ctx.get(port.valid) else 0
            granted, row = min(asked, rng.randrange(asked + 2)), ctx.get(port.row)
            ctx.set(port.grant, granted)
            due.append(b"".join(act[row : row + granted]))
            await ctx.tick()

    async def take(ctx) -> list[int]:
        fault = reader.fault
        for _ in range(PATIENCE):
            ctx.set(aligner.o_ready, rng.random() < 0.7)
            ports = (aligner.o_valid, aligner.o_ready, aligner.o_data, aligner.o_strobe)
            _, _, valid, ready, data, strobe, *reported = await ctx.tick().sample(
                *ports, fault.error, fault.pc, fault.address
            )
            if valid and ready:
                value = data.to_bytes(config.bus_bytes, "little")
                found.append([byte if strobe >> i & 1 else None for i, byte in enumerate(value)])
            if reported[0] or len(found) == count:
                return reported[1:] if reported[0] else []
        raise AssertionError(f"{len(found)} of {count} beats came")

    said: list[int] = []

    async def bench(ctx) -> None:
        said.extend(await take(ctx))

    simulate(m, bench, background=[start, scratchpad])
    return found, said


@pytest.mark.medium
@pytest.mark.parametrize("name", CONFIGS)
def test_boxes(name: str) -> None:
    """Runs at any byte of a beat, one box right behind the other, with banks and a bus that are not always free."""
    config, rng = CONFIGS[name], random.Random(name)
    act = [rng.randbytes(config.block_in) for _ in range(config.act_rows)]
    boxes = [random_box(config, rng, pc) for pc in range(12)]
    expected = [beat for box in boxes for beat in beats_of(config, box, act)]
    found, said = run(config, boxes, act, len(expected), 1)
    assert found == expected and said == []


@pytest.mark.parametrize("name", CONFIGS)
def test_a_row_beyond_the_memory(name: str) -> None:
    """Rows before it may be stored, none after it."""
    config = CONFIGS[name]
    act = [bytes([row] * config.block_in) for row in range(config.act_rows)]
    box = {"row": 61, "count": 5, "count0": 1, "count1": 1, "low": 0, "pc": 7}
    box |= dict.fromkeys(("row_stride0", "row_stride1", "low_stride0", "low_stride1"), 0)
    found, said = run(config, [box], act, 100, 1)
    assert said == [7, config.act_rows]
    assert found == beats_of(config, box, act)[: len(found)]
