"""Moves registers in front of a product into its DSP48E1, in the netlist from yosys to nextpnr.

Yosys does so where every bit of the factor has a register. It removes those of bits that are always 0, as the factor
of two weights has them (`tilewright.hw.gemm.array.packed`), and then moves none.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.fpga.flows.netlist import Bit, Cell, Module, loads, new_cell, number, unused

BLOCK, REGISTER, INVERTER = "DSP48E1", "FDRE", "INV"
OUTPUTS = {REGISTER: "Q", INVERTER: "O"}


def move_factors(module: Module) -> int:
    """Moves registers of the factor A into blocks, in place. Each bit must be 0, or come from a register without reset,
    or from its inverse; be 0 at the start, as the register of the block is; and all have one clock and one enable,
    whose wires are what this saves most: registers without an enable stay. Returns the number of registers that nobody
    reads any more, which are removed.
    """
    cells = module["cells"]
    drivers = {c["connections"][OUTPUTS[c["type"]]][0]: c for c in cells.values() if c["type"] in OUTPUTS}
    fresh = unused(module)
    inverses: dict[Bit, Bit] = {}
    for block in [cell for cell in cells.values() if cell["type"] == BLOCK]:
        pins, moved, controls = block["connections"], [], set()
        if number(block, "AREG") or block["parameters"]["A_INPUT"] != "DIRECT":
            continue
        for bit in pins["A"]:
            if bit == "0":
                moved.append(bit)
            elif found := _register(bit, drivers):
                before = found["connections"]["D"][0]
                if drivers[bit]["type"] == INVERTER:
                    if before not in inverses:
                        inverses[before] = next(fresh)
                    before = inverses[before]
                moved.append(before)
                controls.add((found["connections"]["C"][0], found["connections"]["CE"][0]))
        if len(moved) < len(pins["A"]) or len(controls) != 1:
            continue
        ((clock, enable),) = controls
        if clock == pins["CLK"][0] and enable != "1":
            pins |= {"A": moved, "CEA2": [enable], "RSTA": ["0"]}
            block["port_directions"] |= {"CEA2": "input", "RSTA": "input"}
            block["parameters"] |= dict.fromkeys(("AREG", "ACASCREG"), f"{1:032b}")
    for n, (before, after) in enumerate(inverses.items()):
        cells[f"factor_inverter{n}"] = new_cell(INVERTER, ("O",), {}, I=[before], O=[after])
    there = _count(module)
    for kind in (INVERTER, REGISTER):  # what is read only by an inverter that is gone goes, too
        read = loads(module)
        for name in [n for n, c in cells.items() if c["type"] == kind and not read[c["connections"][OUTPUTS[kind]][0]]]:
            del cells[name]
    return there - _count(module)


def _register(bit: Bit, drivers: Mapping[Bit, Cell]) -> Cell | None:
    """The register without reset that a bit, which is 0 at the start, or its inverse comes from."""
    cell = drivers.get(bit)
    if inverted := cell is not None and cell["type"] == INVERTER:
        cell = drivers.get(cell["connections"]["I"][0])
    plain = cell is not None and cell["type"] == REGISTER and cell["connections"]["R"] == ["0"]
    return cell if cell and plain and number(cell, "INIT") == inverted else None


def _count(module: Module) -> int:
    return sum(cell["type"] == REGISTER for cell in module["cells"].values())
