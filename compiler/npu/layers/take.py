"""Selection of rows and columns of a tensor, repeated or left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tilewright.compiler.npu.emit.context import Context
from tilewright.compiler.npu.emit.geometry import Box
from tilewright.compiler.npu.layers.elementwise import VectorLayer
from tilewright.compiler.npu.layers.tiling import PlaneTiling
from tilewright.isa.instructions import Source


class Run(NamedTuple):
    """Evenly spaced indices: `first + i * step`, each `repeat` times, for i below `times`.

    Attributes:
        at: index in the result at which the run begins.
        first: first index into the input.
        times: number of different indices.
        repeat: number of times each is repeated.
        step: difference of neighbouring indices.
    """

    at: int
    first: int
    times: int
    repeat: int
    step: int


def runs(chosen: Sequence[int]) -> Iterator[Run]:
    """Yields the runs that make up a sequence of indices, in order, each as long as possible."""
    places = np.array(chosen, np.int64)
    values, starts, repeats = _repeated(places)
    i = 0
    while i < len(values):
        count, step = 1, 1
        if i + 1 < len(values) and repeats[i + 1] == repeats[i]:
            step = int(values[i + 1] - values[i])
            while i + count < len(values) and repeats[i + count] == repeats[i]:
                if values[i + count] - values[i + count - 1] != step:
                    break
                count += 1
        yield Run(int(starts[i]), int(values[i]), count, int(repeats[i]), step)
        i += count


def _repeated(places: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the indices that differ from the one before, their positions, and how often each repeats."""
    starts = np.flatnonzero(np.concatenate([[True], places[1:] != places[:-1]]))
    return places[starts], starts, np.diff(np.append(starts, len(places)))


@dataclass
class TakeLayer(VectorLayer):
    """Copies by VECTOR, with an instruction for every pair of a run of rows and a run of columns.

    Attributes:
        rows, columns: the input's row for every row of the output, and column for every column.
    """

    rows: tuple[int, ...] = ()
    columns: tuple[int, ...] = ()

    def input_box(self, box: Box) -> Box:
        return box._replace(**_bounds("y", self.rows[box.y0 : box.y1]), **_bounds("x", self.columns[box.x0 : box.x1]))

    def max_input_vectors(self, tiling: PlaneTiling) -> int:
        return tiling.blocks * _most(self.rows, tiling.lines) * _most(self.columns, tiling.columns)

    def input_rows(self, span: tuple[int, int]) -> tuple[int, int]:
        # From the first row that is read from here on: a reflected border goes back.
        return min(self.rows[span[0] :]), max(self.rows[: span[1]]) + 1

    def taken(self, axis: int, outputs: np.ndarray) -> np.ndarray:
        x = self.inputs[0]
        found = np.zeros((x.h, x.w)[axis], bool)
        found[np.array((self.rows, self.columns)[axis])[outputs]] = True
        return found

    def emit_tile(self, context: Context, box: Box) -> None:
        read = self.input_box(box)
        a, out = context.read_tile(self.inputs[0], read), context.write_tile(self.output, box)
        table = context.load_table(self.post.lut)
        for y in runs(self.rows[box.y0 : box.y1]):
            for x in runs(self.columns[box.x0 : box.x1]):
                context.emitter.vector(
                    Source.ACT, a.base + (y.first - read.y0) * a.line + (x.first - read.x0) * a.step,
                    out.base + y.at * out.line + x.at * out.step,
                    [
                        (x.repeat, 0, 0, out.step, 0),
                        (x.times, x.step * a.step, 0, x.repeat * out.step, 0),
                        (y.repeat, 0, 0, out.line, 0),
                        (y.times, y.step * a.line, 0, y.repeat * out.line, 0),
                        (box.blocks, a.plane, 0, out.plane, 0),
                    ],
                    lut=table, post=self.post.fields,
                )  # fmt: skip
        context.release(a)
        context.finish_tile(self.output, box, out)


def _most(places: Sequence[int], count: int) -> int:
    """Returns the largest extent of `count` neighbouring indices, from the smallest to the largest of them."""
    some = sliding_window_view(np.array(places), min(count, len(places)))
    return int((some.max(axis=1) - some.min(axis=1)).max()) + 1


def _bounds(axis: str, places: Sequence[int]) -> dict[str, int]:
    """Returns the first and end of an axis's indices, by the names of `Box`'s fields."""
    return {f"{axis}0": min(places), f"{axis}1": max(places) + 1}
