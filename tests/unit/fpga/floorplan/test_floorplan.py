"""Where blocks go: pulls against linear algebra done plainly, sites against all arrangements, nextpnr obeying."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Module, Signal, Value
from amaranth.lib.memory import Memory
from scipy import optimize

from fpga.errors import FpgaError
from fpga.floorplan import conductance, ecp5
from fpga.floorplan.annealing import anneal
from fpga.floorplan.conductance import conductances
from fpga.floorplan.room import conflicts_of
from fpga.routing import TRIED
from fpga.toolchain import CONFLICTS, FAMILIES, NAME, NETLIST, PLACEMENT, ROOM, ROUTER, ROUTING, TRIAL_LOG, run
from tests.common.lit_design import LitDesign
from tests.unit.fpga.example_board import BOARD

UNTIMED_PASS = re.compile(r"iter=(\d+) wires=\d+ overused=0 overuse=0 archfail=0")


def netlist(nets: list[list[str]], blocks: list[str]) -> dict[str, Any]:
    """Cells joined by nets; every cell has a port per net."""
    cells: dict[str, Any] = {
        name: {"type": "DP16KD" if name in blocks else "LUT4", "connections": {}, "attributes": {}}
        for name in sorted({name for net in nets for name in net} | set(blocks))
    }
    for number, net in enumerate(nets):
        for name in net:
            cells[name]["connections"][f"P{number}"] = [number + 2]
    return {"cells": cells}


def test_resistors_in_series_and_side_by_side() -> None:
    path = [["a", "x"], ["x", "y"], ["y", "b"]]
    assert conductances(netlist(path, ["a", "b"]), ["a", "b"])[0, 1] == pytest.approx(1 / 3, rel=1e-3)
    both = [*path, ["a", "b"]]
    assert conductances(netlist(both, ["a", "b"]), ["a", "b"])[0, 1] == pytest.approx(4 / 3, rel=1e-3)


def test_nets_of_many_cells() -> None:
    """A net of 4 blocks pulls as every two of them joined by a third; one of 10 as a star; one of 301 not at all."""
    four, ten = list("abcd"), list("abcdefghij")
    assert conductances(netlist([four], four), four)[0, 1] == pytest.approx(1 / 3)
    assert conductances(netlist([ten], ten), ten)[0, 1] == pytest.approx(1 / 10, rel=1e-3)
    wide = ["a", "b", *(f"x{n}" for n in range(conductance.WIDEST - 1))]
    assert conductances(netlist([wide], ["a", "b"]), ["a", "b"])[0, 1] == 0
    assert conductances(netlist([wide[:-1]], ["a", "b"]), ["a", "b"])[0, 1] > 0


def test_weights() -> None:
    module = netlist([["a", "x"], ["x", "b"]], ["a", "b"])
    pull = conductances(module, ["a", "b"], lambda cell, port: 5.0 if (cell["type"], port) == ("LUT4", "P0") else 1.0)
    assert pull[0, 1] == pytest.approx(5 / 6, rel=1e-3)
    assert ecp5.weight({"type": "CCU2C"}, "COUT") == ecp5.TIED > ecp5.weight({"type": "CCU2C"}, "S0") == 1


def test_pulls_are_the_schur_complement() -> None:
    """Random nets of two cells, against the inverse of the dense matrix; more blocks than are solved for at once."""
    draw = random.Random(7)
    blocks = [f"b{n:03d}" for n in range(conductance._AT_ONCE + 6)]
    cells = [*blocks, *(f"x{n:03d}" for n in range(200))]
    nets = [draw.sample(cells, 2) for _ in range(900)]
    module = netlist(nets, blocks)
    order = list(module["cells"])
    dense = np.zeros((len(order), len(order)))
    for a, b in ((order.index(a), order.index(b)) for a, b in nets):
        dense[[a, b], [a, b]] += 1
        dense[[a, b], [b, a]] -= 1
    fixed = [order.index(b) for b in blocks]
    free = [n for n in range(len(order)) if n not in fixed and dense[n, n]]
    across = dense[np.ix_(free, fixed)]
    expected = across.T @ np.linalg.solve(dense[np.ix_(free, free)], across) - dense[np.ix_(fixed, fixed)]
    np.fill_diagonal(expected, 0)
    found = conductances(module, blocks)
    assert np.allclose(found, expected, atol=2e-3) and (found == found.T).all() and found.max() > 1


def cost(pulls: np.ndarray, places: np.ndarray, at: list[int]) -> float:
    where = places[at]
    return float((pulls * np.abs(where[:, None] - where[None]).sum(axis=2)).sum() / 2)


@pytest.mark.parametrize("seed", range(4))
def test_sites_against_every_arrangement(seed: int) -> None:
    """Five blocks on seven sites, two kinds."""
    draw = np.random.default_rng(seed)
    kinds = ["dsp", "dsp", "dsp", "ram", "ram"]
    sites = [("dsp", 0, 0), ("dsp", 5, 0), ("dsp", 9, 3), ("dsp", 1, 7), ("ram", 2, 2), ("ram", 8, 2), ("ram", 4, 9)]
    places = np.array([site[1:] for site in sites])
    pulls = np.triu(draw.integers(0, 9, (5, 5)), 1).astype(float)
    pulls += pulls.T
    best = min(
        cost(pulls, places, [*dsp, *ram]) for dsp in permutations(range(4), 3) for ram in permutations(range(4, 7), 2)
    )
    found = [anneal(pulls, kinds, sites, seed=n) for n in range(5)]
    assert min(cost(pulls, places, at) for at in found) == best
    assert all(cost(pulls, places, at) <= 1.2 * best for at in found)
    assert all(len(set(at)) == 5 and [sites[n][0] for n in at] == kinds for at in found)
    assert found[0] == anneal(pulls, kinds, sites, seed=0)


@pytest.mark.slow
def test_sites_against_scipy() -> None:
    """30 blocks that pull at random on 30 sites: as good as scipy's solver of quadratic assignment."""
    draw = np.random.default_rng(5)
    sites = [("ram", int(x), int(y)) for x, y in draw.integers(0, 99, (30, 2))]
    places = np.array([site[1:] for site in sites])
    pulls = np.triu(draw.random((30, 30)) ** 6, 1)
    pulls += pulls.T
    distance = np.abs(places[:, None] - places[None]).sum(axis=2)
    theirs = min(
        optimize.quadratic_assignment(pulls, distance, method=method, options={"rng": np.random.default_rng(1)}).fun / 2
        for method in ("faq", "2opt")
    )
    assert cost(pulls, places, anneal(pulls, ["ram"] * 30, sites, seed=1)) <= 1.01 * theirs


def test_a_ring_lies_flat() -> None:
    """24 blocks in a ring on 6 x 6 sites, and what is told on the way."""
    pulls = np.roll(np.eye(24), 1, axis=1)
    pulls += pulls.T
    sites = [("ram", x, y) for x in range(6) for y in range(6)]
    told: list[float] = []
    at = anneal(pulls, ["ram"] * 24, sites, seed=3, progress=told.append)
    found = cost(pulls, np.array([site[1:] for site in sites]), at)
    assert found == told[-1] and 24 <= found <= 28 and told[0] > 1.5 * found


def test_ends_of_annealing() -> None:
    assert anneal(np.zeros((0, 0)), [], [("ram", 1, 1)], seed=1) == []
    assert anneal(np.zeros((1, 1)), ["ram"], [("dsp", 0, 0), ("ram", 1, 1)], seed=1) == [1]
    assert len(set(anneal(np.zeros((3, 3)), ["ram"] * 3, [("ram", n, 0) for n in range(3)], seed=1))) == 3
    with pytest.raises(FpgaError, match="2 blocks of ram, 1 sites"):
        anneal(np.zeros((2, 2)), ["ram"] * 2, [("ram", 1, 1), ("dsp", 0, 0)], seed=1)


class Chains(LitDesign):
    """Six multipliers and six memories, one after the other."""

    def body(self, m: Module) -> Value:
        value = Signal(16)
        m.d.sync += value.eq(value + 1)
        for n in range(6):
            product = Signal(16, name=f"product{n}")
            m.d.sync += product.eq(value * (value ^ 0x5A5A))
            m.submodules[f"memory{n}"] = memory = Memory(shape=16, depth=1024, init=[])
            write, read = memory.write_port(), memory.read_port()
            m.d.comb += [write.en.eq(value[0]), write.addr.eq(product), write.data.eq(product), read.addr.eq(value)]
            value = read.data
        shown = Signal()
        m.d.sync += shown.eq(value.xor())
        return shown


@pytest.mark.slow
def test_nextpnr_obeys(tmp_path: Path) -> None:
    """Sites are those of the FPGA, each block is where the netlist says, the same seed gives the same; what the netlist
    tells the router is what it takes."""
    family, board = FAMILIES["ecp5"], BOARD  # with a small FPGA, whose tables the tools read in a third of the time
    assert family.floorplan is not None
    platform = board.platform()
    platform.prepare(Chains(), name=NAME, emit_src=False, **family.overrides).extract(tmp_path)
    run(family.synthesis(tmp_path), tmp_path)

    def settings() -> dict[str, str]:
        """What nextpnr was told and what it chose, after routing."""
        step = family.route(platform, 50.0, 1, True)
        run(replace(step, arguments=(*step.arguments, "--write", "routed.json")), tmp_path)
        found: dict[str, str] = json.loads((tmp_path / "routed.json").read_text())["modules"][NAME]["settings"]
        return found

    own = settings()
    assert all(float(own[name]) != float(value) for name, value in ROUTER.items())  # it knows them, as others
    before = (tmp_path / f"{NAME}.json").read_text()
    told: list[str] = []

    def planned() -> dict[str, str]:
        (tmp_path / f"{NAME}.json").write_text(before)
        family.floorplan(platform, tmp_path, (board.capacity.dsp, board.capacity.bram))(tmp_path, 1, told.append)
        cells = json.loads((tmp_path / f"{NAME}.json").read_text())["modules"][NAME]["cells"]
        return {name: cell["attributes"]["BEL"] for name, cell in cells.items() if cell["type"] in ecp5.KINDS}

    sites = planned()
    assert len(sites) >= 12 and len(set(sites.values())) == len(sites) and told[-1].startswith("placing blocks: ")
    assert planned() == sites
    known = ecp5.sites_of(tmp_path / f"{NAME}.sites.json")
    assert [sum(kind == k for k, _ in known) for kind in ecp5.KINDS] == [board.capacity.dsp, board.capacity.bram]
    assert family.place is not None
    run(family.place(platform, 50.0, 1, True), tmp_path)

    def placed() -> dict[str, Any]:
        """The cells that were placed."""
        found: dict[str, Any] = json.loads((tmp_path / PLACEMENT).read_text())["modules"][NAME]["cells"]
        return found

    first = placed()
    assert {name: first[name]["attributes"]["NEXTPNR_BEL"] for name in sites} == sites
    told_router = settings()
    assert ROUTER.items() <= told_router.items() and int(told_router["timing_driven"]) == 1

    # A trial of routing, without timing, writes where connections get in each other's way; here they do not in the end.
    assert family.trial is not None and family.room is not None
    run(family.trial(platform, tmp_path, 50.0), tmp_path)
    *_, last = UNTIMED_PASS.findall((tmp_path / TRIAL_LOG).read_text())
    (tmp_path / CONFLICTS.replace(str(TRIED), last)).rename(tmp_path / CONFLICTS)
    before = (tmp_path / NETLIST).read_text()
    assert family.room(tmp_path, 100) == 0

    # Room is placed beside cells; what fills the FPGA is routed without timing, too.
    (tmp_path / NETLIST).write_text(before)
    columns, rows = conflicts_of(tmp_path / CONFLICTS).shape
    (tmp_path / CONFLICTS).write_text((",".join(["1"] * rows) + "\n") * columns)
    added = family.room(tmp_path, 100)
    run(family.place(platform, 50.0, 1, True), tmp_path)
    second = placed()
    tiles = ecp5.tiles_of({"cells": second})
    room = [name for name in second if name.startswith("room$")]
    away = [np.abs(np.subtract(tiles[name], tiles[name.split("$", 2)[2]])).sum() for name in room]
    assert len(room) == added and abs(added - 100 * ROOM) <= 2 and np.median(away) <= 4
    assert int(settings()["timing_driven"]) == 0

    # Cells are moved, and nextpnr routes them where they lie: its own checks take every site.
    assert family.refine is not None and family.route_placed is not None
    lay = ecp5.tiles_of({"cells": placed()})
    family.refine(tmp_path, True, told.append)
    third = placed()
    moved = [name for name, tile in ecp5.tiles_of({"cells": third}).items() if tile != lay[name]]
    assert told[-1].startswith("moving cells: ") and len(moved) > 20
    run(family.route_placed(platform, 50.0), tmp_path)
    log = (tmp_path / f"{NAME}.tim").read_text()
    assert f"Placed {len(third)} cells based on constraints" in log and UNTIMED_PASS.search(log)
    assert (tmp_path / f"{NAME}.config").stat().st_size and json.loads((tmp_path / ROUTING).read_text())["fmax"]
