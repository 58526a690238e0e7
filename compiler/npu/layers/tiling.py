"""Tiles of a layer's output, and the sizes of tiles that are worth trying."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tilewright.compiler.npu.emit.geometry import Box
from tilewright.compiler.npu.views import View
from tilewright.isa.config import NpuConfig
from tilewright.isa.timing import MemoryTiming

#: Cycles that a LOAD takes over those of its bytes: bursts do not follow each other directly.
_READ_OVERHEAD = 1.05
#: Cycles until a tile's first products, besides those until the first beat comes and of its first data.
_START = 36


class Bus(NamedTuple):
    """The bus that tiles wait for.

    Attributes:
        reading, writing: bytes the memory gives and takes in a cycle.
        latency: cycles until a tile's first products, besides those of its first data.
    """

    reading: float
    writing: float
    latency: int

    @staticmethod
    def of(config: NpuConfig, memory: MemoryTiming) -> Bus:
        width, latency = config.bus_bytes, _START + memory.read_latency
        return Bus(width / memory.read_interval, width / memory.write_interval, latency)

    def busiest(self, products: np.ndarray, steps: float, read: np.ndarray, written: float) -> np.ndarray:
        """Returns the cycles of the busiest engine, float64.

        Args:
            products, steps: cycles of the array and of VECTOR.
            read, written: bytes of LOAD and STORE.
        """
        least = max(steps, written / self.writing)
        found: np.ndarray = np.maximum(np.maximum(products, read / self.reading * _READ_OVERHEAD), least)
        return found


class PlaneTiling(NamedTuple):
    """Tiles of a plane: rows, columns and channel blocks of the output."""

    lines: int
    columns: int
    blocks: int

    def __str__(self) -> str:
        return f"{self.lines}x{self.columns} px, {self.blocks} blocks"


@dataclass(frozen=True)
class OutputPart:
    """The part of a layer's output that is to be made: rows `span` (first, end) of one image, and of these some channel
    blocks, None for all."""

    image: int
    span: tuple[int, int]
    blocks: range | None = None


def boxes(y: View, tiling: PlaneTiling, part: OutputPart | None) -> Iterator[Box]:
    """The tiles of a part of the output `y`, None for all of it: channel blocks outside, images and rows inside."""
    images, (first, end), chosen = range(y.n), (0, y.h), range(y.cb)
    if part is not None:
        images, (first, end), chosen = range(part.image, part.image + 1), part.span, part.blocks or chosen
    for block in chosen[:: tiling.blocks]:
        blocks = min(tiling.blocks, chosen.stop - block)
        for n, y0, x0 in itertools.product(images, range(first, end, tiling.lines), range(0, y.w, tiling.columns)):
            yield Box(n, block, blocks, y0, min(y0 + tiling.lines, end), x0, min(x0 + tiling.columns, y.w))


def even_parts(size: int) -> list[int]:
    """Lengths that cut `size` into 1, 2, 3, ... parts that are as equal as can be, largest first."""
    return sorted({-(-size // parts) for parts in range(1, size + 1)}, reverse=True)


def bands(height: int, width: int, lines: Collection[int], parts: Collection[int]) -> Iterator[tuple[int, int]]:
    """(rows, columns) of bands that cut a plane: whole rows first, then parts of rows where few whole ones fit.

    Args:
        lines: rows that a band of shorter rows may have.
        parts: numbers of parts that a row may be cut into.
    """
    for count in even_parts(height):
        yield count, width
    for count in sorted(lines, reverse=True):
        for cut in parts:
            if cut <= width:
                yield count, -(-width // cut)
