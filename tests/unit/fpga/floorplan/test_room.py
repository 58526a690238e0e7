"""Room where connections get in each other's way: how much each tile has, and beside which cells."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fpga.floorplan.room import AROUND, MOST, add_room, conflicts_of, shares


def test_the_map_nextpnr_writes(tmp_path: Path) -> None:
    """A line for each column, a value for each row, a comma at the end."""
    file = tmp_path / "map.csv"
    file.write_text("0,2,0,\n4,0,6,\n")
    assert conflicts_of(file).tolist() == [[0, 2, 0], [4, 0, 6]]


def test_room_is_in_proportion() -> None:
    draw = np.random.default_rng(2)
    conflicts = np.zeros((60, 50))
    conflicts[20:40, 10:30] = draw.integers(0, 5, (20, 20))
    placed = draw.random(conflicts.shape) < 0.7
    room = shares(conflicts, placed, 300)
    assert room.sum() == pytest.approx(300, rel=1e-6) and not room[~placed].any()
    around = np.array(
        [
            conflicts[
                max(0, x - AROUND // 2) : x + AROUND // 2 + 1, max(0, y - AROUND // 2) : y + AROUND // 2 + 1
            ].sum()
            for x, y in np.argwhere(placed)
        ]
    )
    assert np.allclose(room[placed] * around.sum(), 300 * around)


def test_a_tile_has_no_more_than_it_had() -> None:
    conflicts = np.zeros((40, 40))
    conflicts[5, 5], conflicts[30, 30] = 1000, 1
    room = shares(conflicts, np.ones(conflicts.shape, dtype=bool), 500)
    assert room.max() == MOST and room[28:33, 28:33].min() > 0 and room.sum() == pytest.approx(500)
    most = shares(conflicts, np.ones(conflicts.shape, dtype=bool), 10**6)
    assert most.sum() == pytest.approx(2 * AROUND**2 * MOST)
    assert not shares(np.zeros((9, 9)), np.ones((9, 9), dtype=bool), 100).any()


def test_room_reads_what_lies_there() -> None:
    draw = random.Random(5)
    tiles = {f"c{n:03d}": (draw.randrange(30), draw.randrange(30)) for n in range(600)}
    cells: dict[str, Any] = {
        name: {"type": "LUT4" if n % 3 else "TRELLIS_FF", "connections": {"Z" if n % 3 else "Q": [n + 2]}}
        for n, name in enumerate(tiles)
    }
    tiles["carry"] = (12, 12)  # that nextpnr made
    wide = [name for name, cell in cells.items() if cell["type"] == "LUT4"][::5]
    cells |= {
        f"wide{name}": {"type": "PFUMX", "connections": {"ALUT": cells[name]["connections"]["Z"]}} for name in wide
    }
    before = dict(cells)
    conflicts = np.zeros((30, 30))
    conflicts[12, 12] = 5
    added = add_room({"cells": cells}, tiles, conflicts, 100)
    new = [name for name in cells if name not in before]
    assert abs(added - 100) <= 1 and len(new) == added
    for name in new:
        host = name.split("$", 2)[2]
        assert cells[name]["connections"] == {"A": before[host]["connections"]["Z"]}
        assert max(abs(a - 12) for a in tiles[host]) <= AROUND // 2 and host not in wide
    assert add_room({"cells": dict(before)}, tiles, 0 * conflicts, 100) == 0
