"""Budget and failures of a search: the instructions it may measure, its progress, schedules without a program."""

from __future__ import annotations

import math

import pytest

from tests.unit.compiler.npu.net import Net
from tests.unit.compiler.npu.schedule.steps import step_of
from tilewright.common.native import BuildError
from tilewright.compiler.npu.emit import assembler
from tilewright.compiler.npu.emit.plan import TilePlans
from tilewright.compiler.npu.schedule.problem import Budget, Schedule
from tilewright.compiler.npu.schedule.search import search
from tilewright.isa.config import PRESETS


def test_a_budget_counts_instructions() -> None:
    """The last program may have more instructions than are left, and progress still ends at 1."""
    told: list[float] = []
    plans = TilePlans()
    plans.simulated = 100
    budget = Budget(plans, 10, told.append)
    left = []
    for more in (4, 1, 9):
        plans.simulated += more
        left.append(budget.left())
    assert left == [6, 5, -4] and told == [0.4, 0.5, 1.0]


def test_known_measurements_take_nothing_from_a_budget() -> None:
    net = Net()
    net.graph.outputs.append(net.conv(net.plane(8, 6), 8))
    step = step_of(net, PRESETS["tiny"])
    budget = Budget(step.plans, 1000, lambda done: None)
    step.cost(Schedule.plain(step.layers))
    left = budget.left()
    assert 0 < left < 1000
    step.cost(Schedule.plain(step.layers))
    assert budget.left() == left


@pytest.mark.medium
def test_more_effort_is_never_worse() -> None:
    net = Net()
    x = net.plane(16, 24)
    for channels in (24, 48):
        x = net.conv(net.conv(x, channels, kernel=3, group=1), channels, stride=2)
    net.graph.outputs.append(x)
    step = step_of(net, PRESETS["small"])
    costs = [step.cost(search(step.fresh(), effort)) for effort in (0, 1, 2)]
    assert costs == sorted(costs, reverse=True) and costs[2] < costs[0]


def test_a_schedule_without_a_program_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A schedule that cannot be assembled costs infinity, but a library that cannot be built is an error."""
    net = Net()
    net.graph.outputs.append(net.conv(net.plane(8, 6), 8))
    step = step_of(net, PRESETS["tiny"])
    plain = Schedule.plain(step.layers)
    assert step.cost(plain) < math.inf

    def failing(error: Exception) -> None:
        def assemble(machine: object, tape: object) -> None:
            raise error

        monkeypatch.setattr(assembler, "assemble", assemble)

    failing(assembler.AssemblyError("load_row cannot be 999999"))
    with pytest.warns(RuntimeWarning, match="1 units from layer 0 on is left out.*load_row cannot be 999999"):
        assert step.fresh().cost(plain) == math.inf
    failing(BuildError("no C++ compiler"))
    with pytest.raises(BuildError):
        step.fresh().cost(plain)
