"""Tiles chosen again by exact cycles: never worse in all, better where products need not wait, and only for short
steps."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.compiler.npu.net import Net
from tilewright.compiler.npu.emit.plan import TilePlans
from tilewright.compiler.npu.layers.layer import Layer
from tilewright.compiler.npu.schedule import refine_tiles as refining
from tilewright.compiler.npu.schedule.decisions import decisions_of
from tilewright.compiler.npu.schedule.refine_tiles import refine
from tilewright.compiler.npu.schedule.search import Policy, Schedule, make_schedule, measure_schedule
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.pipeline import compile_graph
from tilewright.isa.config import NpuConfig, preset
from tilewright.runtime.cost import measure

#: A bus so wide that weights are there at once: what is left to wait for is the layer before.
WIDE = preset("base").with_(name="wide bus", axi_data_bits=128)


def layers_of(net: Net, config: NpuConfig) -> tuple[list[Layer], set[str]]:
    """The layers of the only NPU step, and what is read behind it."""
    found: list[tuple[list[Layer], set[str]]] = []

    def keep(config: NpuConfig, layers: list[Layer], outside: set[str]) -> None:
        found.append((layers, outside))

    compile_graph(net.graph, config, CompileOptions(), scheduler=keep)
    (only,) = found
    return only


def separable() -> Net:
    """Depthwise and pointwise layers in turn."""
    net = Net()
    x = net.plane(64, 11)
    for _ in range(3):
        x = net.conv(net.conv(x, 64, kernel=3, group=64), 64)
    net.graph.outputs.append(x)
    return net


def refined(schedule: Schedule, layers: list[Layer], outside: set[str], effort: int = 1) -> Schedule:
    whole = measure_schedule(WIDE, layers, schedule, measure, TilePlans())
    found, cost = refine(WIDE, layers, outside, schedule, whole, effort, measure, TilePlans())
    assert cost == measure_schedule(WIDE, layers, found, measure, TilePlans())
    return found


def test_products_begin_before_the_layer_before_is_done() -> None:
    layers, outside = layers_of(separable(), WIDE)
    usual = make_schedule(WIDE, layers, outside, Policy(), TilePlans())
    found = refined(usual, layers, outside)
    before, after = (measure_schedule(WIDE, layers, s, measure, TilePlans()) for s in (usual, found))
    assert after < 0.98 * before and decisions_of(found).tiles and not decisions_of(usual).tiles


def test_a_layer_with_one_tiling_alone() -> None:
    """It has nothing to choose from, and the others are chosen for as they are without it."""
    net = separable()
    x = net.finish("QGlobalAveragePool", [net.graph.outputs.pop()], (1, 64, 1, 1), np.int8)
    net.graph.outputs.append(net.conv(x, 4))
    layers, outside = layers_of(net, WIDE)
    usual = make_schedule(WIDE, layers, outside, Policy(), TilePlans())
    found = refined(usual, layers, outside)
    before, after = (measure_schedule(WIDE, layers, s, measure, TilePlans()) for s in (usual, found))
    assert after < 0.98 * before


def test_steps_that_take_long_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refining, "LONGEST", (0, 1000, 1_000_000, 0))
    layers, outside = layers_of(separable(), WIDE)
    usual = make_schedule(WIDE, layers, outside, Policy(), TilePlans())
    assert refined(usual, layers, outside) is usual
    assert refined(usual, layers, outside, effort=2) is not usual
    nothing, _ = refine(WIDE, layers, outside, usual, 7, 2, lambda *image: 7, TilePlans())  # all schedules are as good
    assert nothing is usual
