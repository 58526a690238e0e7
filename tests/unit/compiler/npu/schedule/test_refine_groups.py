"""Groups refined by exact cycles: layers that run faster together are fused, and no step gets slower."""

from __future__ import annotations

import pytest

from tests.unit.compiler.npu.net import Net
from tests.unit.compiler.npu.schedule.test_refine_tiles import step_of
from tilewright.compiler.npu.schedule import refine_groups as refining
from tilewright.compiler.npu.schedule.decisions import decisions_of, schedule_of
from tilewright.compiler.npu.schedule.neighbours import Neighbourhood
from tilewright.compiler.npu.schedule.problem import Costed, Schedule, StepProblem
from tilewright.compiler.npu.schedule.refine_groups import refine_groups
from tilewright.compiler.npu.schedule.search import Policy, make_schedule
from tilewright.isa.config import NpuConfig, preset
from tilewright.runtime.cost import measure

SHORT = preset("base").with_(name="short of rows", act_rows=2048, window_delay=0)


@pytest.fixture(scope="module")
def inverted() -> StepProblem:
    """Returns a layer that widens, a depthwise one and one that narrows, in planes that do not fit ACT."""
    net = Net()
    x = net.plane(16, 40)
    x = net.conv(net.conv(net.conv(x, 64), 64, kernel=3, group=64), 16)
    net.graph.outputs.append(x)
    return step_of(net, SHORT)


def refined(step: StepProblem, schedule: Schedule) -> Schedule:
    return refine_groups(step, Costed(schedule, step.cost(schedule))).schedule


@pytest.mark.medium
def test_layers_that_would_better_run_together_do(inverted: StepProblem, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Schedule.plain(inverted.layers)
    assert refined(inverted, alone) is alone  # a group would have too many instructions
    monkeypatch.setattr(refining, "LONGER", 4)
    other = Neighbourhood(inverted).tiles(decisions_of(alone), 0)[1][0]
    alone.tiles = {0: other}
    found = refined(inverted, alone)
    assert inverted.cost(found) < 0.9 * inverted.cost(alone)
    assert [unit.fused for unit in found.units] == [True] and not found.tiles  # fused layers have no tiles of their own
    assert decisions_of(schedule_of(inverted, decisions_of(found))) == decisions_of(found)


@pytest.mark.medium
def test_estimates_are_set_right_by_what_was_measured() -> None:
    """Pairs of layers look best by estimates, which are too low for some and too high for others.

    Candidates that are not measured are assumed to be as far off as those that are.
    """
    net = Net()
    x = net.plane(16, 40)
    for channels in (16, 32, 64):
        x = net.conv(net.conv(x, channels, kernel=3, group=channels), 2 * channels)
    net.graph.outputs.append(x)
    step = step_of(net, preset("base").with_(name="short of rows", act_rows=2048))
    usual = make_schedule(step, Policy())
    before = step.cost(usual)
    found, after = refine_groups(step, Costed(usual, before))
    assert after == step.cost(found)
    assert after < 0.93 * before


@pytest.mark.medium
def test_what_is_no_better_and_what_takes_long_stays(inverted: StepProblem, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Schedule.plain(inverted.layers)
    assert refined(inverted.measured_by(lambda *image: 7), alone) is alone
    monkeypatch.setattr(refining, "INSTRUCTIONS", 10)
    assert refined(inverted, alone) is alone


@pytest.mark.medium
def test_groups_of_a_step_that_computes_all_the_time_are_not_measured(
    inverted: StepProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[int] = []

    def counting(config: NpuConfig, image: bytes, arena_bytes: int) -> float:
        measured.append(len(image))
        return measure(config, image, arena_bytes)

    alone = Schedule.plain(inverted.layers)
    start, counted = Costed(alone, inverted.cost(alone)), inverted.measured_by(counting)
    refine_groups(counted, start)
    assert measured
    measured.clear()
    monkeypatch.setattr(refining, "BUSY", 0.1)
    assert refine_groups(counted, start) is start and not measured
