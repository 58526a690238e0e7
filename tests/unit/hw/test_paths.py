"""AXI: no output of the NPU depends on an input of the same cycle."""

from __future__ import annotations

from typing import Any

import pytest
from amaranth.hdl import Module, Signal
from amaranth.hdl._ir import build_netlist
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw.connections import design
from tilewright.hw.host.registers import Registers
from tilewright.hw.npu import Npu
from tilewright.isa.config import PRESETS
from verification.programs.equality import VARIANTS


def paths(component: wiring.Component) -> set[tuple[str, str]]:
    """Pairs of an output and an input that leads to it without a register."""
    netlist: Any = build_netlist(design(component, "top"))
    top = netlist.top
    inputs = {bit: name for name, (start, width) in top.ports_i.items() for bit in range(start, start + width)}
    found: set[tuple[str, str]] = set()
    for output, value in top.ports_o.items():
        seen = set(value)
        waiting = list(value)
        while waiting:
            net = waiting.pop()
            if net.is_const:
                continue
            if net.cell == 0 and inputs[net.bit] == "clk":  # of a register
                continue
            if net.cell == 0:
                found.add((output, inputs[net.bit]))
                continue
            more = {before for before, _ in netlist.cells[net.cell].comb_edges_to(net.bit)} - seen
            seen |= more
            waiting += more
    return found


class Example(wiring.Component):
    """One path of each kind: none, through logic, and beside a register."""

    def __init__(self) -> None:
        super().__init__({"a": In(4), "b": In(1), "kept": Out(4), "mixed": Out(4)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        middle = Signal(4)
        m.d.sync += self.kept.eq(self.a)
        m.d.comb += middle.eq(self.a + self.b)
        with m.If(self.kept[0]):
            m.d.comb += self.mixed.eq(middle)
        return m


def test_paths_are_found() -> None:
    assert paths(Example()) == {("mixed", "a"), ("mixed", "b")}


def test_registers() -> None:
    """The bus alone: what the registers show inside follows what is written in the same cycle."""
    assert {pair for pair in paths(Registers(PRESETS["nano"])) if "axil" in pair[0] and "axil" in pair[1]} == set()


@pytest.mark.slow
@pytest.mark.parametrize("config", [PRESETS["nano"], VARIANTS["serial"]], ids=lambda config: config.name)
def test_npu(config: Any) -> None:
    """The NPU has no combinational path but those of the debug strobes, which are no part of the bus."""
    assert {(output, other) for output, other in paths(Npu(config)) if not output.startswith("dbg_")} == set()
