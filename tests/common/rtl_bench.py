"""Benches for parts of the RTL in Amaranth's simulator: running them, driving ports by name, streams."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable
from types import SimpleNamespace
from typing import Any

from amaranth.sim import Simulator

from tilewright.isa.encoding import Op

Bench = Callable[..., Awaitable[None]]
#: Cycles after which a bench that still waits for its design should fail.
PATIENCE = 20_000


def simulate(
    dut: Any, bench: Bench, *others: Bench, background: Iterable[Bench] = (), clock_hz: float | None = 1e6
) -> None:
    """Runs testbenches on a design until all have ended.

    Args:
        dut: the design.
        bench, others: `async def bench(ctx)`, side by side.
        background: the same, for which nobody waits.
        clock_hz: of domain `sync`; None for a design without a clock.
    """
    simulator = Simulator(dut)
    if clock_hz is not None:
        simulator.add_clock(1 / clock_hz)
    for each in (bench, *others):
        simulator.add_testbench(each)
    for each in background:
        simulator.add_testbench(each, background=True)
    simulator.run()


def words(data: bytes) -> int:
    """Bytes as the value of a signal."""
    return int.from_bytes(data, "little")


def drive(ctx: Any, dut: Any, prefix: str = "", /, **values: Any) -> None:
    """Sets the inputs `prefix + name` of a design."""
    for name, value in values.items():
        ctx.set(getattr(dut, prefix + name), value)


def side(dut: Any, name: str) -> SimpleNamespace:
    """The stream whose ports are `{name}_valid`, `{name}_ready` and `{name}_payload`."""
    return SimpleNamespace(**{part: getattr(dut, f"{name}_{part}") for part in ("valid", "ready", "payload")})


async def stream_put(
    ctx: Any, stream: Any, values: Iterable[Any], rng: random.Random | None = None, idle: float = 0.3
) -> None:
    """Gives a stream values, each until it is taken; with `rng` there are pauses, each cycle of them with the chance
    `idle`."""
    for value in values:
        while rng is not None and rng.random() < idle:
            await ctx.tick()
        drive(ctx, stream, payload=value, valid=1)
        while not (await ctx.tick().sample(stream.ready))[-1]:
            pass
        ctx.set(stream.valid, 0)


async def stream_take(ctx: Any, stream: Any, count: int) -> list[Any]:
    """The next values of a stream that is always ready."""
    return [(await ctx.tick().sample(stream.payload).until(stream.valid))[0] for _ in range(count)]


async def issue(ctx: Any, control: Any, configuring: Iterable[Op], op: Op, pc: int) -> None:
    """Gives the steps of an engine an instruction as a front end does, after those that configure it; a front end shows
    the next word a cycle before it starts."""
    for one in configuring:
        drive(ctx, control, configure=1, word=one.encode())
        await ctx.tick()
    drive(ctx, control, configure=0, word=op.encode(), pc=pc)
    await ctx.tick()
    while not ctx.get(control.ready):
        await ctx.tick()
    ctx.set(control.start, 1)
    await ctx.tick()
    ctx.set(control.start, 0)
