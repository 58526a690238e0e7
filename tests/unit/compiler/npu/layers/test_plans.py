"""Tilings: each one that a kind of layer offers gives the right bytes, and the cheapest that fits is taken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.unit.compiler.npu.layers.running import planes, run
from tilewright.compiler.npu.emit.context import ConstantPool, Context
from tilewright.compiler.npu.emit.emitter import Emitter
from tilewright.compiler.npu.emit.scratch import ScratchpadFull
from tilewright.compiler.npu.emit.tiles import SOMEWHERE
from tilewright.compiler.npu.layers.conv import ConvLayer
from tilewright.compiler.npu.layers.conv_tiling import Phase
from tilewright.compiler.npu.layers.depthwise import DepthwiseLayer
from tilewright.compiler.npu.layers.elementwise import ElementLayer
from tilewright.compiler.npu.layers.layer import Layer, Post
from tilewright.compiler.npu.layers.pooling import MaxPoolLayer
from tilewright.compiler.npu.layers.take import TakeLayer
from tilewright.compiler.npu.schedule.problem import Schedule
from tilewright.compiler.npu.views import View
from tilewright.isa.config import PRESETS, NpuConfig

TINY = PRESETS["tiny"]
CHANNELS, OUTPUTS, SIZE = 6, 5, 5
SCALE = np.float32(2.0**-9)
RNG = np.random.default_rng(0)
X = RNG.integers(-128, 128, (CHANNELS, SIZE, SIZE)).astype(np.int8)
WEIGHTS = RNG.integers(-128, 128, (OUTPUTS, CHANNELS, 3, 3)).astype(np.int8)
BIAS = RNG.integers(-1000, 1000, CHANNELS).astype(np.int32)


def views(outputs: int) -> tuple[list[View], View]:
    return [planes("x", CHANNELS, SIZE, SIZE, TINY)], planes("y", outputs, SIZE, SIZE, TINY)


def conv() -> tuple[Layer, np.ndarray]:
    inputs, output = views(OUTPUTS)
    layer = ConvLayer(
        "y", "QConv", inputs, output, Post(zp=3), phases=[Phase(WEIGHTS[None], (1, 1))], bias=BIAS[:OUTPUTS],
        scale=np.full(OUTPUTS, SCALE),
    )  # fmt: skip
    return layer, requantised(np.einsum("chwij,ocij->ohw", windows(0), WEIGHTS.astype(np.int64)))


def depthwise() -> tuple[Layer, np.ndarray]:
    inputs, output = views(CHANNELS)
    weights = WEIGHTS.reshape(-1, 3, 3)[:CHANNELS]
    layer = DepthwiseLayer(
        "y", "QConv", inputs, output, Post(zp=3), weights=weights, bias=BIAS, scale=np.full(CHANNELS, SCALE), pad=(1, 1)
    )
    return layer, requantised(np.einsum("chwij,cij->chw", windows(0), weights.astype(np.int64)))


def windows(padding: int) -> np.ndarray:
    """Returns the inputs under the kernel of every output, int64 [C, H, W, 3, 3]."""
    padded = np.pad(X, ((0, 0), (1, 1), (1, 1)), constant_values=padding)
    return np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2)).astype(np.int64)


def requantised(sums: np.ndarray) -> np.ndarray:
    """Returns sums with their biases as int8."""
    biased = sums + BIAS[: len(sums), None, None]
    return np.clip(np.rint(biased * float(SCALE)) + 3, -128, 127).astype(np.int8)


def max_pool() -> tuple[Layer, np.ndarray]:
    inputs, output = views(CHANNELS)
    return MaxPoolLayer("y", "QMaxPool", inputs, output, Post(), kernel=(3, 3), pad=(1, 1)), windows(-128).max((-1, -2))


def take() -> tuple[Layer, np.ndarray]:
    """Returns a layer that reverses columns and repeats rows."""
    inputs, output = views(CHANNELS)
    rows, columns = (0, 0, 2, 2, 4), (4, 3, 2, 1, 0)
    return TakeLayer("y", "QTake", inputs, output, Post(), rows=rows, columns=columns), X[:, rows][:, :, columns]


def table() -> tuple[Layer, np.ndarray]:
    inputs, output = views(CHANNELS)
    lut = RNG.integers(0, 256, 256).astype(np.uint8)
    return ElementLayer("y", "QLut", inputs, output, Post(lut=lut.tobytes())), lut[X.view(np.uint8)].view(np.int8)


#: Returns a layer, and its output for `X`.
Kind = Callable[[], tuple[Layer, np.ndarray]]
KINDS: list[Kind] = [conv, depthwise, max_pool, take, table]


def counting(config: NpuConfig = TINY) -> Context:
    """Returns a context that only counts work."""
    return Context(config, Emitter(config, 0, dry=True), ConstantPool(), {"x": 0, "y": 0})


@pytest.mark.medium
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("budget", [60, 400])
def test_every_plan_gives_the_bytes(kind: Kind, budget: int) -> None:
    layer, expected = kind()
    tilings = sorted({plan.numbers() for plan in layer.plans(counting(), budget, every=True)})
    assert tilings
    for tiling in tilings[:: max(1, len(tilings) // 12)]:
        schedule = Schedule.plain([layer])
        schedule.tiles[0] = tiling
        assert np.array_equal(run(TINY, [layer], schedule, X), expected), tiling


def test_a_piece_of_weights_may_fill_wgt() -> None:
    """A layer runs where there is no room to load the next piece meanwhile."""
    config = replace(TINY, name="few", wgt_tiles=12)
    layer, expected = conv()
    assert 12 // 2 < WEIGHTS.shape[2] * WEIGHTS.shape[3] <= 12
    tilings = {plan.numbers() for plan in layer.plans(counting(config), 100, every=True)}
    assert len(tilings) > 3
    for tiling in sorted(tilings)[::4]:
        schedule = Schedule.plain([layer])
        schedule.tiles[0] = tiling
        assert np.array_equal(run(config, [layer], schedule, X), expected), tiling
    with pytest.raises(ScratchpadFull):
        layer.plan(counting(replace(config, wgt_tiles=8)), 100)


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_plan_is_the_cheapest_that_fits(kind: Kind) -> None:
    layer, _ = kind()
    for budget in (40, 100, 1000):
        plans = list(layer.plans(counting(), budget))
        every = list(layer.plans(counting(), budget, every=True))
        assert set(plans) <= set(every) and all(sum(plan.pools) <= budget for plan in every)
        assert plans[-1].cycles == min(plan.cycles for plan in every)
        assert layer.plan(counting(), budget).cycles <= layer.plan(counting(), 40).cycles


@pytest.mark.parametrize("kind", KINDS)
def test_plans_found_for_more_rows_are_those_of_fewer(kind: Kind) -> None:
    layer, _ = kind()
    context, reused = counting(), 0
    for budget in range(128, 24, -4):
        reused += (
            context.plans.for_larger_budget(
                (layer.plan_key, None, (context.accumulators.rows, False, False), None), budget
            )
            is not None
        )
        assert layer.plan(context, budget) == layer.plan(counting(), budget)
    assert reused > 3 or not layer.cheapest


@pytest.mark.parametrize("kind", KINDS)
def test_plans_of_some_rows_are_those_of_as_many_others(kind: Kind) -> None:
    layer, _ = kind()
    for every in (False, True):
        first, last = (list(layer.plans(counting(), 100, span, every=every)) for span in ((0, 2), (3, 5)))
        assert first and first == last


@pytest.mark.parametrize("kind", [conv, depthwise])
def test_the_next_tile_is_loaded_while_one_is_made(kind: Kind) -> None:
    """Tiles are in ACT twice unless there is only one; tensors that are or stay in ACT take no rows."""
    layer, _ = kind()
    blocks, in_blocks = layer.output.cb, layer.inputs[0].cb
    for in_act in ((), ("x",), ("y",)):
        context, singles = counting(), 0
        context.bands |= dict.fromkeys(in_act, SOMEWHERE)
        for plan in layer.plans(context, 4000, every=True):
            t, window = plan.tiling, (plan.tiling.lines + 2) * (plan.tiling.columns + 2)
            single = (t.lines, t.columns, t.blocks) == (SIZE, SIZE, blocks)
            kept = getattr(t, "keep_input", True)
            inputs = window * (t.blocks if kind is depthwise else in_blocks if kept else t.piece)
            assert plan.pools.output == ("y" not in in_act) * t.lines * t.columns * t.blocks * (1 if single else 2)
            assert plan.pools.input == ("x" not in in_act) * inputs * (1 if single and kept else 2)
            singles += single
        assert singles


def test_orders_of_tiles_are_those_that_differ() -> None:
    layer, _ = conv()
    orders: dict[tuple[int, ...], list[bool]] = {}
    for plan in layer.plans(counting(), 4000, every=True):
        t = plan.tiling
        orders.setdefault((t.lines, t.columns, t.blocks, t.piece), []).append(t.bands_outer)
    seen = set()
    for (lines, columns, blocks, piece), found in orders.items():
        one = (lines, columns) == (SIZE, SIZE) or blocks == layer.output.cb
        whole = piece == layer.inputs[0].cb
        assert set(found) == ({True} if one and whole else {True, False})
        seen.add((one, whole))
    assert len(seen) == 4


@pytest.mark.parametrize("kind", KINDS)
def test_a_budget_that_nothing_fits(kind: Kind) -> None:
    """VECTOR needs room for a vector and its result at least."""
    layer, _ = kind()
    with pytest.raises(ScratchpadFull, match="y: no tile fits"):
        layer.plan(counting(), 1)


@pytest.mark.parametrize("kind", KINDS)
def test_wanted_tilings_are_taken_where_they_fit(kind: Kind) -> None:
    layer, _ = kind()
    context = counting()
    usual = layer.plan(context, 384)
    other = next(p for p in layer.plans(context, 384, every=True) if p.numbers() != usual.numbers())
    context.tiles[id(layer)] = other.numbers()
    assert layer.plan(context, 384).tiling == other.tiling
    context.tiles[id(layer)] = (999,) * len(other.tiling)
    assert layer.plan(context, 384).tiling == usual.tiling


@pytest.mark.parametrize(
    "rows", [(0, 0, 0, 2, 2, 4, 7, 7, 8, 9, 11, 11), (11, 11, 11, 11, 3, 3, 3, 0, 5, 10, 10, 2), (0,) * 8]
)
@pytest.mark.parametrize("act_rows", [64, 96, 128])
def test_rows_that_need_more_of_the_input_than_the_first_ones(rows: tuple[int, ...], act_rows: int) -> None:
    """Tiles are freed as soon as they have been read: there are many, and few rows of ACT."""
    few, x = TINY.with_(name="few rows", act_rows=act_rows), RNG.integers(-128, 128, (CHANNELS, 12, 12)).astype(np.int8)
    inputs, output = [planes("x", CHANNELS, 12, 12, few)], planes("y", CHANNELS, len(rows), 12, few)
    layer = TakeLayer("y", "QTake", inputs, output, Post(), rows=rows, columns=tuple(range(12)))
    assert np.array_equal(run(few, [layer], Schedule.plain([layer]), x), x[:, rows])
