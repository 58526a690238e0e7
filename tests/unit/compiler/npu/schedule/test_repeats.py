"""Layers that a network repeats: what a search looks at of them, and what it decides for the others."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pytest

import tilewright as tw
from tests.unit.compiler.npu.net import Net
from tests.unit.compiler.npu.schedule.steps import step_of
from tilewright.compiler.graph.graph import Quant
from tilewright.compiler.npu.schedule import repeats as repeats_module
from tilewright.compiler.npu.schedule.problem import Schedule
from tilewright.compiler.npu.schedule.repeats import LEAST, Repeats
from tilewright.compiler.npu.schedule.search import search
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.pipeline import compile_graph
from tilewright.isa.config import PRESETS
from tilewright.runtime.cost import measure

BLOCKS = 15


class Blocks(Net):
    """Weights without zero points, whose layers all have the same shape."""

    def weights(self, shape: tuple[int, ...], channels: int, axis: int) -> str:
        return self.graph.constant("w", self.rng.integers(-9, 10, shape).astype(np.int8), Quant.of(np.float32(0.01), 0))


def residual(blocks: int, size: int = 6, longer: Collection[int] = ()) -> Net:
    """Blocks of two convolutions whose result is added to what they read, and of a table; all of them add to the first
    tensor, too. Some blocks add it twice."""
    net = Blocks()
    first = x = net.conv(net.plane(8, size), 16)
    for block in range(blocks):
        x = net.add(x, first) if block in longer else x
        x = net.table(net.add(net.add(net.conv(net.conv(x, 32), 16, kernel=3), x), first))
    net.graph.outputs.append(net.conv(net.conv(x, 8), 8, stride=2))
    return net


def test_repeats_are_found() -> None:
    step = step_of(residual(BLOCKS), PRESETS["tiny"])
    found = Repeats.of(step)
    assert found is not None
    assert found.count in (BLOCKS - 3, BLOCKS - 2)
    assert found.period == (len(step.layers) - 3) // BLOCKS
    short = found.shortened(step)
    assert len(short.layers) == len(step.layers) - found.left_out < len(step.layers) // 3
    made = {layer.output.buffer for layer in short.layers}
    outside = {view.buffer for layer in step.layers for view in layer.reads} - {
        layer.output.buffer for layer in step.layers
    }
    assert {view.buffer for layer in short.layers for view in layer.reads} <= made | outside


def test_fewer_repeats_are_searched_as_a_whole() -> None:
    assert Repeats.of(step_of(residual(LEAST - 2), PRESETS["tiny"])) is None


def test_repeats_around_other_blocks() -> None:
    """Repeats before, between and behind others count together; what is left has one of the others."""
    step = step_of(residual(2 * BLOCKS, longer=(5, 17)), PRESETS["tiny"])
    short, room, found = step, 0, []
    while (repeats := Repeats.of(short, room)) is not None:
        short, room = repeats.shortened(short), repeats.room
        found.append(repeats)
    assert all(repeats.count < LEAST and repeats.room == found[0].period for repeats in found)
    assert found[-1].period > found[0].period
    assert len(short.layers) == len(step.layers) - sum(repeats.left_out for repeats in found)
    assert len(short.layers) < 7 * room


@pytest.mark.medium
def test_a_schedule_of_repeats_is_as_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost is within a hundredth of what a search of all layers finds, and every repeat is scheduled alike."""
    step = step_of(residual(BLOCKS), PRESETS["small"])
    costs, schedules = [], []
    for least in (LEAST, 10 * LEAST):
        monkeypatch.setattr(repeats_module, "LEAST", least)
        fresh = step.fresh()
        schedule = search(fresh, 1)
        costs.append(fresh.fresh().cost(schedule))
        schedules.append(schedule)
    assert costs[0] <= 1.01 * costs[1] < 1.01 * step.fresh().cost(Schedule.plain(step.layers))
    period = (len(step.layers) - 3) // BLOCKS
    starts = {*schedules[0].starts()}
    middle = range(4 * period, 10 * period)
    assert all((at in starts) == (at + period in starts) for at in middle)
    assert all((at in schedules[0].tiles) == (at + period in schedules[0].tiles) for at in middle)


@pytest.mark.medium
@pytest.mark.parametrize("longer", [(), (6,), (3, 8)])
def test_results_are_the_same(longer: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors that stay in ACT are where the copies of a repeat look for them."""
    monkeypatch.setattr(repeats_module, "LEAST", 10)
    x = np.random.default_rng(1).integers(-128, 128, (1, 8, 6, 6)).astype(np.int8)
    results = []
    for effort in (0, 1):
        options = CompileOptions(effort=effort)
        program = compile_graph(residual(BLOCKS - 1, longer=longer).graph, PRESETS["small"], options, measure=measure)
        results.append(tw.Device("functional").run(program, {program.inputs[0].name: x}))
    for name, value in results[0].items():
        np.testing.assert_array_equal(value, results[1][name])
        assert len(np.unique(value)) > 2
