"""LUTs and flip-flops of a placed ECP5 netlist: which of them can change places, and the nets between all cells.

A tile has four slices of two sites each; a site has a LUT and a flip-flop. Only what nextpnr leaves single is moved:
lone LUTs, flip-flops that take their data by a wire, and pairs of a LUT and the flip-flop that takes its output inside
the site. Carry chains, wide LUTs, distributed RAMs with all their flip-flops, and other cells stay.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from fpga.errors import FpgaError
from fpga.floorplan.ecp5 import BEL, tile_of
from fpga.netlist import Bit, Cell, Module

Ints = npt.NDArray[np.int32]
#: Sites of a tile.
SITES = 8
_FREE, _NONE = -1, -2
_LUT, _FF = "TRELLIS_COMB", "TRELLIS_FF"
_SLICE = re.compile(r"SLICE([A-D])\.(?:K|FF)([01])$")
#: Ports that make a LUT part of something larger.
_TIED = ("OFX", "FXA", "FXB", "F1", "M", "FCI", "FCO", "DI0", "DI1", "WD")
#: Buffers of what has wires of its own.
_GLOBAL = {"DCCA"}


class Kind(IntEnum):
    """As in `native/moves.cpp`."""

    FIXED, LUT, FF, PAIRED_LUT, PAIRED_FF = range(5)


@dataclass(frozen=True)
class Cells:
    """What `native/moves.cpp` takes of a placement: see `tw_placement` there. All arrays are int32 but `open`, which is
    uint8; `names` are the cells in their order."""

    names: list[str]
    columns: int
    rows: int
    kind: Ints
    control: Ints
    reset: Ints
    mate: Ints
    net_begin: Ints
    net_cells: Ints
    cell_begin: Ints
    cell_nets: Ints
    open: npt.NDArray[np.uint8]
    site: Ints
    lut_at: Ints
    ff_at: Ints

    def bel(self, cell: int) -> str:
        """The name nextpnr has for the site of a LUT or a flip-flop."""
        tile, number = divmod(int(self.site[cell]), SITES)
        part = "FF" if self.kind[cell] in (Kind.FF, Kind.PAIRED_FF) else "K"
        return f"X{tile // self.rows}/Y{tile % self.rows}/SLICE{'ABCD'[number // 2]}.{part}{number % 2}"

    def write(self, module: Module) -> int:
        """Puts the cells of a netlist where they are now. Returns how many that moved."""
        moved = 0
        for cell in np.flatnonzero(self.kind != Kind.FIXED).tolist():
            attributes, bel = module["cells"][self.names[cell]]["attributes"], self.bel(cell)
            moved += attributes[BEL] != bel
            attributes[BEL] = bel
        return moved


def read(module: Module) -> Cells:
    """Of a netlist nextpnr wrote, after `ecp5.hold`. Raises `FpgaError` if a cell of it has no site."""
    cells: dict[str, Cell] = module["cells"]
    names = list(cells)
    places = [_place(name, cells[name]) for name in names]
    columns, rows = (1 + max(place[n] for place in places) for n in (0, 1))
    site = np.array([(x * rows + y) * SITES + number for x, y, number in places], dtype=np.int32)
    lut_at = np.full(columns * rows * SITES, _NONE, dtype=np.int32)
    ff_at = lut_at.copy()
    luts, ffs = ([n for n, name in enumerate(names) if cells[name]["type"] == wanted] for wanted in (_LUT, _FF))
    for n in luts + ffs:
        first = site[n] // SITES * SITES
        lut_at[first : first + SITES] = ff_at[first : first + SITES] = _FREE
    lut_at[site[luts]], ff_at[site[ffs]] = luts, ffs

    count = len(names)
    kind: Ints = np.zeros(count, dtype=np.int32)
    control, reset, mate = (np.full(count, _FREE, dtype=np.int32) for _ in range(3))
    opens = np.ones(len(lut_at), dtype=np.uint8)
    usual = _usual([cells[names[n]] for n in ffs])
    controls: dict[object, int] = {}
    resets: dict[object, int] = {}
    driver: dict[Bit, int] = {}
    for n in luts:
        cell, pins = cells[names[n]], cells[names[n]]["connections"]
        driver.update((bit, n) for bit in pins.get("F", ()))
        if cell["parameters"].get("MODE", "LOGIC") == "LOGIC" and not any(pins.get(port) for port in _TIED):
            kind[n] = Kind.LUT
    for n in ffs:
        cell, pins = cells[names[n]], cells[names[n]]["connections"]
        control[n] = controls.setdefault(_signals(cell), len(controls))
        reset[n] = resets.setdefault(tuple(pins.get("LSR", ())), len(resets))
        lut = int(lut_at[site[n]])
        takes = pins.get("DI") and lut >= 0 and kind[lut] == Kind.LUT and driver.get(pins["DI"][0]) == lut
        if _style(cell) != usual:
            _close(opens, int(site[n]))
            if takes:
                kind[lut] = Kind.FIXED
        elif pins.get("M"):
            kind[n] = Kind.FF
        elif takes:
            kind[n], kind[lut], mate[n], mate[lut] = Kind.PAIRED_FF, Kind.PAIRED_LUT, lut, n
    for n in luts:
        if kind[n] == Kind.FIXED:  # what takes its output inside the slice, or a flip-flop's way in
            opens[[site[n] & ~1, site[n] | 1]] = 0
    net_begin, net_cells, cell_begin, cell_nets = _nets(list(cells.values()))
    return Cells(
        names, columns, rows, kind, control, reset, mate,
        net_begin, net_cells, cell_begin, cell_nets, opens, site, lut_at, ff_at,
    )  # fmt: skip


def _place(name: str, cell: Cell) -> tuple[int, int, int]:
    """Column, row and number of the site."""
    site = cell["attributes"].get(BEL)
    if not site:
        raise FpgaError(f"nextpnr wrote no site for cell {name!r}")
    found = _SLICE.search(site)
    return *tile_of(site), 2 * "ABCD".index(found[1]) + int(found[2]) if found else 0


def _style(cell: Cell) -> tuple[object, ...]:
    """What all flip-flops that move have alike: the clock, and how clock and reset are taken."""
    parameters = cell["parameters"]
    modes = (parameters.get(name) for name in ("CLKMUX", "LSRMUX", "GSR"))
    return tuple(cell["connections"].get("CLK", ())), *modes, parameters.get("SRMODE") == "ASYNC"


def _signals(cell: Cell) -> tuple[object, ...]:
    """What flip-flops of a slice have alike."""
    reset, enable = (tuple(cell["connections"].get(port, ())) for port in ("LSR", "CE"))
    return _style(cell), reset, enable, cell["parameters"].get("CEMUX")


def _usual(ffs: list[Cell]) -> tuple[object, ...]:
    found = Counter(_style(cell) for cell in ffs).most_common(1)
    return found[0][0] if found else ((),)


def _close(opens: npt.NDArray[np.uint8], site: int) -> None:
    """No flip-flop comes into a tile with something unusual."""
    first = site // SITES * SITES
    opens[first : first + SITES] = 0


def _nets(cells: list[Cell]) -> tuple[Ints, Ints, Ints, Ints]:
    """Cells of each net and nets of each cell; nets of one cell, and those with wires of their own, are left out."""
    buffered = {bit for cell in cells if cell["type"] in _GLOBAL for bit in cell["connections"].get("CLKO", ())}
    members: dict[int, dict[int, None]] = {}
    for n, cell in enumerate(cells):
        for bits in cell["connections"].values():
            for bit in bits:
                if isinstance(bit, int) and bit not in buffered:
                    members.setdefault(bit, {})[n] = None
    nets = [list(found) for found in members.values() if len(found) > 1]
    sizes = np.array([len(net) for net in nets], dtype=np.int32)
    net_cells = np.array([n for net in nets for n in net], dtype=np.int32)
    owner = np.repeat(np.arange(len(nets), dtype=np.int32), sizes)
    order = np.argsort(net_cells, kind="stable")
    return _begins(sizes), net_cells, _begins(np.bincount(net_cells, minlength=len(cells))), owner[order]


def _begins(sizes: npt.NDArray[np.integer]) -> Ints:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
