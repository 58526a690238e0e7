"""Tensors that stay in ACT by exact cycles: more than counting allows, where that is better in all."""

from __future__ import annotations

import math

import pytest

from tests.unit.compiler.npu.net import Net
from tests.unit.compiler.npu.schedule.test_refine_tiles import layers_of
from tilewright.compiler.npu.emit.plan import TilePlans
from tilewright.compiler.npu.layers.layer import Layer
from tilewright.compiler.npu.schedule import refine_residency as restaying
from tilewright.compiler.npu.schedule.refine_residency import restay
from tilewright.compiler.npu.schedule.search import Measure, Policy, Schedule, make_schedule, measure_schedule
from tilewright.isa.config import preset
from tilewright.runtime.cost import measure

BASE = preset("base")


@pytest.fixture(scope="module")
def planes() -> tuple[list[Layer], set[str]]:
    """Layers whose tensors take a fifth of ACT each."""
    net = Net()
    x = net.plane(16, 40)
    for _ in range(4):
        x = net.conv(x, 16)
    net.graph.outputs.append(x)
    return layers_of(net, BASE)


def restayed(schedule: Schedule, layers: list[Layer], outside: set[str], how: Measure = measure) -> Schedule:
    whole = measure_schedule(BASE, layers, schedule, how, TilePlans())
    found, cost = restay(BASE, layers, outside, schedule, whole, how, TilePlans())
    assert cost == measure_schedule(BASE, layers, found, how, TilePlans())
    return found


def test_what_pays_stays(planes: tuple[list[Layer], set[str]]) -> None:
    layers, outside = planes
    some = make_schedule(BASE, layers, outside, Policy(share=0.2, longest=1), TilePlans())
    found = restayed(some, layers, outside)
    assert len(found.stays) > len(some.stays)
    before, after = (measure_schedule(BASE, layers, s, measure, TilePlans()) for s in (some, found))
    assert after < 0.95 * before
    assert restayed(found, layers, outside) is found


def test_nothing_gets_worse(planes: tuple[list[Layer], set[str]]) -> None:
    layers, outside = planes
    plain = Schedule.plain(layers)
    assert restayed(plain, layers, outside, lambda *image: 1000.0) is plain
    assert restay(BASE, layers, outside, plain, math.inf, measure, TilePlans()) == (plain, math.inf)


def test_long_steps_stay(planes: tuple[list[Layer], set[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    layers, outside = planes
    monkeypatch.setattr(restaying, "INSTRUCTIONS", 0)
    plain = Schedule.plain(layers)
    assert restayed(plain, layers, outside) is plain
