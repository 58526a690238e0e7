"""Buffers of tensors that VECTOR makes for the array, band by band: two in turn, in different banks of ACT."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from tests.unit.compiler.npu.layers.running import planes, run
from tilewright.compiler.npu.emit.context import ConstantPool, Context
from tilewright.compiler.npu.emit.emitter import Emitter
from tilewright.compiler.npu.layers.conv import ConvLayer
from tilewright.compiler.npu.layers.conv_tiling import Phase
from tilewright.compiler.npu.layers.layer import Layer, Post, readers
from tilewright.compiler.npu.layers.pooling import MaxPoolLayer
from tilewright.compiler.npu.schedule.bands import LayerGroup, emit_group, group_of
from tilewright.compiler.npu.schedule.problem import Schedule
from tilewright.isa import numerics
from tilewright.isa.config import PRESETS, NpuConfig

TINY = PRESETS["tiny"]
RANDOM = np.random.default_rng(0)
WEIGHTS = RANDOM.integers(-20, 20, (1, 6, 10, 1, 1)).astype(np.int8)
SCALE = (RANDOM.random(6) / 50).astype(np.float32)


def layers(size: int, *, pool_first: bool = True) -> list[Layer]:
    """Returns a 3x3 maximum and a 1x1 convolution, in either order."""
    channels = (10, 10, 6) if pool_first else (10, 6, 6)
    x, m, y = (planes(name, c, size, size, TINY) for name, c in zip("xmy", channels))
    made = (x, m) if pool_first else (m, y)
    pool = MaxPoolLayer(made[1].buffer, "QMaxPool", [made[0]], made[1], Post(), kernel=(3, 3), pad=(1, 1))
    read = (m, y) if pool_first else (x, m)
    conv = ConvLayer(
        read[1].buffer, "QConv", [read[0]], read[1], Post(), phases=[Phase(WEIGHTS, (0, 0))],
        bias=np.zeros(6, np.int32), scale=SCALE,
    )  # fmt: skip
    return [pool, conv] if pool_first else [conv, pool]


def grouped(of: list[Layer], step: int) -> LayerGroup:
    """Returns both layers as a fused group with `step` rows per band."""
    found = group_of(of, 0, 2, readers(of), {"y"})
    assert found is not None
    return replace(found, step=step)


def buffers(config: NpuConfig, group: LayerGroup) -> tuple[int, int]:
    """Returns the number of buffers of the tensor between, and its rows from a channel block to the next."""
    emitter = Emitter(config, 0, dry=True)
    context = Context(config, emitter, ConstantPool(), dict.fromkeys("xmy", 0))
    planes_seen = []
    usual = context.tiles_from

    def looked(heap: object) -> object:
        planes_seen.append(context.bands["m"].plane)
        return usual(heap)  # type: ignore[arg-type]

    context.tiles_from = looked  # type: ignore[method-assign,assignment]
    made = emit_group(context, group)[0]
    assert context.heap.free_rows == config.act_rows
    return len({next(made.buffers) for _ in range(4)}), planes_seen[0]


def test_two_where_vector_makes_it_for_the_array() -> None:
    count, plane = buffers(TINY, grouped(layers(12), 2))
    assert count == 2 and plane >= 2 * 12 and plane % TINY.act_banks == 1


def test_one_where_the_array_makes_it() -> None:
    count, plane = buffers(TINY, grouped(layers(12, pool_first=False), 2))
    assert count == 1 and plane == 4 * 14  # lines and columns that a 3x3 reads


def test_one_where_there_is_no_room() -> None:
    small = TINY.with_(act_rows=3 * 256)
    assert buffers(small, grouped(layers(16), 4))[0] == 2
    assert buffers(small, grouped(layers(16), 12))[0] == 1


def test_one_where_there_is_one_band() -> None:
    assert buffers(TINY, grouped(layers(12), 12))[0] == 1


@pytest.mark.parametrize("step", [1, 2, 5])
@pytest.mark.parametrize("pool_first", [True, False])
def test_values(step: int, pool_first: bool) -> None:
    x = RANDOM.integers(-128, 128, (10, 12, 12)).astype(np.int8)
    both = layers(12, pool_first=pool_first)
    found = run(TINY, both, Schedule([], [grouped(both, step)]), x)
    assert np.array_equal(found, _product(_maximum(x)) if pool_first else _maximum(_product(x)))


def _maximum(x: np.ndarray) -> np.ndarray:
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1)), constant_values=-128)
    return np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2)).max((-2, -1))


def _product(x: np.ndarray) -> np.ndarray:
    sums = np.einsum("oc,chw->ohw", WEIGHTS[0, :, :, 0, 0].astype(np.int64), x.astype(np.int64))
    return np.stack(
        [
            numerics.requantize(s, bits, 0, -128, 127)
            for s, bits in zip(sums.astype(np.int32), numerics.scale_bits(SCALE))
        ]
    )
