"""Schedules: tiling, order, vectorisation, unrolling and packing of a kernel, as data apart from its computation.

A kernel gets its schedule by a signature of its computation (`Schedules.get`): the default, or the best measured on
this processor (`tilewright.compiler.cpu.tune`, `tilewright.compiler.cpu.findings`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, TypeVar

from tilewright.compiler.cpu.target import Target


@dataclass(frozen=True, kw_only=True)
class LoopSchedule:
    """The schedule of loop nests, reductions and rows.

    Attributes:
        vectorise: the innermost loop is written in vectors; else LLVM's vectoriser decides.
        unroll: vectors per iteration of the innermost loop.
        partial: vectors of partial results of a reduction.
        tile_rows, tile_columns: elements of the tiles of a transposition: along the contiguous loop of the source, and
            along that of the result.
        rows_first: within such a tile, the blocks along the source's contiguous loop are neighbours in time.
    """

    vectorise: bool = True
    unroll: int = 1
    partial: int = 4
    tile_rows: int = 64
    tile_columns: int = 64
    rows_first: bool = True

    def __str__(self) -> str:
        return _changed(self, LoopSchedule())

    def candidates(self, target: Target) -> Iterator[LoopSchedule]:
        """Schedules to try, one change after the other being kept (see `tune`)."""
        for unroll in (2, 4):
            yield replace(self, unroll=unroll)
        for partial in (1, 2, 8):
            yield replace(self, partial=partial)
        yield replace(self, vectorise=not self.vectorise)
        for rows, columns in ((16, 256), (256, 16), (128, 128), (32, 32), (16, 64), (64, 16)):
            for first in (True, False):
                yield replace(self, tile_rows=rows, tile_columns=columns, rows_first=first)


@dataclass(frozen=True, kw_only=True)
class GemmSchedule:
    """The schedule of matrix products and convolutions.

    Attributes:
        rows, vectors: the register tile: rows of A, vectors of B.
        columns: most columns of a block, whose finished tiles stay in the first-level cache.
        in_place: B is read in place if it is a convolution's padded input; else always packed.
    """

    rows: int
    vectors: int = 2
    columns: int = 1024
    in_place: bool = True

    @staticmethod
    def default(target: Target) -> GemmSchedule:
        """The default register tile: two vectors, and all registers but four, which are for B and A."""
        return GemmSchedule(rows=min(14, (target.vector_registers - 4) // 2))

    def __str__(self) -> str:
        source = "B in place where possible" if self.in_place else "B packed"
        return f"tile {self.rows} x {self.vectors} vectors, blocks of {self.columns} columns, {source}"

    def candidates(self, target: Target) -> Iterator[GemmSchedule]:
        """Schedules to try: register tiles that fit, blocks, packing."""
        yield replace(self, in_place=not self.in_place)
        for vectors in (1, 2, 3, 4):
            most = min((target.vector_registers - 1 - vectors) // vectors, 28)
            for rows in sorted({most, most - 1, most - 2, most * 2 // 3}):
                if rows >= 2:
                    yield replace(self, rows=rows, vectors=vectors)
        for columns in (128, 256, 512, 2048):
            yield replace(self, columns=columns)


Schedule = LoopSchedule | GemmSchedule
S = TypeVar("S", LoopSchedule, GemmSchedule)


def _changed(schedule: Schedule, default: Schedule) -> str:
    """The text of the fields that differ from the default's."""
    ours, theirs = asdict(schedule), asdict(default)
    return ", ".join(f"{k}={v}" for k, v in ours.items() if v != theirs[k]) or "default"


class Schedules:
    """Schedules by signature.

    Args:
        found: fields of the measured schedules.

    Attributes:
        requested: the defaults of all requested signatures, in order.
    """

    def __init__(self, found: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self.found = dict(found or {})
        self.requested: dict[str, Schedule] = {}

    def get(self, signature: str, default: S) -> S:
        """The schedule for a kernel; a found one that does not fit `default`'s fields is not used."""
        self.requested.setdefault(signature, default)
        values = self.found.get(signature)
        if values is None or not fits(values, default):
            return default
        return replace(default, **values)


def fits(values: Mapping[str, Any], default: Schedule) -> bool:
    """True if `values` are fields of such a schedule, of the right types and within reason."""
    kinds = {f.name: type(getattr(default, f.name)) for f in fields(default)}
    return all(
        name in kinds and type(v) is kinds[name] and (isinstance(v, bool) or 0 < v <= 1 << 16)
        for name, v in values.items()
    )
