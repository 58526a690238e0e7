"""Benches with two clocks: a step is any moment at which a clock may have an edge, and the solver chooses in every step
which of the two have one."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import DomainRenamer, EnableInserter, Module, Mux, Signal, Value
from amaranth.lib.cdc import FFSynchronizer

from verification.formal.bench import Bench


def clocked(part: Any, module: Module, **edges: Value) -> Any:
    """Returns the opened part with the clock of the bench for those of its domains, by name with the steps in which
    each has its edge."""
    stepped = EnableInserter(edges)(module)
    part.elaborate = lambda platform: DomainRenamer(dict.fromkeys(edges, "sync"))(stepped)
    return part


def synchroniser(
    b: Bench, part: FFSynchronizer, name: str, edge: Value, moves: Value, following: Value, init: int = 0
) -> list[Signal]:
    """Puts one in its place whose first stage, where both clocks have their edge, takes of every bit what the signal
    was or what it becomes, as the solver likes.

    Args:
        part: of an opened part, of the default number of stages.
        edge: that of the side that sees the signal.
        moves: the other side has its edge.
        following: what the signal becomes with it.
        init: of the stages.

    Returns:
        Its two stages.
    """
    signal: Signal = part.i
    new = b.free(len(signal), f"{name}_new")
    stages = [Signal(len(signal), name=f"{name}_stage{n}", init=init) for n in range(2)]
    with b.m.If(edge):
        caught = Mux(moves, (signal & ~new) | (following & new), signal)
        b.m.d.sync += [stages[0].eq(caught), stages[1].eq(stages[0])]
    b.m.d.comb += part.o.eq(stages[1])
    part.elaborate = lambda platform: Module()
    return stages
