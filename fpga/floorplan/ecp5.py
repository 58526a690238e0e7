"""The floorplan of ECP5: DSP blocks and block RAMs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fpga.errors import FpgaError
from fpga.floorplan.annealing import anneal
from fpga.floorplan.conductance import conductances
from fpga.netlist import Cell, Module

#: Types of cells that are blocks.
KINDS = ("MULT18X18D", "DP16KD")
#: Carry chains and wide LUTs, which nextpnr keeps together; how much more their nets pull.
_TIED = {("CCU2C", "COUT"), ("PFUMX", "ALUT"), ("PFUMX", "BLUT"), ("L6MUX21", "D0"), ("L6MUX21", "D1")}
TIED = 5.0
_SITE = re.compile(r"X(\d+)/Y(\d+)/")
#: Attributes with the name of a cell's site: what nextpnr takes in a netlist, and what it says where it wrote one.
BEL, _SAYS, _FIRM = "BEL", "NEXTPNR_BEL", "BEL_STRENGTH"


def lone_blocks(counts: dict[str, int]) -> str:
    """A netlist (JSON) of so many blocks of each type, joined to nothing: where nextpnr places them are its sites."""
    empty = {"hide_name": 0, "parameters": {}, "attributes": {}, "port_directions": {}, "connections": {}}
    cells = {f"{kind}_{n}": {"type": kind, **empty} for kind, count in counts.items() for n in range(count)}
    top = {"attributes": {"top": "1"}, "ports": {}, "cells": cells, "netnames": {}}
    return json.dumps({"creator": "tilewright", "modules": {"top": top}})


def sites_of(placed: Path) -> list[tuple[str, str]]:
    """Type and name of each block's site, sorted, from the netlist nextpnr wrote."""
    (top,) = json.loads(placed.read_text(encoding="utf-8"))["modules"].values()
    found = [(cell["type"], cell["attributes"][_SAYS]) for cell in top["cells"].values() if cell["type"] in KINDS]
    return sorted(found)


def tile_of(site: str) -> tuple[int, int]:
    """Column and row in the name of a site."""
    where = _SITE.match(site)
    if where is None:
        raise FpgaError(f"nextpnr named a site {site!r}, not X.../Y.../...")
    return int(where[1]), int(where[2])


def tiles_of(placed: Module) -> dict[str, tuple[int, int]]:
    """Column and row of each cell of a netlist nextpnr wrote."""
    says = {
        name: cell["attributes"].get(_SAYS) or cell["attributes"].get(BEL) for name, cell in placed["cells"].items()
    }
    return {name: tile_of(site) for name, site in says.items() if site}


def hold(placed: Module) -> None:
    """Makes a netlist nextpnr wrote one that it places as it is, in place.

    It takes sites it has written (with `--no-place`) before it knows of a LUT whether it may swap its inputs while it
    routes, and then does so for few of them in WebAssembly, for all of them, carry chains too, elsewhere. Sites it
    is given go through its packer and its checks.
    """
    for cell in placed["cells"].values():
        attributes = cell["attributes"]
        attributes.pop(_FIRM, None)
        if site := attributes.pop(_SAYS, None):
            attributes[BEL] = site


def weight(cell: Cell, port: str) -> float:
    """How much a net at a port pulls, where most pull by 1."""
    return TIED if (cell["type"], port) in _TIED else 1.0


class Floorplan:
    """Sites for the blocks of one netlist.

    Parameters:
        module: of a netlist of yosys.
        sites: type and name of every site there is.
    """

    def __init__(self, module: Module, sites: Sequence[tuple[str, str]]) -> None:
        self.sites = list(sites)
        self.kinds = {name: cell["type"] for name, cell in module["cells"].items() if cell["type"] in KINDS}
        self.pulls = conductances(module, list(self.kinds), weight)

    def choose(self, *, seed: int, progress: Callable[[float], None] = lambda cost: None) -> dict[str, str]:
        """The site of each block by name; `progress` is told how long the wires are. Raises `FpgaError`: more blocks
        than sites."""
        places = [(kind, *tile_of(name)) for kind, name in self.sites]
        at = anneal(self.pulls, list(self.kinds.values()), places, seed=seed, progress=progress)
        return {name: self.sites[site][1] for name, site in zip(self.kinds, at, strict=True)}


def fix(module: Module, at: Mapping[str, str]) -> None:
    """Fixes blocks of a netlist to sites, in place."""
    for name, site in at.items():
        module["cells"][name]["attributes"][BEL] = site
