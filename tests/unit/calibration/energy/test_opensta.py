"""The power formula beside OpenSTA's `report_power`, on a multiplier with an accumulator.

OpenSTA 2.0.17, which Debian has, adds the energies of rise and fall where one edge is meant, and weighs every input of
a gate with one half whatever their number: its internal power is taken by these factors to what the tables say. Powers
of nets and leakage need none.
"""

from __future__ import annotations

import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from amaranth.hdl import Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from calibration.energy import liberty, netlist, power
from calibration.energy.netlist import Netlist
from calibration.energy.simulation import Activity
from tests.common import needs
from tilewright.errors import UsageError
from tilewright.hw.verilog import component_rtlil

_ACTIVITY, _MHZ, _CYCLES = 0.3, 100, 10_000


class _Mac(wiring.Component):
    def __init__(self) -> None:
        super().__init__({"a": In(signed(8)), "b": In(signed(8)), "y": Out(signed(20))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        a, b = Signal(signed(8)), Signal(signed(8))
        m.d.sync += [a.eq(self.a), b.eq(self.b), self.y.eq(self.y + a * b)]
        return m


def _verilog(gates: Netlist, library: liberty.Library) -> str:
    """The netlist with gates g0, g1, ... and registers f0, f1, ..."""
    names = {netlist.ZERO: "1'b0", netlist.ONE: "1'b1"} | {n: f"n{n}" for n in range(2, gates.nets)}
    bits = [(f"{port}_{i}", net, port == "y") for port, nets in gates.ports.items() for i, net in enumerate(nets)]
    lines = [f"module mac({', '.join(name for name, _, _ in bits)});"]
    lines += [f"{'output' if out else 'input'} {name};" for name, _, out in bits]
    lines += [f"wire n{n};" for n in range(2, gates.nets)]
    lines += [f"assign {name} = n{net};" if out else f"assign n{net} = {name};" for name, net, out in bits]
    for g, kind in enumerate(gates.gate_cell):
        cell = library.cells[gates.cells[kind]]
        pins = [f".{pin}({names[int(net)]})" for pin, net in zip(cell.inputs, gates.gate_inputs[g])]
        lines.append(f"{cell.name} g{g}({', '.join(pins)}, .{cell.outputs[0]}(n{gates.gate_output[g]}));")
    clock = gates.ports["clk"][0]
    for f, kind in enumerate(gates.flop_cell):
        pins = [f".CLK(n{clock})", f".D({names[int(gates.flop_d[f])]})", f".Q(n{gates.flop_q[f]})"]
        lines.append(f"{gates.cells[kind]} f{f}({', '.join(pins)});")
    return "\n".join([*lines, "endmodule\n"])


@pytest.mark.slow
def test_power_is_opensta_s(tmp_path: Path) -> None:
    if shutil.which("sta") is None:
        needs.skip(needs.OPENSTA, "sta is missing")
    try:
        library = liberty.load()
    except UsageError:
        needs.skip(needs.LIBERTY)
    gates = netlist.synthesise(component_rtlil(_Mac(), "mac"), "mac", library, "mac")
    (tmp_path / "mac.v").write_text(_verilog(gates, library), encoding="utf-8")
    script = f"""
        read_liberty {library.path}
        read_verilog {tmp_path}/mac.v
        link_design mac
        create_clock -name clk -period {1000 / _MHZ} {{clk_0}}
        set_input_transition {power.CLOCK_NS} [all_inputs]
        set_power_activity -global -activity {_ACTIVITY}
        report_power -instances [get_cells *] -digits 8
    """
    (tmp_path / "power.tcl").write_text(script, encoding="utf-8")
    said = subprocess.run(
        ["sta", "-no_splash", "-exit", "power.tcl"], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    theirs: dict[str, float] = defaultdict(float)
    for line in said.splitlines():
        words = line.split()
        if len(words) == 5 and words[4][0] in "fg" and words[4][1:].isdigit():
            internal, switching, leakage = map(float, words[:3])
            number = int(words[4][1:])
            inputs = len(library.cells[gates.cells[gates.gate_cell[number]]].inputs) if words[4][0] == "g" else 1
            theirs[f"{words[4][0]} internal"] += internal / 2 / (inputs / 2 if inputs > 1 else 1)
            theirs["switching"] += switching
            theirs["leakage"] += leakage
    toggles = np.full(gates.nets, _ACTIVITY * _CYCLES)
    toggles[:2] = 0
    none = np.zeros(0)
    cost = power.costs(gates, library, wires=False)
    watts = 1e-12 * _MHZ * 1e6 / _CYCLES
    energy = cost.energy(Activity(_CYCLES, toggles, none, none), _MHZ)
    # Inputs of the design have no driver there, and the clock's net is not switched: both are taken out here.
    load = np.zeros(gates.nets)
    for kind in range(len(gates.cells)):
        cell = library.cells[gates.cells[kind]]
        for n, pin in enumerate([] if cell.next_state else cell.inputs):
            np.add.at(load, gates.gate_inputs[gates.gate_cell == kind, n], cell.pins[pin].capacitance)
        if cell.next_state:
            np.add.at(load, gates.flop_d[gates.flop_cell == kind], cell.pins["D"].capacitance)
    driven = np.concatenate([gates.gate_output, gates.flop_q])
    switching = library.volts**2 / 2 * load
    assert theirs["switching"] == pytest.approx(float(switching[driven].sum()) * _ACTIVITY * _CYCLES * watts, rel=0.03)
    assert theirs["leakage"] == pytest.approx(energy["leakage"] * watts, rel=1e-3)
    clock_pins = len(gates.flop_cell) * library.cells["DFFPOSX1"].pins["CLK"].capacitance * library.volts**2
    internal = float((cost.net - switching) @ toggles) + energy["clock"] - clock_pins * _CYCLES
    assert internal * watts == pytest.approx(theirs["f internal"] + theirs["g internal"], rel=0.10)
