"""Candidates for groups of layers and their estimated cycles; layers of one shape are estimated once."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.compiler.npu.layers.running import planes
from tests.unit.compiler.npu.net import Net
from tests.unit.compiler.npu.schedule.steps import step_of
from tilewright.compiler.npu.layers.conv import ConvLayer
from tilewright.compiler.npu.layers.conv_tiling import Phase
from tilewright.compiler.npu.layers.layer import Post
from tilewright.compiler.npu.schedule.fusion import Candidate, candidates, choose_groups, closer_estimate
from tilewright.compiler.npu.schedule.problem import Schedule, StepProblem
from tilewright.isa.config import PRESETS

TINY = PRESETS["tiny"]


def conv(output: str, pad: int = 1, seed: int = 0) -> ConvLayer:
    random = np.random.default_rng(seed)
    weights = random.integers(-128, 128, (1, 5, 6, 3, 3)).astype(np.int8)
    size = 3 + 2 * pad
    views = [planes("x", 6, 5, 5, TINY)], planes(output, 5, size, size, TINY)
    return ConvLayer(
        output, "QConv", *views, Post(), phases=[Phase(weights, (pad, pad))], bias=np.zeros(5, np.int32),
        scale=random.random(5).astype(np.float32),
    )  # fmt: skip


def test_layers_of_one_shape_are_looked_at_once() -> None:
    same, other = [conv("a"), conv("b", seed=1)], conv("c", pad=0)
    assert same[0].plan_key == same[1].plan_key != other.plan_key
    problem = StepProblem(TINY, [*same, other], set("abc"))
    units, cost = choose_groups(problem, [])
    assert [len(unit.layers) for unit in units] == [1, 1, 1]
    assert len(problem.plans.alone) == 2 and len(problem.plans) == 2
    twice, once = problem.plans.alone.values()
    assert cost == 2 * twice + once and twice > once


def test_no_choice_no_cost() -> None:
    problem = StepProblem(TINY, [conv("a")], {"a"})
    assert choose_groups(problem, [], longest=1)[1] is None and not problem.plans.alone


SHORT = PRESETS["small"].with_(name="short of rows", act_rows=1024)


@pytest.fixture(scope="module")
def four() -> StepProblem:
    """Returns layers that widen, work by channel and narrow, in planes that do not fit ACT."""
    net = Net()
    x = net.conv(net.conv(net.conv(net.plane(16, 16), 32, kernel=3), 48), 48, kernel=3, group=48)
    net.graph.outputs.append(net.conv(x, 16))
    return step_of(net, SHORT)


def every(step: StepProblem) -> list[list[Candidate]]:
    """Returns all candidates of a step, by their last layer."""
    return candidates(step, [], closer_estimate, 8)


@pytest.mark.medium
def test_all_neighbours_are_looked_at(four: StepProblem) -> None:
    """Each candidate ends with the layer it is listed under; all these layers can be fused."""
    found = every(four)
    assert len(found) == len(four.layers)
    for end, options in enumerate(found, 1):
        assert all([*c.group.layers] == four.layers[c.first : end] for c in options)
        assert {c.first for c in options} >= {end - 1, max(0, end - 2), max(0, end - 3)}


@pytest.mark.medium
def test_estimates_come_near_the_cycles(four: StepProblem) -> None:
    """Estimates of single layers and of groups are within 5 % for most, with any number of rows per band."""
    plain = Schedule.plain(four.layers)
    ratios = [
        one.estimate / four.measured_units([one.group], plain, one.first).cost
        for options in every(four) for one in options
    ]  # fmt: skip
    assert len(ratios) > 15 and all(0.85 < ratio < 1.35 for ratio in ratios)
    assert np.median(np.abs(np.array(ratios) - 1)) < 0.05
