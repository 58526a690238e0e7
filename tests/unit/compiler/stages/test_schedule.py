"""Schedules of steps: what is asked, and what is refused."""

from __future__ import annotations

import pytest

from tests.unit.compiler.npu.net import Net
from tilewright.compiler.errors import CompileError
from tilewright.compiler.npu.schedule.problem import Schedule, StepProblem
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.stages.order import LayerStep, Step, order_steps
from tilewright.compiler.stages.partition import partition
from tilewright.compiler.stages.schedule import schedule_steps, verify_schedule
from tilewright.isa.config import PRESETS, NpuConfig
from tilewright.isa.device import DeviceError
from tilewright.isa.error_codes import ErrorCode

TINY = PRESETS["tiny"]


def two_layers() -> list[Step]:
    net = Net()
    a = net.conv(net.plane(4, 4), 4)
    graph = net.done(net.conv(a, 4))
    return order_steps(graph, partition(graph, TINY, CompileOptions()), CompileOptions())


def layers_of(steps: list[Step]) -> LayerStep:
    return next(step for step in steps if isinstance(step, LayerStep))


def test_between_layers_tensors_stay_on_the_chip() -> None:
    schedules = schedule_steps(TINY, two_layers(), CompileOptions())
    assert list(schedules.of) == [1] and [stay.view.tensor for stay in schedules.of[1].stays] == ["QConv.0"]


def test_all_kept_all_stored() -> None:
    schedules = schedule_steps(TINY, two_layers(), CompileOptions(keep="all"))
    assert schedules.of[1].stays == [] and [len(unit.layers) for unit in schedules.of[1].units] == [1, 1]


def test_a_scheduler_is_asked_first() -> None:
    steps = two_layers()
    given = Schedule.plain(layers_of(steps).tasks)
    asked: list[StepProblem] = []
    schedules = schedule_steps(TINY, steps, CompileOptions(), scheduler=lambda problem: asked.append(problem) or given)
    assert schedules.of[1] is given and asked[0].layers == layers_of(steps).tasks
    assert asked[0].outside == {"x0", "QConv.1@c1"}
    schedules = schedule_steps(TINY, steps, CompileOptions(), scheduler=lambda problem: None)
    assert schedules.of[1].stays


def test_verify() -> None:
    steps = two_layers()
    step = layers_of(steps)
    with pytest.raises(CompileError, match="1 layers are not the 2 of the step"):
        verify_schedule(Schedule.plain(step.tasks[:1]), step, set())
    with pytest.raises(CompileError, match="in order"):
        verify_schedule(Schedule.plain(step.tasks[::-1]), step, set())
    found = schedule_steps(TINY, steps, CompileOptions()).of[1]
    verify_schedule(found, step, set())
    with pytest.raises(CompileError, match=r"'QConv.0@c1' stays on the chip, but another step reads it"):
        verify_schedule(found, step, {"QConv.0@c1"})


class Stops:
    """A cost function that finds some of the programs it is given stopped by the machine."""

    def __init__(self, stopped: int) -> None:
        self.left = stopped

    def __call__(self, config: NpuConfig, image: bytes, arena_bytes: int) -> float:
        self.left -= 1
        if self.left >= 0:
            raise DeviceError("SEMAPHORE_OVERFLOW: GEMM at instruction 7", ErrorCode.SEMAPHORE_OVERFLOW)
        return float(len(image))


@pytest.mark.parametrize("effort", [1, 2])
@pytest.mark.parametrize("stopped", [1, 2])
def test_schedules_whose_programs_are_stopped_are_left_out(effort: int, stopped: int) -> None:
    """Said once for each; the compile goes on with others, the plain one if need be."""
    steps = two_layers()
    with pytest.warns(RuntimeWarning, match="left out, please report it: SEMAPHORE_OVERFLOW: GEMM at"):
        schedules = schedule_steps(TINY, steps, CompileOptions(effort=effort), measure=Stops(stopped))
    verify_schedule(schedules.of[1], layers_of(steps), set())


def test_no_schedule_makes_a_program_that_runs() -> None:
    """A step that no schedule can run is an internal fault, not a mistake of the user."""
    with (
        pytest.warns(RuntimeWarning, match="left out"),
        pytest.raises(RuntimeError, match=r"no schedule makes a program that runs: SEMAPHORE_OVERFLOW: GEMM at"),
    ):
        schedule_steps(TINY, two_layers(), CompileOptions(effort=1), measure=Stops(10**9))
