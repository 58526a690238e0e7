"""Depthwise layers whose padding is pushed once for two lines: every such tiling gives the right bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

import numpy as np
import pytest

from tests.unit.compiler.npu.layers.running import planes, run
from tilewright.compiler.npu.emit.context import ConstantPool, Context
from tilewright.compiler.npu.emit.emitter import Emitter
from tilewright.compiler.npu.layers.depthwise import DepthwiseLayer, WindowTiling
from tilewright.compiler.npu.layers.depthwise_passes import Pads, TapGroup, _shared
from tilewright.compiler.npu.layers.layer import Post
from tilewright.compiler.npu.schedule.problem import Schedule
from tilewright.isa.config import PRESETS, NpuConfig

CONFIGS = {name: PRESETS[name] for name in ("tiny", "small", "wide", "base")}


@dataclass(frozen=True)
class Case:
    """A depthwise layer with sizes as (rows, columns).

    Attributes:
        less: outputs fewer than with as much padding behind as before.
    """

    config: NpuConfig
    channels: int
    size: tuple[int, int]
    kernel: tuple[int, int]
    pad: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    fill: int
    less: tuple[int, int]

    @property
    def out(self) -> tuple[int, int]:
        """The rows and columns of the output."""
        axes = zip(self.size, self.kernel, self.pad, self.stride, self.dilation, self.less)
        h, w = ((n + 2 * p - (k - 1) * d - 1) // s + 1 - few for n, k, p, s, d, few in axes)
        return h, w


def case(random: Random, config: NpuConfig) -> Case:
    """Returns a random layer with at least one output."""
    while True:
        pair = lambda least, most: (random.randint(least, most), random.randint(least, most))
        kernel, dilation = pair(1, 5), (random.choice((1, 1, 2)), random.choice((1, 1, 2)))
        pad = random.randint(0, (kernel[0] - 1) * dilation[0]), random.randint(0, (kernel[1] - 1) * dilation[1])
        stride = random.choice(((1, 1), (1, 1), (2, 2), (1, 2), (2, 1)))
        channels = random.randint(1, 3 * config.block_in)
        size, fill, less = pair(1, 11), random.choice((0, -128, 17)), random.choice(((0, 0), (0, 0), pair(0, 2)))
        found = Case(config, channels, size, kernel, pad, stride, dilation, fill, less)
        if min(found.out) > 0:
            return found


def expected(x: np.ndarray, weights: np.ndarray, c: Case) -> np.ndarray:
    """Returns the sums of a layer, int64 [C, H, W], added up tap by tap."""
    (top, left), (down, right) = c.pad, c.stride
    reach = [(k - 1) * d for k, d in zip(c.kernel, c.dilation)]
    padded = np.pad(x, ((0, 0), (top, top + reach[0]), (left, left + reach[1])), constant_values=c.fill)
    sums = np.zeros((len(x), *c.out), np.int64)
    for i, j in np.ndindex(c.kernel):
        y0, x0 = i * c.dilation[0], j * c.dilation[1]
        part = padded[:, y0 : y0 + (c.out[0] - 1) * down + 1 : down, x0 : x0 + (c.out[1] - 1) * right + 1 : right]
        sums += part.astype(np.int64) * weights[:, i, j, None, None]
    return sums


def test_more_padding_than_outputs() -> None:
    """A row of one vector under a kernel of five has one output, and two vectors of padding on either side."""
    taps = TapGroup(first=0, every=1, taps=5, push=1, lag=1, emit=1)
    assert _shared(taps, outputs=1, dilation=1, extent=5, pads=Pads(2, 2)) == 1


@pytest.mark.medium
@pytest.mark.parametrize("layers", [30, pytest.param(100, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", CONFIGS)
def test_shared_padding(name: str, layers: int) -> None:
    random, rng, config = Random(name), np.random.default_rng(1), CONFIGS[name]
    tilings, missing = 0, 0
    for _ in range(layers):
        c = case(random, config)
        x = rng.integers(-128, 128, (c.channels, *c.size)).astype(np.int8)
        weights = rng.integers(-128, 128, (c.channels, *c.kernel)).astype(np.int8)
        scale = np.full(c.channels, 2.0**-10, np.float32)
        layer = DepthwiseLayer(
            "y", "QConv", [planes("x", c.channels, *c.size, config)], planes("y", c.channels, *c.out, config),
            Post(zp=3), weights=weights, bias=np.zeros(c.channels, np.int32), scale=scale, pad=c.pad, stride=c.stride,
            dilation=c.dilation, fill=c.fill,
        )  # fmt: skip
        wanted = np.clip(np.rint(expected(x, weights, c) * 2.0**-10) + 3, -128, 127).astype(np.int8)
        counting = Context(config, Emitter(config, 0, dry=True), ConstantPool(), {"x": 0, "y": 0})
        shared = [p for p in layer.plans(counting, config.act_rows, every=True) if p.tiling.shared]
        for plan in random.sample(shared, min(len(shared), 3)):
            assert isinstance(plan.tiling, WindowTiling)
            schedule = replace(Schedule.plain([layer]), tiles={0: plan.numbers()})
            assert (run(config, [layer], schedule, x) == wanted).all(), (c, plan.tiling)
            tilings += 1
            missing += c.fill != 0
    assert tilings > 0.3 * layers and missing > 0.2 * layers
