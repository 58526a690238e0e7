"""Cells of a placement moved about: what may move and where, the cost counted plainly, arrangements that are known."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from fpga.errors import FpgaError
from fpga.floorplan import ecp5, refinement
from fpga.floorplan.ecp5_cells import Cells, Kind, read
from fpga.floorplan.refinement import MOST, UNIT, prices, refine, weights

pytestmark = pytest.mark.slow


def cell(kind: str, site: str, parameters: dict[str, str] | None = None, **pins: int) -> dict[str, Any]:
    connections = {port: [bit] for port, bit in pins.items()}
    return {"type": kind, "attributes": {"BEL": site}, "parameters": parameters or {}, "connections": connections}


def lut(site: str, **pins: int) -> dict[str, Any]:
    return cell("TRELLIS_COMB", site, {}, **pins)


def ff(site: str, **pins: int) -> dict[str, Any]:
    return cell("TRELLIS_FF", site, {}, CLK=1, **pins)


def corner(column: int, row: int) -> dict[str, Any]:
    """The netlist has tiles up to here."""
    return cell("DP16KD", f"X{column}/Y{row}/EBR")


def site(column: int, row: int, number: int, part: str) -> str:
    return f"X{column}/Y{row}/SLICE{'ABCD'[number // 2]}.{part}{number % 2}"


def shuffled(seed: int, columns: int = 12, rows: int = 10) -> dict[str, Any]:
    """A legal placement of lone LUTs, lone flip-flops, pairs, a carry chain and a block, joined at random."""
    draw = random.Random(seed)
    cells: dict[str, Any] = {"block": cell("DP16KD", f"X{columns}/Y{rows}/EBR", DOA0=2, DOA1=3)}
    bits = [2, 3]

    def take() -> int:
        return draw.choice(bits)

    def new() -> int:
        bits.append(len(bits) + 2)
        return bits[-1]

    for x in range(columns):
        for y in range(rows):
            reset = draw.choice((None, 901, 902))
            controls = [None if n % 2 else draw.choice((None, 801, 802)) for n in range(8)]
            for n in range(8):
                signals = {"CE": controls[n & ~1], "LSR": reset}
                pins = {port: bit for port, bit in signals.items() if bit is not None}
                name = f"{x}_{y}_{n}"
                if x == 5:  # a chain along the column, whose flip-flops take sums
                    out = new()
                    chain = {"F": out, "FCI": 5000 + y * 9 + n, "FCO": 5001 + y * 9 + n}
                    cells["sum" + name] = cell("TRELLIS_COMB", site(x, y, n, "K"), {"MODE": "CCU2"}, A=take(), **chain)
                    cells["register" + name] = ff(site(x, y, n, "FF"), DI=out, Q=new(), **pins)
                elif (what := draw.random()) < 0.3:
                    out = new()
                    cells["lut" + name] = lut(site(x, y, n, "K"), A=take(), B=take(), F=out)
                    cells["ff" + name] = ff(site(x, y, n, "FF"), DI=out, Q=new(), **pins)
                elif what < 0.8:
                    cells["lone" + name] = lut(site(x, y, n, "K"), A=take(), D=take(), F=new())
                    if what < 0.6:
                        cells["ff" + name] = ff(site(x, y, n, "FF"), M=take(), Q=new(), **pins)
    return {"cells": cells}


def plain_cost(module: dict[str, Any]) -> float:
    """From names of sites and nets, with nothing of the arrays."""
    tiles = ecp5.tiles_of(module)
    nets: dict[int, set[str]] = {}
    for name, it in module["cells"].items():
        for bits in it["connections"].values():
            for bit in bits:
                nets.setdefault(bit, set()).add(name)
    cost = 0.0
    for members in nets.values():
        if len(members) > 1:
            places = np.array([tiles[name] for name in members])
            cost += float(weights(np.array([len(members)]))[0]) / UNIT * float(np.ptp(places, axis=0).sum())
    return cost


def check_legal(module: dict[str, Any]) -> None:
    """As nextpnr has it: one cell on a site, one set of controls in a slice, one reset in a tile, pairs together."""
    at = {it["attributes"]["BEL"]: name for name, it in module["cells"].items()}
    assert len(at) == len(module["cells"])
    slices: dict[str, set[Any]] = {}
    tiles: dict[str, set[Any]] = {}
    for name, it in module["cells"].items():
        if it["type"] == "TRELLIS_FF":
            where, pins = it["attributes"]["BEL"], it["connections"]
            slices.setdefault(where[:-4], set()).add(str((pins.get("CE"), pins.get("LSR"))))
            tiles.setdefault(where.split("/SLICE")[0], set()).add(str(pins.get("LSR")))
            if "DI" in pins:
                partner = module["cells"][at[where.replace("FF", "K")]]
                assert partner["connections"]["F"] == pins["DI"], name
    assert max(map(len, slices.values())) == max(map(len, tiles.values())) == 1


def test_weights_are_those_published() -> None:
    """Of 1, 3, 10, 20, 50 and 60 pins in VPR (`cross_count`), between them within a percent."""
    known = {1: 1.0, 3: 1.0, 7: 1.2823, 10: 1.4493, 12: 1.5455, 20: 1.8924, 45: 2.6625, 50: 2.7933, 60: 3.0549}
    assert weights(np.array(list(known))) / UNIT == pytest.approx(list(known.values()), rel=0.012)


def test_what_may_move() -> None:
    module = {
        "cells": {
            "corner": corner(9, 9),
            "lone": lut(site(1, 2, 3, "K"), A=10, F=11),
            "pair": lut(site(1, 2, 4, "K"), A=11, F=12),
            "its": ff(site(1, 2, 4, "FF"), DI=12, Q=13),
            "wire": ff(site(1, 2, 6, "FF"), M=13, Q=14),
            "carry": cell("TRELLIS_COMB", site(3, 2, 0, "K"), {"MODE": "CCU2"}, F=15, FCO=16),
            "sum": ff(site(3, 2, 0, "FF"), DI=15, Q=17),
            "five": lut(site(3, 2, 2, "K"), F=18, FXA=19, OFX=20),
            "wide": ff(site(3, 2, 2, "FF"), DI=20, Q=21),
            "ram": cell("TRELLIS_COMB", site(3, 2, 4, "K"), {"MODE": "DPRAM"}, F=22, WRE=23),
            "other": cell("TRELLIS_FF", site(4, 2, 0, "FF"), {"CLKMUX": "INV"}, CLK=1, M=14, Q=24),
            "constant": lut(site(4, 2, 1, "K"), F=26),
            "odd": cell("TRELLIS_FF", site(4, 2, 1, "FF"), {"CLKMUX": "INV"}, CLK=1, DI=26, Q=27),
            "buffer": cell("DCCA", "X9/Y9/DCC", CLKI=25, CLKO=1),
        }
    }
    cells = read(module)
    kinds = dict(zip(cells.names, map(Kind, cells.kind.tolist()), strict=True))
    moves = {"lone": Kind.LUT, "pair": Kind.PAIRED_LUT, "its": Kind.PAIRED_FF, "wire": Kind.FF}
    assert kinds == {name: moves.get(name, Kind.FIXED) for name in kinds}
    assert all(cells.bel(cells.names.index(name)) == module["cells"][name]["attributes"]["BEL"] for name in moves)
    tile = (3 * cells.rows + 2) * 8
    assert cells.open[tile : tile + 8].tolist() == [0, 0, 0, 0, 0, 0, 1, 1]
    tile = (4 * cells.rows + 2) * 8
    assert not cells.open[tile : tile + 8].any()
    assert 1 not in [len(set(net.tolist())) for net in np.split(cells.net_cells, cells.net_begin[1:-1])]
    clocked = cells.names.index("wire")
    assert cells.cell_begin[clocked + 1] - cells.cell_begin[clocked] == 2  # the clock has wires of its own


def test_a_cell_without_a_site() -> None:
    with pytest.raises(FpgaError, match="nextpnr wrote no site for cell 'lost'"):
        read({"cells": {"lost": {"type": "TRELLIS_COMB", "attributes": {}, "parameters": {}, "connections": {}}}})


@pytest.mark.parametrize("seed", range(3))
def test_moves_are_legal_and_the_cost_is_true(seed: int) -> None:
    module = shuffled(seed)
    check_legal(module)
    before, start = json.loads(json.dumps(module)), plain_cost(module)
    cells = read(module)
    told: list[float] = []
    cost = refine(cells, seed=seed, progress=told.append)
    moved = cells.write(module)
    check_legal(module)
    assert cost == pytest.approx(plain_cost(module), abs=1e-6) and told[-1] == cost
    assert cost < 0.8 * start and moved > 100
    for name, it in module["cells"].items():
        if name.startswith(("sum", "register", "block")):
            assert it == before["cells"][name]
    assert {name: it["connections"] for name, it in module["cells"].items()} == {
        name: it["connections"] for name, it in before["cells"].items()
    }


def test_the_same_again_and_with_another_seed() -> None:
    def places(seed: int) -> list[int]:
        cells = read(shuffled(7))
        refine(cells, seed=seed)
        return list(cells.site.tolist())

    assert places(1) == places(1) != places(2)


def test_a_chain_between_two_blocks_becomes_straight(monkeypatch: pytest.MonkeyPatch) -> None:
    """20 LUTs in a row of nets between fixed ends, thrown over the FPGA: no shorter than the way between the ends."""
    monkeypatch.setattr(refinement, "HOT", 4.0)
    monkeypatch.setattr(refinement, "MOVES", 400)
    draw = random.Random(3)
    cells: dict[str, Any] = {
        "left": cell("DP16KD", "X0/Y4/EBR", DOA0=2),
        "right": cell("DP16KD", "X30/Y9/EBR", DIA0=22),
    }
    free = [(x, y) for x in range(31) for y in range(10)]
    for n, (x, y) in enumerate(draw.sample(free, 20)):
        cells[f"lut{n}"] = lut(site(x, y, draw.randrange(8), "K"), A=n + 2, F=n + 3)
    for n, (x, y) in enumerate(free):  # every tile has sites
        cells.setdefault(f"ff{n}", ff(site(x, y, 0, "FF"), M=1000, Q=2000 + n))
    module = {"cells": cells}
    found: Cells = read(module)
    alone = [found.names[n] for n in range(len(found.names)) if found.names[n].startswith("lut")]
    refine(found, seed=1)
    found.write(module)
    tiles = ecp5.tiles_of(module)
    way = [tiles["left"], *(tiles[name] for name in alone), tiles["right"]]
    length = sum(abs(a - c) + abs(b - d) for (a, b), (c, d) in pairwise(way))
    assert 35 <= length <= 41


def test_cells_leave_where_nets_are_dear() -> None:
    """The right half costs; what is free of the left takes what was there. The cost has the prices."""
    module = shuffled(4)
    cells = read(module)
    price = np.zeros((9, 99))  # fewer columns, more rows than the netlist
    price[6:, :] = 2.0
    columns = cells.site // 8 // cells.rows
    movable = cells.kind != Kind.FIXED
    before = int(((columns >= 6) & (columns < 9) & movable).sum())
    cost = refine(cells, seed=1, prices=price)
    columns = cells.site // 8 // cells.rows
    dear = (columns >= 6) & (columns < 9)
    assert (dear & movable).sum() < 0.8 * before
    cells.write(module)
    check_legal(module)
    assert cost == pytest.approx(plain_cost(module) + 2.0 * np.diff(cells.cell_begin)[dear].sum(), abs=1e-6)


def test_prices_follow_conflicts() -> None:
    conflicts = np.zeros((60, 40))
    assert not prices(conflicts).any()
    conflicts[10:20, 10:20] = 3
    conflicts[50, 30] = 1
    found = prices(conflicts)
    assert found.max() == found[15, 15] == MOST and found[40, 5] == 0
    assert found[50, 30] == pytest.approx(MOST / 75, rel=1e-6)
