"""Room where connections get in each other's way: LUTs that do nothing but take the place of others, beside the cells
of a placement.

An FPGA that is nearly full has as many cells in every tile. Where their wires come from afar (control, queues) more
are wanted than there are, while elsewhere (lanes, products) many are left. nextpnr places by cells alone, so it is
given more of them where the router found too few wires, and places once more.
"""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from fpga.netlist import Module

Map = npt.NDArray[np.float64]
Tile = tuple[int, int]
#: Distance, in tiles, over which the conflicts of a tile are spread, because room nearby helps too.
AROUND = 7
#: LUTs of room in a tile, at most: as many as it has.
MOST = 8.0
#: Cells of yosys' netlist: LUTs, which room is made of; multiplexers, whose inputs are wires from one LUT only.
LUT, WIDE = "LUT4", ("PFUMX", "L6MUX21")
_STEPS = 60


def conflicts_of(heatmap: Path) -> Map:
    """What nextpnr wrote: for each tile, the connections that want wires that others want.

    Returns:
        float64 [columns, rows].
    """
    with heatmap.open(newline="", encoding="utf-8") as file:
        rows = [[float(value) for value in row if value.strip()] for row in csv.reader(file)]
    return np.array([row for row in rows if row])


def shares(conflicts: Map, placed: npt.NDArray[np.bool_], count: int) -> Map:
    """LUTs of room for each tile, `count` in all: in proportion to the conflicts around it, at most MOST.

    Parameters:
        conflicts: of each tile.
        placed: tiles that can have room.

    Returns:
        float64, of the shape of `conflicts`.
    """
    around = np.where(placed, ndimage.uniform_filter(conflicts, AROUND, mode="constant"), 0)
    low, high = 0.0, MOST / max(float(around[around > 0].min(initial=1)), 1e-9)
    for _ in range(_STEPS):
        factor = (low + high) / 2
        low, high = (low, factor) if np.minimum(factor * around, MOST).sum() > count else (factor, high)
    return np.asarray(np.minimum(low * around, MOST))


def add_room(module: Module, tiles: dict[str, Tile], conflicts: Map, count: int) -> int:
    """Adds about `count` LUTs to a netlist, in place: each reads the output of a LUT, so that it is placed beside that.

    Parameters:
        module: the netlist that was placed.
        tiles: column and row of its cells.
        conflicts: of each tile.

    Returns:
        How many it added; none where there are no conflicts.
    """
    cells = module["cells"]
    tied = {bit for c in cells.values() if c["type"] in WIDE for bits in c["connections"].values() for bit in bits}
    hosts: dict[Tile, list[str]] = {}
    for name in sorted(tiles):
        if name in cells and cells[name]["type"] == LUT and cells[name]["connections"]["Z"][0] not in tied:
            hosts.setdefault(tiles[name], []).append(name)
    placed = np.zeros(conflicts.shape, dtype=bool)
    for tile in hosts:
        placed[tile] = True
    room = shares(conflicts, placed, count)
    added, due = Counter[str](), 0.0
    for tile in sorted(hosts):
        due += room[tile]
        for n in range(round(due)):
            added[hosts[tile][n % len(hosts[tile])]] += 1
        due -= round(due)
    for host, times in added.items():
        for n in range(times):
            cells[f"room${n}${host}"] = {
                "hide_name": 1,
                "type": LUT,
                "parameters": {"INIT": "0" * 16},
                "attributes": {},
                "port_directions": {"A": "input"},
                "connections": {"A": cells[host]["connections"]["Z"]},  # nextpnr brings constants to others by wires
            }
    return added.total()
