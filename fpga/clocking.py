"""Clock domains of the SoC, driven by the PLL of a board."""

from __future__ import annotations

from amaranth.hdl import ClockDomain, Module, Signal, Value
from amaranth.lib.cdc import ResetSynchronizer

from tilewright.fpga.plls import MemoryClock, Pll


def drive_sync(m: Module, pll: Pll, clock: Value) -> None:
    """Drives clock domain `sync` from a PLL, in reset until the PLL is locked."""
    _drive(m, pll, clock, None)


def drive_with_pin(m: Module, pll: Pll, clock: Value, *, later: str, delay_ns: float) -> None:
    """Drives clock domain `sync` like `drive_sync`, and `later`, without reset, whose clock comes `delay_ns` later."""
    pin = ClockDomain(later, reset_less=True)
    m.domains += pin
    _drive(m, pll, clock, MemoryClock(None, pin.clk, delay_ns))


def drive_with_memory(m: Module, pll: Pll, clock: Value, *, memory: str, later: str, delay_ns: float) -> None:
    """Drives clock domains `sync` and `memory` from a PLL, in reset until the PLL is locked, and `later`, without
    reset, whose clock comes `delay_ns` after that of `memory`.
    """
    inner, pin = ClockDomain(memory), ClockDomain(later, reset_less=True)
    m.domains += [inner, pin]
    locked = _drive(m, pll, clock, MemoryClock(inner.clk, pin.clk, delay_ns))
    m.submodules.memory_reset = ResetSynchronizer(~locked, domain=memory)


def _drive(m: Module, pll: Pll, clock: Value, memory: MemoryClock | None) -> Signal:
    domain = ClockDomain("sync")
    m.domains += domain
    locked = Signal()
    m.submodules.pll = pll.instance(clock, domain.clk, locked, memory)
    m.submodules.reset = ResetSynchronizer(~locked, domain="sync")
    return locked
