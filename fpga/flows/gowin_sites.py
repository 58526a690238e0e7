"""Counts the sites of a netlist on a Gowin FPGA, as nextpnr places it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from tilewright.fpga.cells import GOWIN

#: Pins, with the ports that have a flip-flop for nextpnr; those that only drive (TBUF) have none.
PINS = {"IBUF": ("O",), "OBUF": ("I",), "IOBUF": ("O", "I", "OEN")}
#: Outputs that reach the flip-flop of their own site, by the beginning of the cell's name.
DIRECT = {"LUT": "F", "ALU": "SUM"}


def lut_sites(cells: Mapping[str, Mapping[str, Any]]) -> int:
    """A lower bound of the LUT sites of a mapped netlist.

    A site holds a LUT, or a bit of a carry chain, and a flip-flop that takes the output of that. A flip-flop with any
    other input needs the LUT as a wire, unless it is the register of a pin. A carry chain begins with a site that makes
    its first carry, ends with one more where something else uses the last, and is filled up to an even number. A
    distributed RAM takes a tile of 8 sites.

    Parameters:
        cells: cells of the top module, by name, in Yosys' JSON.
    """
    users: Counter[Any] = Counter()  # by bit: a number, or a letter for a constant
    drivers: dict[Any, str] = {}  # the cell in whose site a flip-flop with this input can be
    alus = {name: cell["connections"] for name, cell in cells.items() if cell["type"] == "ALU"}
    for name, cell in cells.items():
        direct = DIRECT.get(cell["type"][:3])
        for port, bits in cell["connections"].items():
            if cell["port_directions"][port] == "input":
                users.update(bits)
            elif port == direct:
                drivers[bits[0]] = name

    sites = sum(GOWIN.luts.get(cell["type"], 0) for name, cell in cells.items() if name not in alus)
    pins = in_pins(cells)
    flip_flops = [c["connections"] for name, c in cells.items() if c["type"].startswith("DFF") and name not in pins]
    inputs = Counter(drivers.get(connections["D"][0]) for connections in flip_flops)
    sites += sum(count - (driver is not None) for driver, count in inputs.items())

    made = {bits[0] for alu in alus.values() if (bits := alu["COUT"])}
    following = {alu["CIN"][0]: alu for alu in alus.values()}

    def continues_chain(carry: object) -> bool:
        return carry in made and carry in following and users[carry] == 1

    for alu in alus.values():
        if continues_chain(alu["CIN"][0]):
            continue  # not the first of its chain
        length = 2
        while (carry := (alu["COUT"] or [None])[0]) is not None and continues_chain(carry):
            alu, length = following[carry], length + 1
        length += users[carry] > 0
        sites += length + length % 2
    return sites


def in_pins(cells: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Flip-flops that nextpnr puts into pins, with the options of the flow: the only reader of an input, or one whose
    output only one pin reads.
    """
    seen: dict[Any, list[str]] = defaultdict(list)  # by bit, the cells that read it; "" is a pin
    inputs = set()
    for name, cell in cells.items():
        pin = PINS.get(cell["type"], ())
        for port, bits in cell["connections"].items():
            if cell["port_directions"][port] != "output":
                for bit in bits:
                    seen[bit].append("" if port in pin else name)
            elif port in pin:
                inputs.add(bits[0])
    flip_flops = [(name, c["connections"]) for name, c in cells.items() if c["type"].startswith("DFF")]
    return {
        name
        for name, pins in flip_flops
        if (pins["D"][0] in inputs and seen[pins["D"][0]] == [name]) or seen[pins["Q"][0]] == [""]
    }
