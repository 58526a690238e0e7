"""The data half of LOAD: boxes and bus beats become writes to scratchpads, against a walk of the box in Python."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from tests.common.rtl_bench import PATIENCE, side, simulate, stream_put, words
from tilewright.hw.memory.load_layouts import descriptor_layout
from tilewright.hw.transfer.load_data import LoadData
from tilewright.isa.config import NpuConfig, preset
from tilewright.isa.instructions import Memory

TINY = preset("tiny").with_(act_rows=64, wgt_tiles=16, prm_rows=8, lut_tables=2)
CONFIGS = {
    "row of one beat": TINY,
    "row of four beats": TINY.with_(block_in=16, act_banks=2),
    "beat of four rows": TINY.with_(axi_data_bits=128, act_banks=8),
}
#: Target, row, first byte in the row, bytes.
Write = tuple[Memory, int, int, bytes]


@dataclass
class Box:
    """A descriptor, the bus beats it takes and the writes it makes."""

    values: dict[str, int]
    beats: list[bytes] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)


def lines(values: dict[str, int]) -> Iterator[tuple[int, int | None]]:
    """First row and byte position in a beat of every line of a box; None for a line of padding."""
    v = values
    for z in range(v["count1"]):
        for y in range(v["top"] + v["count0"] + v["bottom"]):
            row = v["row"] + z * v["row_stride1"] + y * v["row_stride0"]
            number = y - v["top"]
            is_data = 0 <= number < v["count0"]
            yield row, v["low"] + z * v["low_stride1"] + number * v["low_stride0"] if is_data else None


def walk(config: NpuConfig, values: dict[str, int], rng: random.Random) -> Box:
    """The box with random bytes in memory."""
    box, target, bus = Box(values), Memory(values["target"]), config.bus_bytes
    size = target.row_bytes(config)
    for row, low in lines(values):
        run = bytes([values["fill"]]) * (size * values["count"])
        if low is not None and values["count"]:
            run = rng.randbytes(len(run))
            beats = rng.randbytes(low % bus) + run
            beats += rng.randbytes(-len(beats) % bus)
            box.beats += [beats[i : i + bus] for i in range(0, len(beats), bus)]
        data = bytes([values["fill"]]) * (size * values["left"]) + run
        data += bytes([values["fill"]]) * (size * values["right"])
        step = min(size, bus)
        for at in range(0, len(data), step):
            box.writes.append((target, row + at // size, at % size, data[at : at + step]))
    return box


def random_box(config: NpuConfig, rng: random.Random, pc: int) -> Box:
    """One whose rows are all there."""
    while True:
        target = rng.choices(list(Memory), (5, 3, 2, 1))[0]
        most = 6 if target == Memory.ACT else 2
        few = lambda: rng.choice([0, 0, 0, 1, 2])
        values = {
            "target": target,
            "row": rng.randrange(target.rows(config)),
            "count": rng.randint(0, most),
            "low": rng.randrange(config.bus_bytes),
            **{"count0": rng.randint(0, 3), "count1": rng.randint(1, 2)},
            **{name: rng.randint(-3, 12) for name in ("row_stride0", "row_stride1")},
            **{name: rng.randrange(config.bus_bytes) for name in ("low_stride0", "low_stride1")},
            **{name: few() for name in ("left", "right", "top", "bottom")},
            "fill": rng.randrange(256),
            "signal0": rng.randrange(4),
            "signal1": rng.randrange(4),
            "pc": pc,
        }
        parts = [values[name] != 0 for name in ("left", "count", "right")]
        values["one"] = values["top"] + values["count0"] + values["bottom"] == 1
        values["only"] = values["one"] and values["count1"] == 1 and sum(parts) == 1
        box = walk(config, values, rng)
        if box.writes and all(0 <= row < target.rows(config) for _, row, _, _ in box.writes):
            return box


def run(config: NpuConfig, boxes: list[Box], rng: random.Random) -> tuple[list[Write], list[tuple[int, ...]]]:
    """The writes, and (instruction, signals, writes before) of everything that is complete; it ends with a fault, which
    is the last of these: (instruction, row)."""
    dut = LoadData(config)
    layout = descriptor_layout(config)
    writes: list[Write] = []
    ends: list[tuple[int, ...]] = []

    async def give_boxes(ctx) -> None:
        await stream_put(ctx, side(dut, "i"), [layout.const(box.values) for box in boxes], rng)

    async def give_beats(ctx) -> None:
        beats = SimpleNamespace(valid=dut.beat, ready=dut.beat_ready, payload=dut.beat_data)
        await stream_put(ctx, beats, [words(beat) for box in boxes for beat in box.beats], rng)

    async def take_writes(ctx) -> None:
        w, retire, fault = dut.write, dut.retire, dut.range_fault
        signals = (w.valid, w.grant, w.target, w.row, w.rows, w.chunk, w.full, w.data)
        reported = (retire.give, retire.pc, retire.signal0, retire.signal1, fault.error, fault.pc, fault.address)
        for _ in range(PATIENCE):
            ctx.set(w.grant, rng.random() < 0.7)
            _, _, *now = await ctx.tick().sample(*signals, *reported)
            (valid, grant, target, row, rows, chunk, full, data), now = now[: len(signals)], now[len(signals) :]
            if valid and grant:
                size, bus = Memory(target).row_bytes(config), config.bus_bytes
                step = min(size, bus)
                value = data.to_bytes(bus, "little")
                for k in range(size // step if full else rows):
                    at, part = (k * step, value[:step]) if full else (chunk * step, value[k * step : (k + 1) * step])
                    writes.append((Memory(target), row if full else row + k, at, part))
            if now[0]:
                ends.append((*now[1:4], len(writes)))
            if now[4]:
                ends.append(tuple(now[5:]))
                return
            if len(ends) == len(boxes):
                return
        raise AssertionError(f"{len(ends)} of {len(boxes)} boxes are complete, {len(writes)} writes were made")

    simulate(dut, take_writes, background=[give_boxes, give_beats])
    return writes, ends


@pytest.mark.medium
@pytest.mark.parametrize("name", CONFIGS)
def test_boxes(name: str) -> None:
    """Boxes with padding on any side, at any byte of a beat, of all four memories, one right behind the other."""
    rng = random.Random(name)
    boxes = [random_box(CONFIGS[name], rng, pc) for pc in range(16)]
    writes, ends = run(CONFIGS[name], boxes, rng)
    done = 0
    for box, end in zip(boxes, ends):
        before, done = done, done + len(box.writes)
        assert writes[before:done] == box.writes, box.values
        assert end == (box.values["pc"], box.values["signal0"], box.values["signal1"], done)


def test_a_row_beyond_the_memory() -> None:
    """Rows inside the memory are written, the rest is an error, and the instruction is never complete."""
    values = dict.fromkeys(descriptor_layout(TINY).members, 0)
    values |= {"target": Memory.ACT, "row": 62, "count": 4, "count0": 1, "count1": 1, "one": 1, "only": 1, "pc": 9}
    box = walk(TINY, values, random.Random(1))
    writes, ends = run(TINY, [box], random.Random(2))
    assert writes == box.writes[:2] and ends == [(9, 64)]
