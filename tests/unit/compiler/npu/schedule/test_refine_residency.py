"""Residency refined by exact cycles: more tensors stay in ACT than the estimate allows, where that is faster."""

from __future__ import annotations

import math

import pytest

from tests.unit.compiler.npu.net import Net
from tests.unit.compiler.npu.schedule.test_refine_tiles import step_of
from tilewright.compiler.npu.schedule import refine_residency as refining
from tilewright.compiler.npu.schedule.problem import Costed, Schedule, StepProblem
from tilewright.compiler.npu.schedule.refine_residency import refine_residency
from tilewright.compiler.npu.schedule.search import Policy, make_schedule
from tilewright.isa.config import preset

BASE = preset("base")


@pytest.fixture(scope="module")
def planes() -> StepProblem:
    """Returns layers whose tensors take a fifth of ACT each."""
    net = Net()
    x = net.plane(16, 40)
    for _ in range(4):
        x = net.conv(x, 16)
    net.graph.outputs.append(x)
    return step_of(net, BASE)


def refined(step: StepProblem, schedule: Schedule) -> Schedule:
    found, cost = refine_residency(step, Costed(schedule, step.cost(schedule)))
    assert cost == step.cost(found)
    return found


@pytest.mark.medium
def test_what_pays_stays(planes: StepProblem) -> None:
    some = make_schedule(planes, Policy(share=0.2, longest=1))
    found = refined(planes, some)
    assert len(found.stays) > len(some.stays)
    assert planes.cost(found) < 0.95 * planes.cost(some)
    assert refined(planes, found) is found


@pytest.mark.medium
def test_nothing_gets_worse(planes: StepProblem) -> None:
    plain = Schedule.plain(planes.layers)
    assert refined(planes.measured_by(lambda *image: 1000.0), plain) is plain
    assert refine_residency(planes, Costed(plain, math.inf)) == (plain, math.inf)


def test_long_steps_stay(planes: StepProblem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refining, "INSTRUCTIONS", 0)
    plain = Schedule.plain(planes.layers)
    assert refined(planes, plain) is plain
