"""Shorter wires: what can be moved of a placement is, by simulated annealing at a low temperature.

nextpnr ends with moves that never make wires longer. From there on a little warmth, and moves to where the nets of a
cell want it, take another twentieth of the wires; and where an FPGA is nearly full, a twentieth decides whether it can
be routed.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from common.native import BuildError, shared_library
from fpga.errors import FpgaError
from fpga.floorplan.ecp5_cells import Cells, Kind

_SOURCE = Path(__file__).resolve().parent / "native" / "moves.cpp"
#: First and last temperature, in tiles of wire, and the factor from one to the next.
HOT, COLD, COOLING = 0.6, 0.1, 0.993
#: Moves tried at each temperature for each cell (or pair) that can be moved.
MOVES = 20
#: Largest and smallest distance of a move, in tiles. It shrinks while fewer than SHARE of the moves are taken.
FAR, NEAR, SHARE = 12.0, 2.0, 0.15
#: The cost is counted in this fraction of a tile, so that it is a whole number.
UNIT = 256
#: Length of the wires of a net over half the perimeter of its box, by the number of its cells (Cheng, ICCAD 1994).
_PINS = (3, 4, 5, 6, 8, 10, 15, 20, 25, 30, 40, 50)
_WIRES = (1.0, 1.0828, 1.1536, 1.2206, 1.3385, 1.4493, 1.6899, 1.8924, 2.0743, 2.2334, 2.5356, 2.7933)
_MORE = 0.02616  # for each cell above the last
_CHANCES = 4096
#: Prices of places where connections get in each other's way: the conflicts of a tile are spread over the tiles around
#: it; this share of the tiles with conflicts costs less than the highest price; that price, in tiles of wire for each
#: net of a cell.
_AROUND, _COMMON, MOST = 5, 0.98, 2.0


_ARRAYS = (
    "kind", "control", "reset", "mate", "net_begin", "net_cells", "cell_begin", "cell_nets", "weight", "price",
    "open", "site", "lut_at", "ff_at", "box",
)  # fmt: skip


class _Placement(ctypes.Structure):
    """Mirrors `tw_placement` in moves.cpp."""

    _fields_ = [
        *((name, ctypes.c_int32) for name in ("columns", "rows", "cells", "nets")),
        *((name, ctypes.c_void_p) for name in _ARRAYS),
    ]


@functools.cache
def _library() -> ctypes.CDLL:
    try:
        path = shared_library(_SOURCE, ("-O3",), [_SOURCE], group="fpga", name="moves", title="the annealer")
    except BuildError as error:
        raise FpgaError(str(error)) from None
    library = ctypes.CDLL(str(path))
    pointer = ctypes.c_void_p
    library.tw_measure.argtypes, library.tw_measure.restype = [pointer], ctypes.c_int64
    library.tw_moves.argtypes = [pointer, ctypes.c_int64, ctypes.c_int64, ctypes.c_int32, pointer, pointer, pointer]
    library.tw_moves.restype = ctypes.c_int64
    library.tw_placement_size.restype = ctypes.c_uint64
    if library.tw_placement_size() != ctypes.sizeof(_Placement):
        raise FpgaError(f"{path} and fpga/floorplan/refinement.py disagree about tw_placement")
    return library


def prepare() -> None:
    """Builds what `refine` runs, or finds it. Raises `FpgaError` without a C++ compiler."""
    _library()


def weights(pins: npt.NDArray[np.integer]) -> npt.NDArray[np.int32]:
    """Cost of nets of so many cells, for each tile of half the perimeter of their boxes, in UNIT."""
    wires = np.interp(pins, _PINS, _WIRES) + np.maximum(pins - _PINS[-1], 0) * _MORE
    return np.rint(UNIT * wires).astype(np.int32)


def prices(conflicts: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """What a net costs for each cell it ends at in a tile, by the conflicts there: for `refine`.

    Parameters:
        conflicts: [columns, rows], as `room.conflicts_of` has them.
    """
    around = ndimage.uniform_filter(conflicts, _AROUND, mode="constant")
    if not around.any():
        return around
    return np.asarray(MOST * np.minimum(around / np.quantile(around[around > 0], _COMMON), 1))


def refine(
    cells: Cells,
    *,
    seed: int,
    prices: npt.NDArray[np.float64] | None = None,
    progress: Callable[[float], None] = lambda cost: None,
) -> float:
    """Moves cells, in place. The same on every machine.

    Parameters:
        prices: float64 [columns, rows], of tiles: what a net costs for each cell it ends at there, in tiles of wire;
            None = nothing. What lies outside of `cells` is not read, what is missing costs nothing.
        progress: is told the cost after each temperature.

    Returns:
        The cost in tiles: half the perimeters of the boxes of all nets, each weighed by its cells (`weights`), and the
        prices.

    Raises:
        FpgaError: no C++ compiler.
    """
    library = _library()
    nets = len(cells.net_begin) - 1
    price = np.zeros((cells.columns, cells.rows), dtype=np.int32)
    if prices is not None:
        known = prices[: cells.columns, : cells.rows]
        price[: known.shape[0], : known.shape[1]] = np.rint(UNIT * known)
    own = {"price": price, "weight": weights(np.diff(cells.net_begin)), "box": np.zeros((nets, 4), dtype=np.int32)}
    arrays = {name: own[name] if name in own else getattr(cells, name) for name in _ARRAYS}
    addresses = {name: array.ctypes.data for name, array in arrays.items()}
    placement = _Placement(cells.columns, cells.rows, len(cells.names), nets, **addresses)
    at = np.arange(_CHANCES)
    chances = np.rint(-np.log((at + 0.5) / _CHANCES) * 65536).astype(np.int32)
    state = ctypes.c_uint64((seed + 1) * 0x9E3779B97F4A7C15 % 2**64)
    taken = ctypes.c_int32()
    moves = MOVES * int(np.isin(cells.kind, (Kind.LUT, Kind.FF, Kind.PAIRED_LUT)).sum())
    cost = library.tw_measure(ctypes.byref(placement))
    temperature, radius = HOT, FAR
    while temperature > COLD:
        cost += library.tw_moves(
            ctypes.byref(placement), moves, round(temperature * UNIT), int(radius),
            ctypes.byref(state), chances.ctypes.data, ctypes.byref(taken),
        )  # fmt: skip
        radius = min(FAR, max(NEAR, radius * (1 - SHARE + taken.value / 1000)))
        temperature *= COOLING
        progress(cost / UNIT)
    return float(cost / UNIT)
