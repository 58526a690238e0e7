"""Groups chosen again by exact cycles: layers that would better run together do, nothing gets worse, and long steps
stay."""

from __future__ import annotations

import pytest

from tests.unit.compiler.npu.net import Net
from tests.unit.compiler.npu.schedule.test_refine_tiles import layers_of
from tilewright.compiler.npu.emit.plan import TilePlans
from tilewright.compiler.npu.layers.layer import Layer
from tilewright.compiler.npu.schedule import refine_groups as regrouping
from tilewright.compiler.npu.schedule.decisions import decisions_of, schedule_of
from tilewright.compiler.npu.schedule.neighbours import Neighbourhood
from tilewright.compiler.npu.schedule.refine_groups import regroup
from tilewright.compiler.npu.schedule.search import Measure, Policy, Schedule, make_schedule, measure_schedule
from tilewright.isa.config import NpuConfig, preset
from tilewright.runtime.cost import measure

SHORT = preset("base").with_(name="short of rows", act_rows=2048, window_delay=0)


@pytest.fixture(scope="module")
def inverted() -> tuple[list[Layer], set[str]]:
    """A layer that widens, a depthwise one and one that narrows, in planes that do not fit ACT."""
    net = Net()
    x = net.plane(16, 40)
    x = net.conv(net.conv(net.conv(x, 64), 64, kernel=3, group=64), 16)
    net.graph.outputs.append(x)
    return layers_of(net, SHORT)


def regrouped(schedule: Schedule, layers: list[Layer], outside: set[str], how: Measure = measure) -> Schedule:
    whole = measure_schedule(SHORT, layers, schedule, how, TilePlans())
    return regroup(SHORT, layers, outside, schedule, whole, how, TilePlans())[0]


def test_layers_that_would_better_run_together_do(
    inverted: tuple[list[Layer], set[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    layers, outside = inverted
    alone = Schedule.plain(layers)
    assert regrouped(alone, layers, outside) is alone  # it would have too many instructions
    monkeypatch.setattr(regrouping, "LONGER", 4)
    other = Neighbourhood(SHORT, layers, outside).tiles(decisions_of(alone), 0)[1][0]
    alone.tiles = {0: other}
    found = regrouped(alone, layers, outside)
    before, after = (measure_schedule(SHORT, layers, s, measure, TilePlans()) for s in (alone, found))
    assert after < 0.9 * before
    assert [unit.fused for unit in found.units] == [True] and not found.tiles  # fused layers have no tiles of their own
    assert decisions_of(schedule_of(SHORT, layers, outside, decisions_of(found))) == decisions_of(found)


def test_estimates_are_set_right_by_what_was_measured() -> None:
    """Pairs of layers look best by estimates, which are too low for some and too high for others; what is not measured
    is thought to be as far off as what is."""
    net = Net()
    x = net.plane(16, 40)
    for channels in (16, 32, 64):
        x = net.conv(net.conv(x, channels, kernel=3, group=channels), 2 * channels)
    net.graph.outputs.append(x)
    machine = preset("base").with_(name="short of rows", act_rows=2048)
    layers, outside = layers_of(net, machine)
    plans = TilePlans()
    usual = make_schedule(machine, layers, outside, Policy(), plans)
    before = measure_schedule(machine, layers, usual, measure, plans)
    found, after = regroup(machine, layers, outside, usual, before, measure, plans)
    assert after == measure_schedule(machine, layers, found, measure, plans)
    assert after < 0.93 * before


def test_what_is_no_better_and_what_takes_long_stays(
    inverted: tuple[list[Layer], set[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    layers, outside = inverted
    alone = Schedule.plain(layers)
    assert regrouped(alone, layers, outside, lambda *image: 7) is alone
    monkeypatch.setattr(regrouping, "INSTRUCTIONS", 10)
    assert regrouped(alone, layers, outside) is alone


def test_groups_of_a_step_that_computes_all_the_time_are_not_measured(
    inverted: tuple[list[Layer], set[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    layers, outside = inverted
    alone = Schedule.plain(layers)
    measured: list[int] = []

    def counting(config: NpuConfig, image: bytes, arena_bytes: int) -> float:
        measured.append(len(image))
        return measure(config, image, arena_bytes)

    whole = measure_schedule(SHORT, layers, alone, measure, TilePlans())
    regroup(SHORT, layers, outside, alone, whole, counting, TilePlans())
    assert measured
    measured.clear()
    monkeypatch.setattr(regrouping, "BUSY", 0.1)
    assert regroup(SHORT, layers, outside, alone, whole, counting, TilePlans())[0] is alone and not measured
