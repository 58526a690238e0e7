"""A kind of layer from outside: `SubsampleLayer` here is all that tilings, residency, fusion and emission ask for.

A kind that needs more than VECTOR derives from `Layer` and says itself how it is cut (`plans`) and emitted (`emit`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from compiler.npu.emit.context import ConstantPool, Context
from compiler.npu.emit.emitter import Emitter
from compiler.npu.emit.geometry import Box
from compiler.npu.layers.elementwise import ElementLayer, VectorLayer
from compiler.npu.layers.layer import Layer, Post, readers
from compiler.npu.layers.pooling import MaxPoolLayer
from compiler.npu.layers.sliding_window import SlidingWindow
from compiler.npu.schedule.bands import group_of
from compiler.npu.schedule.emission import emit_step
from compiler.npu.schedule.search import Schedule, search
from compiler.npu.views import View, dense_view
from isa.config import PRESETS, NpuConfig
from isa.instructions import Source
from isa.program import ARENA_REGION
from tests.common.machine_harness import Bench

TINY = PRESETS["tiny"]
CHANNELS, SIZE = 6, 20


@dataclass
class SubsampleLayer(VectorLayer):
    """Every `step[0]`-th row and `step[1]`-th column of the input."""

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
        context.emitter.vector(Source.ACT, a.base, out.base, loops, lut=table, post=self.post.fields())
        context.release(a)
        context.finish_tile(self.output, box, out)


def planes(name: str, height: int, width: int) -> View:
    return dense_view(name, name, ARENA_REGION, (1, CHANNELS, height, width), TINY.block_in)


def network() -> list[Layer]:
    """A table, the new kind, and a maximum over 3x3 windows."""
    table = bytes(range(255, -1, -1))
    views = [planes("x", SIZE, SIZE), planes("table", SIZE, SIZE), planes("less", SIZE // 2, SIZE // 4)]
    views.append(planes("y", SIZE // 2, SIZE // 4))
    return [
        ElementLayer("table", "QLut", [views[0]], views[1], Post(lut=table)),
        SubsampleLayer("less", "Subsample", [views[1]], views[2], Post(), step=(2, 4)),
        MaxPoolLayer("y", "QMaxPool", [views[2]], views[3], Post(), kernel=(3, 3), pad=(1, 1)),
    ]


def expected(x: np.ndarray) -> np.ndarray:
    less = (~x)[:, ::2, ::4]  # the table counts down: 255 - byte
    padded = np.pad(less, ((0, 0), (1, 1), (1, 1)), constant_values=-128)
    return np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2)).max((-1, -2))


def blocked(x: np.ndarray) -> np.ndarray:
    """[C, H, W] as the machine holds it: [CB][H][W][block]."""
    block = TINY.block_in
    full = np.zeros((-(-CHANNELS // block) * block, *x.shape[1:]), np.int8)
    full[:CHANNELS] = x
    return full.reshape(-1, block, *x.shape[1:]).transpose(0, 2, 3, 1)


def run(config: NpuConfig, layers: Sequence[Layer], schedule: Schedule, x: np.ndarray) -> np.ndarray:
    """The last layer's output, by the functional simulator."""
    offsets, at = {}, 0
    for view in (layers[0].inputs[0], *(layer.output for layer in layers)):
        offsets[view.buffer] = at
        at += -(-view.nbytes // 256) * 256
    emitter, constants = Emitter(config, at), ConstantPool()
    emit_step(Context(config, emitter, constants, offsets), schedule.units, schedule.stays)
    bench = Bench(config)
    bench.fill()
    bench.data[: constants.size] = np.frombuffer(constants.blob(), np.uint8)
    values = blocked(x)
    bench.out[: values.size] = values.reshape(-1).view(np.uint8)
    bench.run(emitter.image, end=False)
    y = layers[-1].output
    raw = bench.out[offsets[y.buffer] :][: y.nbytes].view(np.int8)
    return raw.reshape(y.cb, y.h, y.w, y.block).transpose(0, 3, 1, 2).reshape(-1, y.h, y.w)[:CHANNELS]


@pytest.mark.parametrize("rows", [4096, 512, 256])
def test_bytes(rows: int) -> None:
    """Alone or with what is between in ACT, in one tile or several."""
    config = TINY.with_(name="test", act_rows=rows)
    x = np.random.default_rng(rows).integers(-128, 128, (CHANNELS, SIZE, SIZE)).astype(np.int8)
    for effort in (0, 1):
        layers = network()
        schedule = search(config, layers, {"y"}, effort, None, {})
        assert np.array_equal(run(config, layers, schedule, x), expected(x))


def test_bytes_band_by_band() -> None:
    """Fused: each band of the output makes the rows it needs of what is between."""
    layers = network()
    group = group_of(layers, 0, 3, readers(layers), {"y"})
    x = np.random.default_rng(0).integers(-128, 128, (CHANNELS, SIZE, SIZE)).astype(np.int8)
    assert group is not None
    for step in (1, 3, 4):
        assert np.array_equal(run(TINY, layers, Schedule([], [replace(group, step=step)]), x), expected(x))
