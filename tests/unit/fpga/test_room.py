"""Room where wires are many: wires against a plain count, room against what it is to bring about."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from fpga.floorplan.room import SITE, WIDEST, add_room, demand, shares


def placed(nets: list[list[str]], tiles: dict[str, tuple[int, int]]) -> dict[str, Any]:
    """As nextpnr writes it: cells joined by nets."""
    cells: dict[str, Any] = {name: {"type": SITE, "connections": {}} for name in tiles}
    for number, net in enumerate(nets):
        for name in net:
            cells[name]["connections"][f"P{number}"] = [number + 2]
    return {"cells": cells}


def test_wires_of_random_nets() -> None:
    draw = random.Random(3)
    size = (9, 7)
    tiles = {f"c{n}": (draw.randrange(size[0]), draw.randrange(size[1])) for n in range(60)}
    nets = [draw.sample(sorted(tiles), draw.randint(1, 5)) for _ in range(80)]
    expected = np.zeros(size)
    for net in nets:
        at = {tiles[name] for name in net}
        if len(at) < 2:
            continue
        columns, rows = zip(*at)
        box = [(x, y) for x in range(min(columns), max(columns) + 1) for y in range(min(rows), max(rows) + 1)]
        for tile in at:
            expected[tile] += 1
        for tile in box:
            expected[tile] += (max(columns) - min(columns) + max(rows) - min(rows)) / len(box)
    assert np.allclose(demand(placed(nets, tiles), tiles, size), expected)


def test_nets_without_wires() -> None:
    """Constants, nets within a tile, and those of too many cells."""
    tiles = {f"c{n}": (n % 40, n // 40) for n in range(WIDEST + 1)}
    tiles["beside"] = tiles["c0"]
    module = placed([list(tiles)[: WIDEST + 1], ["c0", "beside"]], tiles)
    module["cells"]["c1"]["connections"]["A"] = module["cells"]["c2"]["connections"]["A"] = ["1"]
    assert not demand(module, tiles, (40, 26)).any()
    assert demand(placed([list(tiles)[:WIDEST]], tiles), tiles, (40, 26)).any()


def test_wires_for_each_lut_become_the_same() -> None:
    draw = np.random.default_rng(2)
    wires, luts = draw.random((30, 20)) * 40, draw.integers(0, 9, (30, 20)).astype(float)
    room = shares(wires, luts, 500)
    assert room.sum() == pytest.approx(500, rel=1e-3) and not room[luts == 0].any()
    level = wires[room > 0] / (luts + room)[room > 0]
    assert level.std() < 1e-6 * level.mean()
    assert ((wires / np.maximum(luts, 1))[(room == 0) & (luts > 0)] <= level.mean() * 1.000001).all()
    assert not shares(np.zeros((3, 3)), np.ones((3, 3)), 10).any()


def test_room_lies_where_wires_are_many() -> None:
    """Two clusters of LUTs, joined within by one net a LUT, or by eight."""
    draw = random.Random(5)
    clusters = {name: [f"{name}{n:03d}" for n in range(400)] for name in ("few", "many")}
    tiles = {
        name: ((5 if of == "few" else 35) + draw.randrange(10), 5 + draw.randrange(10))
        for of, names in clusters.items()
        for name in names
    }
    nets = [draw.sample(names, 4) for of, names in clusters.items() for _ in range(400 if of == "few" else 3200)]
    module: dict[str, Any] = {
        "cells": {name: {"type": "LUT4", "connections": {"Z": [n]}} for n, name in enumerate(tiles, 2)}
    }
    module["cells"]["few000"]["type"] = "DPR16X4"  # of yosys, and a site for nextpnr
    before = dict(module["cells"])
    assert abs(add_room(module, placed(nets, tiles), tiles, 200) - 200) <= 2
    added = [cell for name, cell in module["cells"].items() if name not in before]
    many = {before[name]["connections"]["Z"][0] for name in clusters["many"]}
    assert len(added) >= 198 and sum(cell["connections"]["A"][0] in many for cell in added) > 0.95 * len(added)
    assert all(cell["type"] == "LUT4" and "Z" not in cell["connections"] for cell in added)
