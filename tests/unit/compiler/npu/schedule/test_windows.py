"""Windows in which schedules differ: their costs tell the difference of the whole step, although less is measured."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

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


def by_windows(step: StepProblem, before: Decisions, after: Decisions) -> float:
    """Returns the cost of a step from that before, by measuring the windows in which it differs."""
    found = windows(step, before, after)
    return cost_of(step, before) + sum(cost_of(step, after, w) - cost_of(step, before, w) for w in found)


@pytest.mark.medium
@pytest.mark.parametrize("layer", [0, 13, 27])
def test_other_tiles_of_a_layer(step: StepProblem, plain: Decisions, layer: int) -> None:
    tile, _ = Neighbourhood(step).tiles(plain, layer)[-1]
    after = plain.tiled(layer, tile)
    assert by_windows(step, plain, after) == pytest.approx(cost_of(step, after), rel=0.01)
    assert by_windows(step, plain, after) != cost_of(step, plain)


@pytest.mark.medium
def test_units_that_begin_elsewhere(step: StepProblem, plain: Decisions) -> None:
    """Windows end where both schedules begin a unit, one unit before and behind."""
    joined = next(
        m for m in Neighbourhood(step).moves(plain) if m.kind == "join" and (m.layer, m.units) == (6, ((2, 2),))
    )
    after = plain.regrouped(joined.layer, joined.units)
    assert after is not None and after.units[6][0] == 2
    assert windows(step, plain, after) == windows(step, after, plain) == [Window(5, 9)]
    assert by_windows(step, plain, after) == pytest.approx(cost_of(step, after), rel=0.01)


@pytest.mark.medium
def test_a_move_is_measured_in_its_windows_alone(step: StepProblem, plain: Decisions) -> None:
    measured: list[int] = []
    usual = step.measure
    assert usual is not None

    def measure(config: NpuConfig, image: bytes, arena_bytes: int) -> float:
        measured.append(len(image))
        return usual(config, image, arena_bytes)

    counted = step.measured_by(measure)
    start = Found(plain, cost_of(counted, plain))
    descent = Descent(counted, start, Budgeted(counted, Budget(counted.plans, 10**9, lambda done: None)), gain=2.0)
    tile, _ = descent.near.tiles(plain, 13)[-1]
    descent.run([Move("tile", 13, tile=tile)])
    whole, *parts = measured
    assert len(parts) == 2 and max(parts) < whole / 3
    assert descent.settle() and descent.best == Found(plain.tiled(13, tile), cost_of(counted, plain.tiled(13, tile)))
    assert descent.kinds == ["tile"]


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
    assert windows(step, plain, held) == [Window(4, 6)]
    assert windows(step, held, replace(plain, stays=((4, 8),))) == [Window(4, 6)]
