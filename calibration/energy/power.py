"""Energy of a netlist's toggles, by the tables of a Liberty library.

    energy = sum over nets     toggles · (C V² / 2 + internal energy of the driver and of the inputs that it reaches)
           + sum over clocks   cycles in which it runs · (C V² + internal energy of the clock pins, both edges)
           + leakage · time

C of a net is the capacitance of the pins it reaches and of its wires. The internal energy of a cell is looked up with
the load of its output and the transition time of its inputs, each the slowest that static analysis finds there, as a
mean over rise and fall and over the inputs that can cause it.

Wires, which the library does not have, are estimated (`wire_pf`); a clock gate is a LATCH and an AND2X2. Memories are
in `tilewright.energy.memories`. Buffers of a clock tree and pads are left out.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calibration.energy.liberty import Arc, Library
from calibration.energy.netlist import Netlist
from calibration.energy.simulation import Activity
from tilewright.errors import UsageError

#: Transition times in ns of the clock and of inputs of the design.
CLOCK_NS, INPUT_NS = 0.2, 0.1
#: Metal 2 of osu018_stdcells.lef, 0.3 µm wide: 0.3 · CPERSQDIST + 2 · EDGECAPACITANCE, in pF/µm.
WIRE_PF_PER_UM = 0.3 * 1.9e-5 + 2 * 6.0e-5
#: Share of the placed area that cells fill, and Rent's exponent of logic (Landman and Russo 1971: 0.57 to 0.75).
UTILISATION, RENT = 0.7, 0.65
#: Cells that a clock gate is made of.
_LATCH, _AND = "LATCH", "AND2X2"


def wire_pf(cells: int, area: float) -> float:
    """Returns the capacitance in pF of a wire from a driver to one input, by Donath's mean length (IEEE Trans. CAS
    26(4), 1979) among `cells` placed cells of a total `area` in µm²."""
    n, p = max(4, cells), RENT
    long = 7 * (n ** (p - 0.5) - 1) / (4 ** (p - 0.5) - 1) - (1 - n ** (p - 1.5)) / (1 - 4 ** (p - 1.5))
    pitches = 2 / 9 * long * (1 - 4 ** (p - 1)) / (1 - n ** (p - 1))
    return float(WIRE_PF_PER_UM * pitches * math.sqrt(area / cells / UTILISATION))


@dataclass(frozen=True)
class Costs:
    """Energy of a netlist's events in pJ.

    Attributes:
        net: pJ of a toggle of each net, float64 [nets].
        clock: pJ of a clock cycle in registers without a clock gate and in the clock gates themselves.
        gated: pJ of a cycle in which a clock gate is open, float64 [clock gates].
        leakage_nw: leakage of all cells in nW.
    """

    net: np.ndarray
    clock: float
    gated: np.ndarray
    leakage_nw: float

    def energy(self, activity: Activity, clock_mhz: float) -> dict[str, float]:
        """Returns the energy of a run in pJ, by cause."""
        return {
            "nets and gates": float(activity.toggles @ self.net),
            "clock": activity.cycles * self.clock + float(activity.enabled @ self.gated),
            "leakage": self.leakage_nw * activity.cycles / clock_mhz * 1e-3,  # nW · µs = fJ
        }


def costs(netlist: Netlist, library: Library, *, wires: bool = True) -> Costs:
    """Returns the energy of toggles and cycles; without `wires` the capacitance of wires is left out.

    Raises:
        UsageError: there are clock gates, and the library lacks what they are made of.
    """
    cells = [library.cells[name] for name in netlist.cells]
    v2 = library.volts**2
    logic = len(netlist.gate_cell) + len(netlist.flop_cell)
    wire = wire_pf(logic, netlist.area(library)) if wires and logic else 0.0
    load = np.zeros(netlist.nets)
    for number, cell in enumerate(cells):
        mine = netlist.gate_inputs[netlist.gate_cell == number]
        for n, pin in enumerate(cell.inputs):
            if len(mine):
                np.add.at(load, mine[:, n], cell.pins[pin].capacitance + wire)
        if cell.next_state:
            d = netlist.flop_d[netlist.flop_cell == number]
            np.add.at(load, d, cell.pins[cell.next_state].capacitance + wire)
    # Inputs of memories and outputs of the design: the wire only.
    for memory in netlist.memories:
        for address, _, enable, _ in memory.reads:
            np.add.at(load, [*address, enable], wire)
        for address, data, enables in memory.writes:
            np.add.at(load, [*address, *data, *enables], wire)
    latch, gate = library.cells.get(_LATCH), library.cells.get(_AND)
    if latch is not None and "D" in latch.pins:
        np.add.at(load, netlist.gate_enable, latch.pins["D"].capacitance + wire)

    net = load * v2 / 2
    slew = np.full(netlist.nets, INPUT_NS)

    @functools.cache
    def driven(cell: int, output: str, pf: float, ns: float) -> tuple[float, float]:
        """Returns the internal energy in pJ and the transition time in ns of an output."""
        pin = cells[cell].pins[output]
        slowest = max((max(t.rise.at(ns, pf), t.fall.at(ns, pf)) for t in pin.transition), default=INPUT_NS)
        return _mean(pin.energy, ns, pf), slowest

    clock = 0.0
    gated_pins = np.zeros(len(netlist.gate_enable))  # pF behind every clock gate
    gated_energy = np.zeros(len(netlist.gate_enable))
    for number, cell in enumerate(cells):
        if not cell.next_state:
            continue
        clock_pin = next(p for p in cell.pins.values() if p.clock)
        edges = 2 * _mean(clock_pin.energy, CLOCK_NS)
        capacitance = clock_pin.capacitance + wire
        clocks = netlist.flop_clock[netlist.flop_cell == number]
        clock += float((clocks < 0).sum()) * (edges + capacitance * v2)
        np.add.at(gated_pins, clocks[clocks >= 0], capacitance)
        np.add.at(gated_energy, clocks[clocks >= 0], edges)
        for q in netlist.flop_q[netlist.flop_cell == number]:
            pj, slew[q] = driven(number, cell.outputs[0], round(float(load[q]), 3), CLOCK_NS)
            net[q] += pj
    for at in netlist.order[netlist.order >= 0]:
        number, output = int(netlist.gate_cell[at]), int(netlist.gate_output[at])
        cell = cells[number]
        ns = float(slew[netlist.gate_inputs[at, : len(cell.inputs)]].max())
        pj, slew[output] = driven(number, cell.outputs[0], round(float(load[output]), 3), round(ns, 2))
        net[output] += pj
    for number, cell in enumerate(cells):  # what an edge costs an input whether or not the output follows
        if cell.next_state:
            arcs = cell.pins[cell.next_state].energy
            d = netlist.flop_d[netlist.flop_cell == number]
            np.add.at(net, d, [_mean(arcs, float(slew[i])) for i in d])

    leakage = sum(
        int((kinds == number).sum()) * cell.leakage_nw
        for number, cell in enumerate(cells)
        for kinds in (netlist.gate_cell, netlist.flop_cell)
    )
    if len(netlist.gate_enable):
        if latch is None or gate is None or not {"D", "CLK"} <= {*latch.pins} or not {"A", "Y"} <= {*gate.pins}:
            raise UsageError(f"{library.name} has no {_LATCH} and {_AND} with their pins to make clock gates of")
        pins = latch.pins["CLK"].capacitance + gate.pins["A"].capacitance + 2 * wire
        clock += len(netlist.gate_enable) * (2 * _mean(latch.pins["CLK"].energy, CLOCK_NS) + pins * v2)
        gated_energy += gated_pins * v2
        gated_energy += [2 * _mean(gate.pins["Y"].energy, CLOCK_NS, pf) for pf in gated_pins]
        leakage += len(netlist.gate_enable) * (latch.leakage_nw + gate.leakage_nw)
    return Costs(net, clock, gated_energy, leakage)


def _mean(arcs: Sequence[Arc], *point: float) -> float:
    """Returns the mean over the inputs that can cause an edge, and over rise and fall."""
    return sum(arc.mean(*point) for arc in arcs) / len(arcs) if arcs else 0.0
