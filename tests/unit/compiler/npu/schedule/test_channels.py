"""Groups that run by channels: every way to cut them gives the right bytes, and other groups are refused."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

import numpy as np
import pytest

from tests.unit.compiler.npu.layers.running import planes, run
from tilewright.compiler.errors import CompileError
from tilewright.compiler.npu.emit.context import ConstantPool, Context
from tilewright.compiler.npu.emit.emitter import Emitter
from tilewright.compiler.npu.layers.conv import ConvLayer
from tilewright.compiler.npu.layers.conv_tiling import Phase
from tilewright.compiler.npu.layers.depthwise import DepthwiseLayer
from tilewright.compiler.npu.layers.elementwise import ElementLayer
from tilewright.compiler.npu.layers.layer import Add, Layer, Post, readers
from tilewright.compiler.npu.layers.pooling import MaxPoolLayer, MeanLayer
from tilewright.compiler.npu.layers.take import TakeLayer
from tilewright.compiler.npu.schedule.bands import LayerGroup
from tilewright.compiler.npu.schedule.channels import channel_group, channel_plans
from tilewright.compiler.npu.schedule.decisions import Decisions, decisions_of, schedule_of
from tilewright.compiler.npu.schedule.problem import Schedule, StepProblem
from tilewright.compiler.npu.views import View
from tilewright.isa.config import PRESETS, NpuConfig

CONFIGS = {name: PRESETS[name] for name in ("tiny", "small", "wide", "base")}
SCALE = 2.0**-9


@dataclass
class Chain:
    """Layers one behind the other, and their result for an input in numpy.

    Attributes:
        config: the machine.
        rng: random numbers for weights and tables.
        x: result of the layers so far, int8 [C, H, W].
        layers: the layers.
    """

    config: NpuConfig
    rng: np.random.Generator
    x: np.ndarray
    layers: list[Layer]

    @staticmethod
    def of(config: NpuConfig, seed: int, channels: int, size: tuple[int, int]) -> Chain:
        rng = np.random.default_rng(seed)
        return Chain(config, rng, rng.integers(-128, 128, (channels, *size)).astype(np.int8), [])

    def conv(self, outputs: int, kernel: int = 1, pad: int = 0, beyond: float = 0) -> None:
        """Adds a convolution; `beyond` is the share of weights beyond int8."""
        weights = self._weights(outputs, len(self.x), kernel, kernel)
        few = np.where(self.rng.random(weights.shape) < beyond, self._weights(*weights.shape), 0).astype(np.int8)
        both = weights.astype(np.int64) + few
        sums = sum(
            np.einsum("oc,chw->ohw", both[:, :, i, j], taken)
            for (i, j), taken in self._taken((kernel, kernel), pad, 1, 5)
        )
        x, y = self._views(np.asarray(sums))
        phase = Phase.of(np.stack([weights, few] if beyond else [weights]), 1, self.config, (pad, pad))
        bias, scale = np.zeros(outputs, np.int32), np.full(outputs, SCALE, np.float32)
        self._add(
            ConvLayer(y.buffer, "QConv", [x], y, Post(zp=3), phases=[phase], bias=bias, scale=scale, fill=5), sums
        )

    def depthwise(self, kernel: int, pad: int, stride: int) -> None:
        weights = self._weights(len(self.x), kernel, kernel)
        taken = self._taken((kernel, kernel), pad, stride, -7)
        sums = sum(weights[:, i, j, None, None].astype(np.int64) * part for (i, j), part in taken)
        x, y = self._views(np.asarray(sums))
        bias, scale = np.zeros(x.c, np.int32), np.full(x.c, SCALE, np.float32)
        self._add(DepthwiseLayer(
            y.buffer, "QConv", [x], y, Post(zp=3), weights=weights, bias=bias, scale=scale, pad=(pad, pad),
            stride=(stride, stride), fill=-7,
        ), sums)  # fmt: skip

    def largest(self, kernel: int, pad: int) -> None:
        made = np.max([part for _, part in self._taken((kernel, kernel), pad, 1, -128)], axis=0)
        x, y = self._views(made)
        self._add(MaxPoolLayer(y.buffer, "QMaxPool", [x], y, Post(), kernel=(kernel, kernel), pad=(pad, pad)), made, 0)

    def table(self) -> None:
        table = self.rng.integers(0, 256, 256).astype(np.uint8)
        made = table[self.x.view(np.uint8)].view(np.int8)
        x, y = self._views(made)
        self._add(ElementLayer(y.buffer, "QLut", [x], y, Post(lut=table.tobytes())), made, 0)

    def nearest(self, rows: int, columns: int) -> None:
        """Adds a layer that repeats rows and columns so many times."""
        places = [tuple(np.repeat(range(size), times)) for size, times in zip(self.x.shape[1:], (rows, columns))]
        made = self.x[:, places[0]][:, :, places[1]]
        x, y = self._views(made)
        self._add(TakeLayer(y.buffer, "QTake", [x], y, Post(), rows=places[0], columns=places[1]), made, 0)

    def mean(self) -> None:
        sums = self.x.astype(np.int64).sum((1, 2), keepdims=True)
        x, y = self._views(sums)
        self._add(MeanLayer(y.buffer, "QGlobalAveragePool", [x], y, Post(zp=3), scale=np.float32(SCALE)), sums)

    def _weights(self, *shape: int) -> np.ndarray:
        return self.rng.integers(-128, 128, shape).astype(np.int8)

    def _taken(
        self, kernel: tuple[int, int], pad: int, stride: int, fill: int
    ) -> list[tuple[tuple[int, int], np.ndarray]]:
        """Returns each tap, and the inputs under it, int64 [C, H, W]."""
        padded = np.pad(self.x, ((0, 0), (pad, pad), (pad, pad)), constant_values=fill).astype(np.int64)
        h, w = ((padded.shape[axis + 1] - kernel[axis]) // stride + 1 for axis in (0, 1))
        return [
            ((i, j), padded[:, i : i + (h - 1) * stride + 1 : stride, j : j + (w - 1) * stride + 1 : stride])
            for i, j in np.ndindex(kernel)
        ]

    def _views(self, made: np.ndarray) -> tuple[View, View]:
        name = f"t{len(self.layers)}"
        x = self.layers[-1].output if self.layers else planes("x", *self.x.shape, self.config)
        return x, planes(name, *made.shape, self.config)

    def _add(self, layer: Layer, made: np.ndarray, requantised: int = 1) -> None:
        made = np.rint(made * SCALE) + 3 if requantised else made
        self.x = np.clip(made, -128, 127).astype(np.int8)
        self.layers.append(layer)

    def group(self) -> LayerGroup | None:
        return channel_group(self.config, self.layers, 0, len(self.layers), readers(self.layers), {"none"})


def chain(random: Random, config: NpuConfig, seed: int) -> tuple[Chain, np.ndarray]:
    """Returns a convolution with layers by channel and perhaps a product behind it, and the input, int8 [C, H, W]."""
    block = config.block_in
    made = Chain.of(config, seed, random.randint(1, 3 * block), (random.randint(1, 7), random.randint(1, 7)))
    x = made.x
    made.conv(random.randint(block, 5 * block), *random.choice(((1, 0), (1, 0), (3, 1))), random.choice((0, 0, 0.002)))
    for _ in range(random.randint(0, 2)):
        kind = random.randrange(4)
        if kind == 0:
            made.depthwise(*random.choice(((3, 1), (3, 1), (2, 1), (5, 2))), stride=random.choice((1, 2)))
        elif kind == 1:
            made.largest(3, 1)
        elif kind == 2:
            made.table()
        else:
            made.mean()
    if len(made.layers) == 1 or random.random() < 0.5:
        made.conv(random.randint(1, 4 * block), beyond=random.choice((0, 0, 0.002)))
    return made, x


@pytest.mark.medium
@pytest.mark.parametrize("chains", [20, pytest.param(60, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", CONFIGS)
def test_every_way_gives_the_right_bytes(name: str, chains: int) -> None:
    random, config = Random(name), CONFIGS[name]
    ways = 0
    for seed in range(chains):
        made, x = chain(random, config, seed)
        group = made.group()
        if group is None:  # sums of the product do not fit ACC
            continue
        context = Context(
            config, Emitter(config, 0, dry=True), ConstantPool(), {"x": 0, made.layers[-1].output.buffer: 0}
        )
        found = [*channel_plans(context, group).first]
        for plan in random.sample(found, min(len(found), 3)):
            schedule = Schedule([], [group], {0: plan.numbers()})
            assert (run(config, made.layers, schedule, x) == made.x).all(), (seed, made.layers, plan.tiling)
            ways += 1
    assert ways > chains


@pytest.mark.medium
def test_the_tensors_between_need_no_room_for_more_than_two_chunks() -> None:
    """Planes of 40 blocks run in an ACT that holds nine of them."""
    config = PRESETS["base"].with_(name="short of rows", act_rows=512)
    made = Chain.of(config, 1, 16, (7, 7))
    x = made.x
    made.conv(640)
    made.depthwise(3, 1, 1)
    made.mean()
    made.conv(100)
    group = made.group()
    assert group is not None
    assert (run(config, made.layers, Schedule([], [group]), x) == made.x).all()


def test_what_cannot_run_by_channels_does_not() -> None:
    config = PRESETS["base"]

    def some(*outside: str) -> tuple[Chain, LayerGroup | None]:
        made = Chain.of(config, 1, 32, (6, 6))
        made.conv(64)
        made.depthwise(3, 1, 1)
        made.conv(32)
        return made, channel_group(config, made.layers, 0, 3, readers(made.layers), {*outside})

    made, group = some()
    assert group is not None and group.by_channel
    assert some("t1")[1] is None  # others read what passes
    assert channel_group(config, made.layers, 1, 2, readers(made.layers), set()) is None  # begins with no convolution
    made.conv(32, kernel=3, pad=1)  # would need padding around sums that come bit by bit
    assert channel_group(config, made.layers, 2, 2, readers(made.layers), set()) is None
    two = Chain.of(config, 1, 32, (6, 6))
    two.conv(64)
    two.table()
    two.layers[1] = replace(two.layers[1], post=Post(add=Add(two.layers[0].output, {}, -128, 127)))
    assert two.group() is None  # a tensor that is read twice
    big = Chain.of(config, 1, 32, (40, 40))
    big.conv(32)
    big.conv(32)
    assert big.group() is None  # 1,600 pixels of sums in 1,024 rows


def test_decisions_keep_such_a_group() -> None:
    made = Chain.of(PRESETS["base"], 1, 32, (6, 6))
    made.conv(64)
    made.mean()
    made.conv(32)
    group = made.group()
    assert group is not None
    decisions = decisions_of(Schedule([], [group]))
    assert decisions.units == ((3, 0),)
    again = schedule_of(StepProblem(made.config, made.layers, {"t2"}), Decisions.from_dict(decisions.to_dict()))
    assert again.units == [group]
    for units in (((3, -1),), ((2, 0), (1, 1), (1, 0))):
        with pytest.raises(CompileError):
            schedule_of(StepProblem(made.config, made.layers, {"t2"}), Decisions((), units))


@pytest.mark.parametrize("step", [-1, 6])
def test_bands_have_rows(step: int) -> None:
    """A band has at least one row and fewer than the image."""
    made = Chain.of(PRESETS["base"], 1, 32, (6, 6))
    made.conv(64)
    made.conv(32)
    with pytest.raises(CompileError, match=f"layers 0..1 cannot run {step} rows at a time"):
        schedule_of(StepProblem(made.config, made.layers, {"t1"}), Decisions((), ((2, step),)))
