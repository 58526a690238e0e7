"""Maxima over windows in passes: they cover every window, take fewer steps, and give the bytes in tiles and bands."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from tests.unit.compiler.npu.layers.running import planes, run
from tilewright.compiler.npu.layers.elementwise import ElementLayer
from tilewright.compiler.npu.layers.layer import Layer, Post, readers
from tilewright.compiler.npu.layers.pooling import MaxPoolLayer
from tilewright.compiler.npu.layers.pooling_passes import between, passes_of, steps, taps_of_passes
from tilewright.compiler.npu.layers.sliding_window import SlidingWindow
from tilewright.compiler.npu.schedule.bands import group_of
from tilewright.compiler.npu.schedule.problem import Schedule
from tilewright.isa.config import PRESETS

TINY = PRESETS["tiny"]
CHANNELS = 6


def test_passes_cover_lines_with_fewer_steps() -> None:
    for taps in range(1, 64):
        reached, passes = {0}, taps_of_passes(taps)
        for count, apart in passes:
            reached = {at + apart * tap for at in reached for tap in range(count)}
        assert reached == set(range(taps))
        assert sum(count + 1 for count, _ in passes) <= taps + 1
    assert taps_of_passes(13) == ((4, 1), (4, 3))


@pytest.mark.parametrize(
    ("kernel", "stride", "passes", "count"),
    [((2, 2), 2, 1, 4), ((3, 3), 2, 1, 9), ((3, 3), 1, 2, 6), ((5, 5), 1, 2, 10), ((13, 13), 1, 4, 16)],
)
def test_windows_that_are_worth_passes(kernel: tuple[int, int], stride: int, passes: int, count: int) -> None:
    """Windows whose values take `count` steps on a large plane, but for the borders."""
    found = passes_of(SlidingWindow(kernel, stride=(stride, stride)), 400, 400)
    assert len(found) == passes and count * 400**2 <= steps(found, 400, 400) < 1.04 * count * 400**2
    assert len(between(found, 400, 400)) == passes - 1


def maxima(x: np.ndarray, layer: MaxPoolLayer) -> np.ndarray:
    """Returns the output of a pool for its input int8 [C, H, W], one window at a time."""
    y, (kh, kw), (dy, dx) = layer.output, layer.kernel, layer.dilation
    padded = np.full((len(x), 200, 200), -128, np.int8)
    top, left = layer.pad
    padded[:, top : top + x.shape[1], left : left + x.shape[2]] = x
    found = np.empty((len(x), y.h, y.w), np.int8)
    for row in range(y.h):
        for column in range(y.w):
            at, to = row * layer.stride[0], column * layer.stride[1]
            taps = padded[:, at : at + (kh - 1) * dy + 1 : dy, to : to + (kw - 1) * dx + 1 : dx]
            found[:, row, column] = taps.max((1, 2))
    return found


def random_pool(random: np.random.Generator) -> tuple[MaxPoolLayer, np.ndarray]:
    """Returns a pool with a random window, and a random input."""
    while True:
        size, kernel = random.integers(4, 24, 2), random.integers(1, 14, 2)
        pad, stride = random.integers(0, kernel), random.integers(1, 4, 2)
        dilation = random.integers(1, 3, 2)
        extent = size + 2 * pad - (kernel - 1) * dilation - 1
        if (extent >= 0).all():
            break
    height, width = extent // stride + 1
    x, y = planes("x", CHANNELS, *size.tolist(), TINY), planes("y", CHANNELS, int(height), int(width), TINY)
    pairs = {
        name: tuple(values.tolist())
        for name, values in {"kernel": kernel, "pad": pad, "stride": stride, "dilation": dilation}.items()
    }
    table = random.integers(0, 256, 256).astype(np.uint8)
    layer = MaxPoolLayer("y", "QMaxPool", [x], y, Post(lut=table.tobytes()), **pairs)
    return layer, random.integers(-128, 128, (CHANNELS, *size)).astype(np.int8)


@pytest.mark.medium
@pytest.mark.parametrize("seed", range(40))
def test_random_windows_give_the_bytes(seed: int) -> None:
    random = np.random.default_rng(seed)
    layer, x = random_pool(random)
    assert layer.post.lut is not None
    table = np.frombuffer(layer.post.lut, np.int8)
    schedule = Schedule.plain([layer])
    if seed % 2:  # a tile of any size
        y = layer.output
        schedule.tiles[0] = (int(random.integers(1, y.h + 1)), y.w, 1)
    assert np.array_equal(run(TINY, [layer], schedule, x), table[maxima(x, layer).view(np.uint8)])


@pytest.mark.parametrize("step", [1, 3])
def test_a_pool_in_bands(step: int) -> None:
    """The pool is between a table and another pool, some rows at a time."""
    x, a, b, y = (planes(name, CHANNELS, 12, 12, TINY) for name in "xaby")
    table = bytes(range(255, -1, -1))
    first = MaxPoolLayer("b", "QMaxPool", [a], b, Post(), kernel=(5, 5), pad=(2, 2))
    last = MaxPoolLayer("y", "QMaxPool", [b], y, Post(), kernel=(3, 3), pad=(1, 1))
    layers: list[Layer] = [ElementLayer("a", "QLut", [x], a, Post(lut=table)), first, last]
    group = group_of(layers, 0, 3, readers(layers), {"y"})
    assert group is not None
    values = np.random.default_rng(step).integers(-128, 128, (CHANNELS, 12, 12)).astype(np.int8)
    expected = maxima(maxima(np.bitwise_not(values), first), last)
    assert np.array_equal(run(TINY, layers, Schedule([], [replace(group, step=step)]), values), expected)
