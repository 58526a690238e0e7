"""Tiles of a layer's output, and the sizes of tiles that are worth trying."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from tilewright.compiler.npu.emit.geometry import Box
from tilewright.compiler.npu.views import View
from tilewright.isa.config import NpuConfig
from tilewright.isa.timing import MemoryTiming

#: Ratio of a LOAD's cycles to those of its bytes: there are gaps between bursts.
READ_OVERHEAD = 1.05
#: Cycles until a tile's first products, besides those until the first beat and of its first data.
_START = 36


class Bus(NamedTuple):
    """The bus between the NPU and its memory, as estimates of tilings see it.

    Attributes:
        reading, writing: bytes the memory delivers and accepts in a cycle.
        latency: cycles until a tile's first products, besides those of its first data.
    """

    reading: float
    writing: float
    latency: int

    @staticmethod
    def of(config: NpuConfig, memory: MemoryTiming) -> Bus:
        """Returns the bus of a machine with that memory."""
        width, latency = config.bus_bytes, _START + memory.read_latency
        return Bus(width / memory.read_interval, width / memory.write_interval, latency)

    def busiest(self, products: np.ndarray, steps: float, read: np.ndarray, written: float) -> np.ndarray:
        """Returns the cycles of the busiest engine, float64.

        Args:
            products, steps: cycles of the array and of VECTOR.
            read, written: bytes of LOAD and STORE.
        """
        least = max(steps, written / self.writing)
        found: np.ndarray = np.maximum(np.maximum(products, read / self.reading * READ_OVERHEAD), least)
        return found


class PlaneTiling(NamedTuple):
    """Size of the tiles of a plane.

    Attributes:
        lines, columns, blocks: rows, columns and channel blocks of the output in a tile.
    """

    lines: int
    columns: int
    blocks: int

    def __str__(self) -> str:
        return f"{self.lines}x{self.columns} px, {self.blocks} blocks"


class OutputPart(Struct, frozen=True):
    """The part of a layer's output to make.

    Attributes:
        image: number of the image.
        span: (first, end) of the rows.
        blocks: channel blocks, None for all.
    """

    image: int
    span: tuple[int, int]
    blocks: range | None = None


def boxes(y: View, tiling: PlaneTiling, part: OutputPart | None) -> Iterator[Box]:
    """Yields the tiles of a part of the output `y`: channel blocks outside, images and rows inside.

    Args:
        y: the output.
        tiling: size of a tile.
        part: the part, None for all of the output.
    """
    images, (first, end), chosen = range(y.n), (0, y.h), range(y.cb)
    if part is not None:
        images, (first, end), chosen = range(part.image, part.image + 1), part.span, part.blocks or chosen
    for block in chosen[:: tiling.blocks]:
        blocks = min(tiling.blocks, chosen.stop - block)
        for n, y0, x0 in itertools.product(images, range(first, end, tiling.lines), range(0, y.w, tiling.columns)):
            yield Box(n, block, blocks, y0, min(y0 + tiling.lines, end), x0, min(x0 + tiling.columns, y.w))


def even_parts(size: int) -> list[int]:
    """Returns the lengths that cut `size` into 1, 2, 3, ... parts as equal as possible, largest first, each once."""
    return sorted({-(-size // parts) for parts in range(1, size + 1)}, reverse=True)


def bands(height: int, width: int, lines: Collection[int], parts: Collection[int]) -> Iterator[tuple[int, int]]:
    """Yields the (rows, columns) of bands that cut a plane: whole rows first, then parts of rows.

    Args:
        height, width: rows and columns of the plane.
        lines: numbers of rows of bands that hold a part of each row.
        parts: numbers of parts to cut a row into.
    """
    for count in even_parts(height):
        yield count, width
    for count in sorted(lines, reverse=True):
        for cut in parts:
            if cut <= width:
                yield count, -(-width // cut)
