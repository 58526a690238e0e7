"""Windows in which schedules differ: their costs tell the difference of the whole step, although less is measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.compiler.npu.net import Net
from tests.unit.compiler.npu.schedule.steps import step_of
from tilewright.compiler.npu.schedule.decisions import Decisions, decisions_of
from tilewright.compiler.npu.schedule.descent import Budgeted, Descent, Found, cost_of
from tilewright.compiler.npu.schedule.moves import Move, Neighbourhood
from tilewright.compiler.npu.schedule.problem import Budget, Schedule, StepProblem
from tilewright.compiler.npu.schedule.windows import Window, windows
from tilewright.isa.config import PRESETS, NpuConfig


@pytest.fixture(scope="module")
def step() -> StepProblem:
    """Returns a step with more layers than are measured as a whole."""
    net = Net()
    x = net.plane(32, 12)
    for number in range(28):
        x = net.conv(x, 32, kernel=1 + 2 * (number % 2))
    net.graph.outputs.append(x)
    return step_of(net, PRESETS["base"])


@pytest.fixture(scope="module")
def plain(step: StepProblem) -> Decisions:
    return decisions_of(Schedule.plain(step.layers))


def settled(step: StepProblem, start: Decisions, move: Move) -> tuple[float, list[int]]:
    """Returns the cost of the step after a move, and the bytes of the programs measured for it."""
    bytes_measured: list[int] = []
    usual = step.measure
    assert usual is not None

    def measure(config: NpuConfig, image: bytes, arena_bytes: int) -> float:
        bytes_measured.append(len(image))
        return usual(config, image, arena_bytes)

    counted = step.measured_by(measure)
    budget = Budget(counted.plans, 10**9, lambda done: None)
    descent = Descent(counted, Found(start, cost_of(step, start)), Budgeted(counted, budget), gain=2.0)
    descent.run([move])
    assert descent.settle()
    return descent.best.cost, bytes_measured


@pytest.mark.medium
@pytest.mark.parametrize("layer", [0, 13, 27])
def test_other_tiles_of_a_layer(step: StepProblem, plain: Decisions, layer: int) -> None:
    tile, _ = Neighbourhood(step).tiles(plain, layer)[-1]
    cost, measured = settled(step, plain, Move("tile", layer, tile=tile))
    assert cost != cost_of(step, plain)
    assert cost == pytest.approx(cost_of(step, plain.tiled(layer, tile)), rel=0.01)
    alone: list[int] = []
    step.measured_by(lambda config, image, arena: alone.append(len(image)) or 1.0).cost(Schedule.plain(step.layers))
    assert len(measured) == 2 and max(measured) < alone[0] / 3


@pytest.mark.medium
def test_units_that_begin_elsewhere(step: StepProblem, plain: Decisions) -> None:
    """Windows end where both schedules begin a unit, one unit before and behind."""
    joined = next(m for m in Neighbourhood(step).moves(plain) if m.kind == "join" and m.layer == 6)
    after = plain.regrouped(joined.layer, joined.units)
    assert after is not None and after.units[6][0] == 2
    assert windows(step, plain, after) == windows(step, after, plain) == [Window(5, 9)]
    cost, _ = settled(step, plain, joined)
    assert cost == pytest.approx(cost_of(step, after), rel=0.01)


def test_windows_that_touch_are_one(step: StepProblem, plain: Decisions) -> None:
    (tile, *_), *_ = Neighbourhood(step).tiles(plain, 3)
    assert windows(step, plain, plain) == []
    assert windows(step, plain, plain.tiled(0, tile)) == [Window(0, 2)]
    assert windows(step, plain, plain.tiled(3, tile).tiled(6, tile)) == [Window(2, 8)]
    assert windows(step, plain, plain.tiled(3, tile).tiled(7, tile)) == [Window(2, 5), Window(6, 9)]
    assert windows(step, plain, plain.tiled(27, tile)) == [Window(26, 28)]


def test_tensors_in_act_differ_in_all_layers_of_their_life(step: StepProblem, plain: Decisions) -> None:
    held = replace(plain, stays=((4, 0),))
    assert step.able[4].last == 5
    assert windows(step, plain, held) == [Window(3, 7)]
    assert windows(step, held, replace(plain, stays=((4, 8),))) == [Window(3, 7)]
