"""Units of equal shape are measured once: their programs, made anew, take the same cycles."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable

import pytest

import tilewright as tw
from tilewright import zoo
from tilewright.compiler.npu.schedule.problem import Measured, StepProblem
from tilewright.isa.config import PRESETS
from verification.programs.equality import VARIANTS


@pytest.mark.medium
@pytest.mark.parametrize(
    ("network", "config"),
    [("mobilenet_v1", "base"), ("deit", "small"), ("ds_cnn", "one_queue"), ("efficientnet", "base")],
)
def test_equal_keys_have_equal_costs(network: str, config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[Hashable, set[Measured]] = defaultdict(set)
    calls = 0
    usual = StepProblem.measured_units

    def anew(self: StepProblem, units, schedule, start) -> Measured:  # type: ignore[no-untyped-def]
        nonlocal calls
        calls += 1
        found[self.measure, self._key(units, schedule, start)].add(self._measure(units, schedule, start))
        return usual(self, units, schedule, start)

    monkeypatch.setattr(StepProblem, "measured_units", anew)
    machine = PRESETS.get(config) or VARIANTS[config]
    tw.compile(zoo.build_quantized(network, **zoo.ZOO[network].small), machine, cache=False)
    assert all(len(costs) == 1 for costs in found.values())
    assert calls > len(found) > 5
