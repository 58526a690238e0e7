"""A schedule's cost from another one's: near that of the whole step, although only differing units are measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.compiler.npu.net import Net
from tests.unit.compiler.npu.schedule.test_refine_tiles import step_of
from tilewright.compiler.npu.schedule.bands import LayerGroup
from tilewright.compiler.npu.schedule.comparison import compared
from tilewright.compiler.npu.schedule.decisions import decisions_of
from tilewright.compiler.npu.schedule.neighbours import Neighbourhood
from tilewright.compiler.npu.schedule.problem import Costed, Schedule, StepProblem
from tilewright.isa.config import PRESETS


@pytest.fixture(scope="module")
def step() -> StepProblem:
    """Returns a step with more layers than are measured as a whole."""
    net = Net()
    x = net.plane(32, 12)
    for number in range(28):
        x = net.conv(x, 32, kernel=1 + 2 * (number % 2))
    net.graph.outputs.append(x)
    return step_of(net, PRESETS["base"])


def counted(step: StepProblem, measured: list[int]) -> StepProblem:
    """Returns the same problem, which records the lengths of the programs that are measured."""
    usual = step.measure
    assert usual is not None

    def measure(config, image, arena_bytes):  # type: ignore[no-untyped-def]
        measured.append(len(image))
        return usual(config, image, arena_bytes)

    return step.measured_by(measure)


@pytest.mark.medium
@pytest.mark.parametrize("layer", [0, 13, 27])
def test_other_tiles_of_a_layer(step: StepProblem, layer: int) -> None:
    before = Schedule.plain(step.layers)
    tiles = [tile for tile, _ in Neighbourhood(step).tiles(decisions_of(before), layer)]
    after = replace(before, tiles={layer: tiles[-1]})
    whole = [step.cost(schedule) for schedule in (before, after)]
    measured: list[int] = []
    found = compared(counted(step, measured), Costed(before, whole[0]), after)
    assert found.schedule is after and found.cost != whole[0]
    assert found.cost == pytest.approx(whole[1], rel=0.01)
    alone: list[int] = []
    counted(step, alone).cost(after)
    assert len(measured) == 2 and max(measured) < alone[0] / 3


@pytest.mark.medium
def test_equal_schedules_cost_the_same(step: StepProblem) -> None:
    measured: list[int] = []
    before = Schedule.plain(step.layers)
    assert compared(counted(step, measured), Costed(before, 123.0), replace(before)).cost == 123.0
    assert not measured


@pytest.mark.medium
def test_units_that_begin_elsewhere(step: StepProblem) -> None:
    """Measured windows end where both schedules begin a unit."""
    before = Schedule.plain(step.layers)
    neighbourhood = Neighbourhood(step)
    joined = next(m for m in neighbourhood.moves(decisions_of(before)) if m.kind == "join" and m.layer == 6)
    after = neighbourhood.schedule(joined.decisions)
    assert isinstance(after.units[6], LayerGroup) and len(after.units[6].layers) == 2
    whole = [step.cost(schedule) for schedule in (before, after)]
    found = compared(step, Costed(before, whole[0]), after).cost
    assert found == pytest.approx(whole[1], rel=0.01)


@pytest.mark.medium
def test_short_steps_are_measured_as_a_whole(step: StepProblem) -> None:
    short = replace(step, layers=step.layers[:6])
    before = Schedule.plain(short.layers)
    measured: list[int] = []
    compared(counted(short, measured), Costed(before, 1.0), replace(before, tiles={}))
    assert len(measured) == 1
