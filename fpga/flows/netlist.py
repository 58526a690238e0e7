"""Netlists of yosys (JSON), changed between synthesis and placement."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

#: A module of the JSON, a cell of it, and a bit of a net: a number, or a constant.
Module = dict[str, Any]
Cell = dict[str, Any]
Bit = int | str


@contextmanager
def changed(path: Path, top: str) -> Iterator[Module]:
    """Reads the module `top` of a netlist in a file, and writes it at the end of the block."""
    netlist = json.loads(path.read_text(encoding="utf-8"))
    yield netlist["modules"][top]
    path.write_text(json.dumps(netlist), encoding="utf-8")


def unused(module: Module) -> Iterator[int]:
    """Numbers of nets that the module does not use yet, one after the other."""
    bits = (bit for cell in module["cells"].values() for ends in cell["connections"].values() for bit in ends)
    return count(1 + max(bit for bit in bits if isinstance(bit, int)))


def new_cell(kind: str, outputs: tuple[str, ...], parameters: dict[str, str], **connections: list[Bit]) -> Cell:
    """A new cell of a module."""
    return {
        "hide_name": 1,
        "type": kind,
        "parameters": parameters,
        "attributes": {},
        "port_directions": {port: "output" if port in outputs else "input" for port in connections},
        "connections": connections,
    }


def loads(module: Module) -> Counter[Bit]:
    """Readers of every bit: the number of inputs of cells and outputs of the module."""
    found: Counter[Bit] = Counter()
    for cell in module["cells"].values():
        for port, bits in cell["connections"].items():
            if cell["port_directions"][port] != "output":
                found.update(bits)
    for port in module["ports"].values():
        if port["direction"] != "input":
            found.update(port["bits"])
    return found
