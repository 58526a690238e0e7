"""Tiles refined by exact cycles: no step gets slower, and products wait less; long steps stay."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.compiler.npu.net import Net
from tilewright.compiler.npu.schedule import refine_tiles as refining
from tilewright.compiler.npu.schedule.decisions import decisions_of
from tilewright.compiler.npu.schedule.problem import Costed, Schedule, StepProblem
from tilewright.compiler.npu.schedule.refine_tiles import refine_tiles
from tilewright.compiler.npu.schedule.search import Policy, make_schedule
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.pipeline import compile_graph
from tilewright.isa.config import NpuConfig, preset
from tilewright.runtime.cost import measure

#: A bus so wide that weights arrive at once, so that products wait only for the layer before.
WIDE = preset("base").with_(name="wide bus", axi_data_bits=128)


def step_of(net: Net, config: NpuConfig) -> StepProblem:
    """Returns the only NPU step of a network, measured in cycles."""
    found: list[StepProblem] = []
    compile_graph(net.graph, config, CompileOptions(), scheduler=found.append)
    (only,) = found
    return only.fresh().measured_by(measure)


def separable() -> Net:
    """Returns depthwise and pointwise layers in turn."""
    net = Net()
    x = net.plane(64, 11)
    for _ in range(3):
        x = net.conv(net.conv(x, 64, kernel=3, group=64), 64)
    net.graph.outputs.append(x)
    return net


def refined(step: StepProblem, schedule: Schedule, effort: int = 1) -> Schedule:
    found, cost = refine_tiles(step, Costed(schedule, step.cost(schedule)), effort)
    assert cost == step.cost(found)
    return found


@pytest.mark.medium
def test_products_begin_before_the_layer_before_is_done() -> None:
    step = step_of(separable(), WIDE)
    usual = make_schedule(step, Policy())
    found = refined(step, usual)
    assert step.cost(found) < 0.98 * step.cost(usual)
    assert decisions_of(found).tiles and not decisions_of(usual).tiles


@pytest.mark.medium
def test_a_layer_with_one_tiling_alone() -> None:
    """A layer without a choice of tilings does not keep the other layers from being refined."""
    net = separable()
    x = net.finish("QGlobalAveragePool", [net.graph.outputs.pop()], (1, 64, 1, 1), np.int8)
    net.graph.outputs.append(net.conv(x, 4))
    step = step_of(net, WIDE)
    usual = make_schedule(step, Policy())
    assert step.cost(refined(step, usual)) < 0.98 * step.cost(usual)


@pytest.mark.medium
def test_steps_that_take_long_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refining, "LONGEST", (0, 1000, 1_000_000, 0))
    step = step_of(separable(), WIDE)
    usual = make_schedule(step, Policy())
    assert refined(step, usual) is usual
    assert refined(step, usual, effort=2) is not usual
    all_alike = step.measured_by(lambda *image: 7)
    assert refine_tiles(all_alike, Costed(usual, 7), 2).schedule is usual
