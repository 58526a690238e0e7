"""Netlists of yosys (JSON): read by everybody who reads one, and changed between synthesis and placement."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

#: A module of the JSON, a cell of it, and a bit of a net: a number, or a constant.
Module = dict[str, Any]
Cell = dict[str, Any]
Bit = int | str


def read_module(text: str | bytes, top: str) -> Module:
    """Returns the module `top` of what yosys' `write_json` has written. Raises ValueError or KeyError for any other."""
    module: Module = json.loads(text)["modules"][top]
    return module


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


def text(cell: Cell, name: str, default: str) -> str:
    """Returns a parameter that is a word."""
    return str(cell["parameters"].get(name, default)).strip()


def number(cell: Cell, name: str, default: int = 0) -> int:
    """Returns a parameter that yosys writes in binary; bits that are not known are 0."""
    value = cell["parameters"].get(name)
    return default if value is None else int(str(value).replace("x", "0"), 2)


def named(module: Mapping[str, Any]) -> Iterator[tuple[str, Bit]]:
    """Yields all names of bits of a netlist with the bit, those of the sources first, the short ones before the long
    ones."""
    for name, net in sorted(module["netnames"].items(), key=lambda item: (item[1]["hide_name"], len(item[0]))):
        for n, bit in enumerate(net["bits"]):
            yield f"{name}[{n}]", bit


def starts(module: Mapping[str, Any]) -> dict[Bit, str]:
    """Returns initial values of nets, "0" or "1" by bit, where the netlist has them."""
    values = ((net["bits"], net.get("attributes", {}).get("init", "")[::-1]) for net in module["netnames"].values())
    return {bit: value for bits, init in values for bit, value in zip(bits, init) if value in ("0", "1")}


@dataclass(frozen=True)
class ReadPort:
    """A port that reads a memory; `enable` and `clock` are None if it reads without a clock."""

    address: list[Bit]
    data: list[Bit]
    enable: Bit | None
    clock: Bit | None


@dataclass(frozen=True)
class WritePort:
    """A port that writes a memory with a clock, a bit of a row where its enable is 1."""

    address: list[Bit]
    data: list[Bit]
    enable: list[Bit]
    clock: Bit


@dataclass(frozen=True)
class Memory:
    """A memory, which is a cell `$mem_v2`.

    Attributes:
        name: of the memory.
        width, size: bits of a row, and rows.
        start: what it holds at first, "0", "1" or "x" for each bit of all rows.
    """

    name: str
    width: int
    size: int
    reads: tuple[ReadPort, ...]
    writes: tuple[WritePort, ...]
    start: str


def memory_of(cell: Cell) -> Memory:
    """Returns the memory that a cell is.

    Raises:
        ValueError: it has what Amaranth makes none of: rows from another number on than 0, ports of several rows,
            transparent ones, ones that reset what they have read, or writes without a clock.
    """
    pins, name = cell["connections"], cell["parameters"]["MEMID"].removeprefix("\\")
    width, bits, writes = (number(cell, key) for key in ("WIDTH", "ABITS", "WR_PORTS"))
    odd = ("RD_TRANSPARENCY_MASK", "WR_WIDE_CONTINUATION", "RD_WIDE_CONTINUATION", "OFFSET")
    resets = {*pins["RD_ARST"], *pins["RD_SRST"]} - {"0", "x"}
    if (
        any(number(cell, key) for key in odd)
        or resets
        or (writes and number(cell, "WR_CLK_ENABLE") != (1 << writes) - 1)
    ):
        raise ValueError(f"memory {name} has ports that are not known here")

    def parts(key: str, size: int) -> list[list[Bit]]:
        return [pins[key][at : at + size] for at in range(0, len(pins[key]), size)]

    clocked = number(cell, "RD_CLK_ENABLE")
    reads = [
        ReadPort(address, data, *((enable, clock) if clocked >> n & 1 else (None, None)))
        for n, (address, data, enable, clock) in enumerate(
            zip(parts("RD_ADDR", bits), parts("RD_DATA", width), pins["RD_EN"], pins["RD_CLK"], strict=True)
        )
    ]
    written = zip(parts("WR_ADDR", bits), parts("WR_DATA", width), parts("WR_EN", width), pins["WR_CLK"], strict=True)
    start = cell["parameters"]["INIT"][::-1]
    return Memory(name, width, number(cell, "SIZE"), tuple(reads), tuple(WritePort(*port) for port in written), start)
