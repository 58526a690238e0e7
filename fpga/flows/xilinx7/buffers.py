"""Inserts a LUT behind every output of PS7, where the wires of PS7 come into the fabric.

nextpnr looks for a way inside the box of a net's ends. It takes PS7 for a place of one tile, but wires come out of it
as many as fifty rows away, and pass tiles in between: outside of that box, unless a sink lies beyond them. Then it
searches all of the box, every wire, for each connection and each pass, before it looks further. With a LUT beyond all
of them the box holds every way out of PS7, and other connections begin at a LUT.
"""

from __future__ import annotations

from pathlib import Path

from tilewright.fpga.flows.netlist import Bit, Cell, Module, loads

#: Script for nextpnr before placement.
PLACEMENT = Path(__file__).resolve().parent / "nextpnr" / "place_buffers.py"


def add_buffers(module: Module) -> int:
    """Inserts a LUT behind every output of PS7 that is read, but for clocks, and one more before a flip-flop behind it,
    which nextpnr would move with the first. Changes a netlist of yosys before placement.

    Returns:
        The number of LUTs.
    """
    cells = module["cells"]
    clocks: set[Bit] = {bit for cell in cells.values() if cell["type"] == "BUFG" for bit in cell["connections"]["I"]}
    read = loads(module)
    fresh = 1 + max(bit for net in module["netnames"].values() for bit in net["bits"] if isinstance(bit, int))
    made: dict[str, Cell] = {}
    behind: set[Bit] = set()
    for cell in [cell for cell in cells.values() if cell["type"] == "PS7"]:
        for port, bits in cell["connections"].items():
            for at, bit in enumerate(bits):
                if cell["port_directions"][port] == "output" and bit in read and bit not in clocks:
                    made[f"ps7_buffer_{port}_{at}"] = _lut(fresh, bit)
                    behind.add(bit)
                    bits[at] = fresh
                    fresh += 1
    for name, cell in list(cells.items()):
        if cell["type"].startswith("FD") and (bit := cell["connections"]["D"][0]) in behind:
            made[f"ps7_buffer_{name}"] = _lut(bit, fresh)
            cell["connections"]["D"] = [fresh]
            fresh += 1
    cells.update(made)
    return len(made)


def _lut(source: Bit, target: Bit) -> Cell:
    return {
        "hide_name": 0,
        "type": "LUT1",
        "parameters": {"INIT": "10"},
        "attributes": {},
        "port_directions": {"I0": "input", "O": "output"},
        "connections": {"I0": [source], "O": [target]},
    }
