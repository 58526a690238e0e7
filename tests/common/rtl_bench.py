"""Benches for parts of the RTL in Amaranth's simulator: running them, driving ports by name, streams."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from amaranth.sim import Simulator

Bench = Callable[..., Awaitable[None]]


def simulate(dut: Any, bench: Bench, *others: Bench, clock_hz: float | None = 1e6) -> None:
    """Runs testbenches on a design until all have ended.

    Args:
        dut: the design.
        bench, others: `async def bench(ctx)`, side by side.
        clock_hz: of domain `sync`; None for a design without a clock.
    """
    simulator = Simulator(dut)
    if clock_hz is not None:
        simulator.add_clock(1 / clock_hz)
    for each in (bench, *others):
        simulator.add_testbench(each)
    simulator.run()


def drive(ctx: Any, dut: Any, prefix: str = "", /, **values: Any) -> None:
    """Sets the inputs `prefix + name` of a design."""
    for name, value in values.items():
        ctx.set(getattr(dut, prefix + name), value)


async def stream_put(ctx: Any, stream: Any, values: Iterable[Any]) -> None:
    """Gives a stream values, each until it is taken."""
    for value in values:
        drive(ctx, stream, payload=value, valid=1)
        await ctx.tick().until(stream.ready)
        ctx.set(stream.valid, 0)


async def stream_take(ctx: Any, stream: Any, count: int) -> list[Any]:
    """The next values of a stream that is always ready."""
    return [(await ctx.tick().sample(stream.payload).until(stream.valid))[0] for _ in range(count)]
