"""A kind of layer from outside: `SubsampleLayer` here suffices for tilings, residency, fusion and emission.

A kind that needs more than VECTOR derives from `Layer` and defines its tilings (`plans`) and instructions (`emit`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from msgspec.structs import replace

from tests.unit.compiler.npu.layers.running import planes, run
from tilewright.compiler.npu.emit.context import Context
from tilewright.compiler.npu.emit.geometry import Box
from tilewright.compiler.npu.layers.elementwise import ElementLayer, VectorLayer
from tilewright.compiler.npu.layers.layer import Layer, Post, readers
from tilewright.compiler.npu.layers.pooling import MaxPoolLayer
from tilewright.compiler.npu.layers.sliding_window import SlidingWindow
from tilewright.compiler.npu.schedule.bands import group_of
from tilewright.compiler.npu.schedule.problem import Schedule, StepProblem
from tilewright.compiler.npu.schedule.search import search
from tilewright.isa.config import PRESETS
from tilewright.isa.instructions import Source

TINY = PRESETS["tiny"]
CHANNELS, SIZE = 6, 20


@dataclass
class SubsampleLayer(VectorLayer):
    """Selects every `step[0]`-th row and `step[1]`-th column of the input."""

    step: tuple[int, int] = (2, 2)

    def input_box(self, box: Box) -> Box:
        return SlidingWindow((1, 1), stride=self.step).box(box)

    def input_rows(self, span: tuple[int, int]) -> tuple[int, int]:
        return SlidingWindow((1, 1), stride=self.step).span(*span, 0)

    def emit_tile(self, context: Context, box: Box) -> None:
        a = context.read_tile(self.inputs[0], self.input_box(box))
        out = context.write_tile(self.output, box)
        table = context.load_table(self.post.lut)
        loops = [
            (box.columns, self.step[1], 0, 1, 0),
            (box.lines, self.step[0] * a.line, 0, out.line, 0),
            (box.blocks, a.plane, 0, out.plane, 0),
        ]
        context.emitter.vector(Source.ACT, a.base, out.base, loops, lut=table, post=self.post.fields)
        context.release(a)
        context.finish_tile(self.output, box, out)


def network() -> list[Layer]:
    """Returns a table, the new kind, and a maximum over 3x3 windows."""
    table = bytes(range(255, -1, -1))
    sizes = {"x": (SIZE, SIZE), "table": (SIZE, SIZE), "less": (SIZE // 2, SIZE // 4), "y": (SIZE // 2, SIZE // 4)}
    views = [planes(name, CHANNELS, *size, TINY) for name, size in sizes.items()]
    return [
        ElementLayer("table", "QLut", [views[0]], views[1], Post(lut=table)),
        SubsampleLayer("less", "Subsample", [views[1]], views[2], Post(), step=(2, 4)),
        MaxPoolLayer("y", "QMaxPool", [views[2]], views[3], Post(), kernel=(3, 3), pad=(1, 1)),
    ]


def expected(x: np.ndarray) -> np.ndarray:
    """Returns the network's output, int8 [C, H, W], in numpy."""
    less = (~x)[:, ::2, ::4]  # the table counts down: 255 - byte
    padded = np.pad(less, ((0, 0), (1, 1), (1, 1)), constant_values=-128)
    return np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2)).max((-1, -2))


@pytest.mark.parametrize("rows", [4096, 512, 256])
def test_bytes(rows: int) -> None:
    """The network gives the right bytes, in one tile or several, with the tensors between in ACT or not."""
    config = TINY.with_(name="test", act_rows=rows)
    x = np.random.default_rng(rows).integers(-128, 128, (CHANNELS, SIZE, SIZE)).astype(np.int8)
    for effort in (0, 1):
        layers = network()
        schedule = search(StepProblem(config, layers, {"y"}), effort)
        assert np.array_equal(run(config, layers, schedule, x), expected(x))


def test_bytes_band_by_band() -> None:
    """Fused layers give the right bytes: each band of the output makes the rows it needs of the tensors between."""
    layers = network()
    group = group_of(layers, 0, 3, readers(layers), {"y"})
    x = np.random.default_rng(0).integers(-128, 128, (CHANNELS, SIZE, SIZE)).astype(np.int8)
    assert group is not None
    for step in (1, 3, 4):
        assert np.array_equal(run(TINY, layers, Schedule([], [replace(group, step=step)]), x), expected(x))
