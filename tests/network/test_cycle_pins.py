"""Cycle counts stay where they are: a change that costs more than 1 % fails, one that gains more than 2 % asks for new
pins (`make pins`), so that the gain is kept."""

from __future__ import annotations

import json

import pytest

import tilewright as tw
from tests.network.cycle_pins import CASES, FILE, cycles
from tilewright import zoo
from tilewright.runtime.cost import program_cycles

PINS = json.loads(FILE.read_text())
#: MobileNetV2 takes as long to compile as half of the others.
MARKED = [pytest.param(*case, marks=[pytest.mark.long] * (case[0] == "mobilenet_v2")) for case in CASES]


def test_every_case_has_a_pin() -> None:
    assert set(PINS) == {f"{network} {config}" for network, config in CASES}, "run `make pins`"


@pytest.mark.network
@pytest.mark.parametrize(("network", "config"), MARKED, ids=lambda value: value)
def test_cycles(network: str, config: str) -> None:
    pin, found = PINS[f"{network} {config}"], cycles(network, config)
    assert found <= 1.01 * pin, f"{network} on {config} takes {found} cycles, {found / pin - 1:.1%} more than {pin}"
    assert found >= 0.98 * pin, (
        f"{network} on {config} takes {found} cycles, {1 - found / pin:.1%} fewer than the pinned {pin}: "
        "run `make pins` and commit tests/network/cycle_pins.json"
    )


@pytest.mark.network
@pytest.mark.parametrize("network", ["ds_cnn", pytest.param("vww", marks=pytest.mark.long)])
def test_four_images_are_no_slower_than_four_runs(network: str) -> None:
    """Tensors of four images may not fit the chip together; those of one do."""
    program = tw.compile(zoo.build_quantized(network, batch=4), "base", cache=False)
    assert program_cycles(program) <= 4 * PINS[f"{network} base"]
