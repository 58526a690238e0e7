"""Room where wires are many: LUTs that do nothing but take the place of others, beside the cells of a placement.

An FPGA that is nearly full has as many cells in every tile. Where most of their wires come from afar (control, queues)
more wires pass than there are, while elsewhere (lanes, products) many are left. nextpnr places by cells alone, so it
is given more of them there, and places once more.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from fpga.netlist import Bit, Module

Map = npt.NDArray[np.float64]
Tile = tuple[int, int]
#: Nets of more cells are spread by nextpnr's own means, or reach every tile anyway.
WIDEST = 1000
#: Tiles around one over which wires are averaged: those a connection goes around easily.
AROUND = 5
#: Steps that find the bound between few and many wires.
_STEPS = 40
#: What it is in the netlist of yosys; what nextpnr makes of it, and of every other cell that takes such a site.
LUT, SITE = "LUT4", "TRELLIS_COMB"


def demand(placed: Module, tiles: dict[str, Tile], size: Tile) -> Map:
    """Wires in each tile: those of nets that end in it, and its share of those that pass.

    A net takes as many wires as half the way around its cells, anywhere within (RUDY: Spindler, Johannes, DATE 2007).

    Parameters:
        placed: the netlist nextpnr wrote.
        tiles: column and row of each cell.
        size: columns and rows.

    Returns:
        float64 [columns, rows].
    """
    ends: dict[Bit, set[Tile]] = {}
    for name, tile in tiles.items():
        for bits in placed["cells"][name]["connections"].values():
            for bit in bits:
                if isinstance(bit, int):
                    ends.setdefault(bit, set()).add(tile)
    wires = np.zeros(size)
    passing = np.zeros((size[0] + 1, size[1] + 1))  # differences along both axes
    for at in ends.values():
        if not 2 <= len(at) <= WIDEST:
            continue
        for tile in at:
            wires[tile] += 1
        (x0, y0), (x1, y1) = (tuple(f(t[axis] for t in at) for axis in (0, 1)) for f in (min, max))
        share = (x1 - x0 + y1 - y0) / ((x1 - x0 + 1) * (y1 - y0 + 1))
        for x, y, sign in ((x0, y0, 1), (x1 + 1, y0, -1), (x0, y1 + 1, -1), (x1 + 1, y1 + 1, 1)):
            passing[x, y] += sign * share
    return np.asarray(wires + passing.cumsum(axis=0).cumsum(axis=1)[: size[0], : size[1]])


def shares(wires: Map, luts: Map, count: int) -> Map:
    """LUTs of room for each tile, `count` in all: so many that wires per LUT are the same wherever there is room.

    Parameters:
        wires: of each tile.
        luts: placed in each tile, and cells of the same kind of site.

    Returns:
        float64, of the shape of `wires`.
    """
    low, high = 0.0, float((wires / np.maximum(luts, 1)).max(initial=0.0))
    for _ in range(_STEPS):
        bound = (low + high) / 2
        room = np.where(luts > 0, np.maximum(wires / max(bound, 1e-9) - luts, 0), 0)
        low, high = (bound, high) if room.sum() > count else (low, bound)
    return np.asarray(np.where(luts > 0, np.maximum(wires / max(high, 1e-9) - luts, 0), 0))


def add_room(module: Module, placed: Module, tiles: dict[str, Tile], count: int) -> int:
    """Adds about `count` LUTs to a netlist, in place: each reads the output of a LUT, so that it is placed beside that.

    Parameters:
        module: the netlist that was placed.
        placed: what nextpnr wrote.
        tiles: of the cells of `placed`.
        count: LUTs there is room for.

    Returns:
        How many it added.
    """
    cells = module["cells"]
    size = (1 + max(x for x, _ in tiles.values()), 1 + max(y for _, y in tiles.values()))
    hosts: dict[Tile, list[str]] = {}
    for name in sorted(tiles):
        if name in cells and cells[name]["type"] == LUT:
            hosts.setdefault(tiles[name], []).append(name)
    luts = np.zeros(size)
    for name, tile in tiles.items():
        luts[tile] += placed["cells"][name]["type"] == SITE
    wires, luts = (ndimage.uniform_filter(of, AROUND, mode="nearest") for of in (demand(placed, tiles, size), luts))
    has = np.zeros(size, dtype=bool)
    has[tuple(np.array(list(hosts)).T)] = True
    room = shares(wires, np.where(has, luts, 0), count)
    added, due = Counter[str](), 0.0
    for tile in sorted(hosts):
        due += room[tile]
        names = hosts[tile]
        for n in range(round(due)):
            added[names[n % len(names)]] += 1
        due -= round(due)
    for host, times in added.items():
        read = cells[host]["connections"]["Z"]
        for n in range(times):
            cells[f"room${n}${host}"] = {
                "hide_name": 1,
                "type": LUT,
                "parameters": {"INIT": "0" * 16},
                "attributes": {},
                "port_directions": dict.fromkeys("ABCD", "input"),
                "connections": {"A": read, "B": ["0"], "C": ["0"], "D": ["0"]},
            }
    return added.total()
