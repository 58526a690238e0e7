"""Parts with a reset of their own."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import ClockDomain, ClockSignal, DomainRenamer, Module, Value


def reset_by(m: Module, part: Any, reset: Value, domain: str) -> Any:
    """Returns `part` for a submodule of `m`, in a clock domain of its own named `domain`: it has the clock of `sync`,
    and nothing but `reset` resets it. A register as `reset`, with 1 as its value after a reset of `sync`, spreads over
    the chip without meeting the reset of `sync` in logic first, as it does with `ResetInserter`.
    """
    own = ClockDomain(domain, local=True)
    m.domains += own
    m.d.comb += [own.clk.eq(ClockSignal()), own.rst.eq(reset)]
    return DomainRenamer(domain)(part)
