"""Layers of one shape are looked at once, whatever their weights and names are."""

from __future__ import annotations

import numpy as np

from compiler.npu.emit.context import ConstantPool, Context
from compiler.npu.emit.emitter import Emitter
from compiler.npu.layers.conv import ConvLayer
from compiler.npu.layers.conv_tiling import Phase
from compiler.npu.layers.layer import Post
from compiler.npu.schedule.fusion import choose_groups
from isa.config import PRESETS
from tests.unit.compiler.npu.layers.running import planes

TINY = PRESETS["tiny"]


def conv(output: str, pad: int = 1, seed: int = 0) -> ConvLayer:
    random = np.random.default_rng(seed)
    weights = random.integers(-128, 128, (1, 5, 6, 3, 3)).astype(np.int8)
    size = 3 + 2 * pad
    views = [planes("x", 6, 5, 5, TINY)], planes(output, 5, size, size, TINY)
    return ConvLayer(
        output, "QConv", *views, Post(), phases=[Phase(weights, (pad, pad))], bias=np.zeros(5, np.int32),
        scale=random.random(5).astype(np.float32),
    )  # fmt: skip


def test_layers_of_one_shape_are_looked_at_once() -> None:
    context = Context(TINY, Emitter(TINY, 0, dry=True), ConstantPool(), dict.fromkeys("xabc", 0))
    same, other = [conv("a"), conv("b", seed=1)], conv("c", pad=0)
    assert same[0].plan_key == same[1].plan_key != other.plan_key
    units, cost = choose_groups(context, [*same, other], [], set("abc"))
    assert [len(unit.layers) for unit in units] == [1, 1, 1]
    assert len(context.plans.alone) == 2 and len(context.plans) == 2
    twice, once = context.plans.alone.values()
    assert cost == 2 * twice + once and twice > once


def test_no_choice_no_cost() -> None:
    context = Context(TINY, Emitter(TINY, 0, dry=True), ConstantPool(), {"x": 0, "a": 0})
    assert choose_groups(context, [conv("a")], [], {"a"}, longest=1)[1] is None and not context.plans.alone
