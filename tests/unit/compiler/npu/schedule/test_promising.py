"""Moves that are tried first: products wait less, tensors stay where that pays, layers run together that should."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tests.unit.compiler.npu.net import Net
from tests.unit.compiler.npu.schedule.steps import step_of
from tilewright.compiler.npu.schedule import promising, search
from tilewright.compiler.npu.schedule.decisions import decisions_of, schedule_of
from tilewright.compiler.npu.schedule.descent import Budgeted, Descent, Found, cost_of
from tilewright.compiler.npu.schedule.moves import Move, Neighbourhood
from tilewright.compiler.npu.schedule.problem import Budget, Schedule, StepProblem
from tilewright.compiler.npu.schedule.promising import group_moves, keep_moves, tile_moves
from tilewright.compiler.npu.schedule.search import Policy, make_schedule
from tilewright.isa.config import NpuConfig, preset
from tilewright.runtime.cost import measure

BASE = preset("base")
#: A bus so wide that weights arrive at once, so that products wait only for the layer before.
WIDE = BASE.with_(name="wide bus", axi_data_bits=128)
SHORT = BASE.with_(name="short of rows", act_rows=2048, window_delay=0)


def separable() -> Net:
    """Returns depthwise and pointwise layers in turn."""
    net = Net()
    x = net.plane(64, 11)
    for _ in range(3):
        x = net.conv(net.conv(x, 64, kernel=3, group=64), 64)
    net.graph.outputs.append(x)
    return net


@pytest.fixture(scope="module")
def planes() -> StepProblem:
    """Returns layers whose tensors take a fifth of ACT each."""
    net = Net()
    x = net.plane(16, 40)
    for _ in range(4):
        x = net.conv(x, 16)
    net.graph.outputs.append(x)
    return step_of(net, BASE)


@pytest.fixture(scope="module")
def inverted() -> StepProblem:
    """Returns a layer that widens, a depthwise one and one that narrows, in planes that do not fit ACT."""
    net = Net()
    x = net.plane(16, 40)
    x = net.conv(net.conv(net.conv(x, 64), 64, kernel=3, group=64), 16)
    net.graph.outputs.append(x)
    return step_of(net, SHORT)


Source = Callable[[Descent, Budget], Iterator[Move]]


def tiles(search: Descent, budget: Budget) -> Iterator[Move]:
    return tile_moves(search, 3, 12)


def keeps(search: Descent, budget: Budget) -> Iterator[Move]:
    return keep_moves(search)


def refined(step: StepProblem, schedule: Schedule, source: Source, instructions: int = 100_000) -> Schedule:
    """Returns the schedule after the moves of a source, whose cost as a whole was measured."""
    budget = Budget(step.plans, instructions, lambda done: None)
    start = decisions_of(schedule)
    descent = Descent(step, Found(start, cost_of(step, start)), Budgeted(step, budget))
    descent.run(source(descent, budget))
    descent.settle()
    assert descent.best.cost == cost_of(step, descent.best.decisions)
    return schedule if descent.best.decisions == start else schedule_of(step, descent.best.decisions)


@pytest.mark.medium
def test_products_begin_before_the_layer_before_is_done() -> None:
    step = step_of(separable(), WIDE)
    usual = make_schedule(step, Policy())
    found = refined(step, usual, tiles)
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
    assert step.cost(refined(step, usual, tiles)) < 0.98 * step.cost(usual)


@pytest.mark.medium
def test_tiles_of_steps_that_take_long_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    def asking(descent: Descent, least: int, most: int) -> Iterator[Move]:
        asked.append((least, most))
        return iter(())

    monkeypatch.setattr(search, "LONGEST", (0, 1000, 1_000_000, 0))
    monkeypatch.setattr(search, "tile_moves", asking)
    step = step_of(separable(), WIDE)
    for effort in (1, 2):
        search.search(step, effort)
    assert asked == [(0, 0), search.TILES[2]]


@pytest.mark.medium
def test_what_pays_stays(planes: StepProblem) -> None:
    some = make_schedule(planes, Policy(share=0.2, longest=1))
    found = refined(planes, some, keeps)
    assert len(found.stays) > len(some.stays)
    assert planes.cost(found) < 0.95 * planes.cost(some)
    assert refined(planes, found, keeps) is found


@pytest.mark.medium
@pytest.mark.parametrize("source", [tiles, keeps, group_moves])
def test_nothing_gets_worse(planes: StepProblem, source: Source) -> None:
    """A schedule stays where no move gains, or none may be measured."""
    plain = Schedule.plain(planes.layers)
    assert refined(planes.measured_by(lambda *image: 1000.0), plain, source) is plain
    assert refined(planes, plain, source, instructions=0) is plain


@pytest.mark.medium
def test_layers_that_would_better_run_together_do(inverted: StepProblem, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Schedule.plain(inverted.layers)
    assert refined(inverted, alone, group_moves) is alone  # a group would have too many instructions
    monkeypatch.setattr(promising, "LONGER", 4)
    alone.tiles = {0: Neighbourhood(inverted).tiles(decisions_of(alone), 0)[1][0]}
    found = refined(inverted, alone, group_moves)
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
    step = step_of(net, BASE.with_(name="short of rows", act_rows=2048))
    usual = make_schedule(step, Policy())
    assert step.cost(refined(step, usual, group_moves)) < 0.93 * step.cost(usual)


@pytest.mark.medium
def test_groups_of_a_step_that_computes_all_the_time_are_not_measured(
    inverted: StepProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[int] = []

    def counting(config: NpuConfig, image: bytes, arena_bytes: int) -> float:
        measured.append(len(image))
        return measure(config, image, arena_bytes)

    alone, counted = Schedule.plain(inverted.layers), inverted.measured_by(counting)
    refined(counted, alone, group_moves)
    assert len(measured) > 1
    monkeypatch.setattr(promising, "BUSY", 0.1)
    counted = counted.measured_by(lambda *image: counting(*image))
    measured.clear()
    assert refined(counted, alone, group_moves) is alone and len(measured) == 1


def test_a_step_that_does_not_fit_stays(planes: StepProblem) -> None:
    plain = decisions_of(Schedule.plain(planes.layers))
    budget = Budget(planes.plans, 1000, lambda done: None)
    never = planes.measured_by(lambda *image: math.inf)
    descent = Descent(never, Found(plain, math.inf), Budgeted(never, budget))
    descent.run(keep_moves(descent))
    assert not descent.settle() and descent.best == Found(plain, math.inf)
