"""Budget and failures of a search: the instructions it may measure, its progress, schedules without a program."""

from __future__ import annotations

import math

import pytest

from tests.unit.compiler.npu.net import Net
from tests.unit.compiler.npu.schedule.test_refine_tiles import step_of
from tilewright.common.native import BuildError
from tilewright.compiler.npu.emit import assembler
from tilewright.compiler.npu.schedule.problem import Budget, Schedule
from tilewright.isa.config import PRESETS


def test_a_budget_counts_instructions() -> None:
    """The last program may have more instructions than are left, and progress still ends at 1."""
    told: list[float] = []
    budget = Budget(10, told.append)
    budget.spend(4)
    assert budget.left == 6
    budget.spend(1)
    budget.spend(9)
    assert told == [0.4, 0.5, 1.0] and budget.left == -4


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
