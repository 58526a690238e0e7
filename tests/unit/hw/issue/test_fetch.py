"""FETCH: the instructions of a program in memory reach the queues in order; programs that are wrong."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

import pytest

from tests.common.rtl_bench import PATIENCE, drive, simulate, words
from tilewright.hw.issue.fetch import Fetch
from tilewright.isa.config import NpuConfig, preset
from tilewright.isa.encoding import Op, op, to_bytes
from tilewright.isa.error_codes import ErrorCode
from tilewright.isa.fields import INSTRUCTION_BYTES
from tilewright.isa.timing import fetch_burst_bytes
from verification.programs.generator import generate

TINY = preset("tiny")
CONFIGS = {
    "a quarter of an instruction": TINY,
    "an instruction": TINY.with_(axi_data_bits=128, act_banks=8),
    "two instructions": TINY.with_(block_in=8, axi_data_bits=256, act_banks=16),
}
BASE = 0x1000
SYNC = op("LOAD_SYNC")


@dataclass
class Run:
    """A run of FETCH: (pc, engine, word) of each dispatched instruction, beats read, and the error."""

    dispatched: list[tuple[int, int, int]] = field(default_factory=list)
    read: list[int] = field(default_factory=list)
    error: tuple[ErrorCode, int, int] | None = None
    ended: bool = False


def fetch(
    config: NpuConfig,
    image: bytes,
    *,
    offset: int = 0,
    length: int,
    size: int | None = None,
    bad: int = -1,
    seed: int = 1,
) -> Run:
    """Runs a program of `length` instructions at `offset` of a region that holds `image`, until it has ended or failed.
    Engines are never quiet while instructions are on their way. The beat with address `bad` is a bus error."""
    rng = random.Random(seed)
    dut = Fetch(config)
    run = Run()
    bus, burst = config.bus_bytes, fetch_burst_bytes(config)

    async def memory(ctx) -> None:
        due: deque[tuple[int, int]] = deque()  # cycle, address
        port, cycle = dut.read, 0
        while True:
            ready = rng.random() < 0.5
            beat = due[0][1] if due and due[0][0] <= cycle and rng.random() < 0.8 else None
            if beat is not None:
                due.popleft()
                run.read.append(beat)
                data = image[beat - BASE : beat - BASE + bus].ljust(bus, b"\xff")
                drive(ctx, port, data=words(data), bad=beat == bad)
            ctx.set(port.beat, beat is not None)
            ctx.set(port.ready, ready)
            _, _, valid, address, beats = await ctx.tick().sample(port.valid, port.address, port.beats)
            cycle += 1
            if valid and ready:
                assert address % bus == 0 and address // burst == (address + bus * beats - 1) // burst
                due.extend((cycle + 5, address + bus * k) for k in range(beats))

    async def queues(ctx) -> None:
        drive(
            ctx, dut, start=1, base=BASE, size=len(image) if size is None else size, allowed=1, offset=offset,
            length=length,
        )  # fmt: skip
        await ctx.tick()
        ctx.set(dut.start, 0)
        quiet = 0
        for _ in range(PATIENCE):
            ctx.set(dut.ready, rng.random() < 0.6)
            ctx.set(dut.quiet, quiet > 20)
            _, _, valid, ready, pc, engine, word, ended, error, code, at, address = await ctx.tick().sample(
                dut.valid, dut.ready, dut.pc, dut.engine, dut.word, dut.ended,
                dut.fault.error, dut.fault_code, dut.fault.pc, dut.fault.address,
            )  # fmt: skip
            quiet = 0 if valid else quiet + 1
            if valid and ready:
                run.dispatched.append((pc, engine, word))
            if ended or error:
                run.ended, run.error = bool(ended), (ErrorCode(code), at, address) if error else None
                return
        raise AssertionError(f"neither an end nor an error after {len(run.dispatched)} instructions")

    simulate(dut, queues, background=[memory])
    return run


def dispatched(ops: list[Op]) -> list[tuple[int, int, int]]:
    """The dispatches expected of a program: (pc, engine, word) of each."""
    return [(pc, o.instruction.engine, o.encode()) for pc, o in enumerate(ops) if o.name != "END"]


@pytest.mark.medium
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("offset", [0, 3 * INSTRUCTION_BYTES])
def test_a_program(name: str, offset: int) -> None:
    """Every instruction up to END, once, in order; only beats of the program are read, each once."""
    config = CONFIGS[name]
    ops = generate(3, config, instructions=40).ops
    image = bytes(offset) + to_bytes(ops)
    run = fetch(config, image + bytes(64), offset=offset, length=len(ops))
    assert run.dispatched == dispatched(ops) and run.ended and run.error is None
    first = (BASE + offset) // config.bus_bytes * config.bus_bytes
    assert run.read == list(range(first, BASE + len(image), config.bus_bytes))[: len(run.read)]


def test_an_end_in_the_middle() -> None:
    """Instructions behind END may be read, but are never dispatched."""
    run = fetch(TINY, to_bytes([SYNC, op("END"), SYNC, SYNC]), length=4)
    assert run.dispatched == dispatched([SYNC]) and run.ended


@pytest.mark.medium
def test_errors() -> None:
    """The instructions before it are dispatched; the error names the first that cannot be."""
    good, size = [SYNC] * 5, 5 * INSTRUCTION_BYTES
    end = BASE + size
    illegal = op("GEMM_LOOP", level=7, count=1)
    cases = {
        "no such opcode": (fetch(TINY, to_bytes(good) + b"\xee" * 32, length=7), (ErrorCode.ILLEGAL_OPCODE, 5, 0)),
        "operand": (fetch(TINY, to_bytes([*good, illegal]), length=6), (ErrorCode.ILLEGAL_OPERAND, 5, 0)),
        "no END": (fetch(TINY, to_bytes(good), length=5), (ErrorCode.NO_END, 5, end)),
        "bus": (fetch(TINY, to_bytes([*good, op("END")]), length=6, bad=end + 8), (ErrorCode.BUS_READ, 5, end)),
    }
    for name, (run, error) in cases.items():
        assert run.error == error and run.dispatched == dispatched(good) and not run.ended, name


def test_a_program_beyond_its_region() -> None:
    """A program beyond its region is not begun, and nothing is read."""
    image = to_bytes([SYNC, SYNC, op("END")])
    for settings in ({"size": len(image) - 1}, {"offset": 16}, {"offset": 1 << 16}):
        run = fetch(TINY, image, length=3, **settings)
        assert run.error is not None and run.error[:2] == (ErrorCode.WINDOW, 0)
        assert run.dispatched == [] and run.read == []
