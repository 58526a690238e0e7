"""The gate simulator on a counter of the small library, whose toggles are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibration.energy import netlist
from calibration.energy.simulation import GateDevice
from tests.common import needs
from tests.unit.calibration.energy import small_library
from tests.unit.calibration.energy.small_library import cell
from tilewright.common.native import BuildError
from tilewright.isa.config import PRESETS
from tilewright.isa.device import DeviceError

_BITS = 8
_CLOCK, _GATED = 2, 3


def _counter() -> dict[str, Any]:
    """Counts every cycle; its highest bit is the interrupt. A register follows bit 2 in cycles in which bit 0 is set;
    and an XOR of bit 0 with itself behind two inverters, which glitches."""
    q, d, carry = (list(range(base, base + _BITS + 1)) for base in (10, 30, 50))
    cells = {}
    for i in range(_BITS):
        cells[f"q{i}"] = cell("DFF", CLK=_CLOCK, D=d[i], Q=q[i])
        cells[f"d{i}"] = cell("XOR2", A=q[i], B="1" if i == 0 else carry[i], Y=d[i])
        if i + 1 < _BITS:
            cells[f"c{i}"] = cell("AND2", A=q[i], B="1" if i == 0 else carry[i], Y=carry[i + 1])
    cells["gate"] = cell(netlist.GATE_CELL, CLK=_CLOCK, EN=q[0], GCLK=_GATED)
    cells["follow"] = cell("DFF", CLK=_GATED, D=q[2], Q=70)
    cells["once"], cells["twice"] = cell("INV", A=q[0], Y=71), cell("INV", A=71, Y=72)
    cells["glitch"] = cell("XOR2", A=q[0], B=72, Y=73)
    ports = {"clk": [_CLOCK], "irq": [q[_BITS - 1]], "axil_awready": ["1"], "axil_wready": ["1"], "follow": [70],
             "count": q[:_BITS], "glitch": [73]}  # fmt: skip
    return small_library.module(ports, cells)


@pytest.mark.medium
@pytest.mark.parametrize("glitches", [False, True])
def test_toggles_of_a_counter(tmp_path: Path, glitches: bool) -> None:
    gates = netlist.read(_counter(), small_library.library(tmp_path))
    try:
        device = GateDevice(PRESETS["tiny"], gates, glitches=glitches)
    except BuildError:
        needs.skip(needs.C_COMPILER)
    assert device.start({})
    found = device.activity
    device.close()
    # From START to the interrupt the counter ends at 128; so it was 128 less the cycles before.
    first, last = 128 - found.cycles, 128
    assert 0 < first < 64
    for bit, net in enumerate(gates.ports["count"]):
        assert found.toggles[net] == (last >> bit) - (first >> bit)  # as often as the bits from it on change
    odd = sum(n & 1 for n in range(first, last))
    assert found.enabled.tolist() == [odd]
    # It follows bit 2 a cycle with bit 0 later: as often as bit 2 toggles, but for the ends.
    bit2 = found.toggles[gates.ports["count"][2]]
    assert abs(int(found.toggles[gates.ports["follow"][0]]) - int(bit2)) <= 1
    # The XOR is 0 at rest; with delays it rises and falls whenever bit 0 toggles.
    assert found.toggles[gates.ports["glitch"][0]] == (2 * found.cycles if glitches else 0)
    assert np.all(found.toggles[:2] == 0)


@pytest.mark.medium
def test_registers_that_do_not_answer_are_an_error(tmp_path: Path) -> None:
    module = _counter()
    module["ports"]["axil_awready"] = {"bits": ["0"]}
    gates = netlist.read(module, small_library.library(tmp_path))
    try:
        device = GateDevice(PRESETS["tiny"], gates)
    except BuildError:
        needs.skip(needs.C_COMPILER)
    with pytest.raises(DeviceError, match="does not answer an access to register WATCHDOG"):
        device.write_register("WATCHDOG", 1)
    with pytest.raises(DeviceError, match="register CONTROL"):
        device.start({})
    with pytest.raises(DeviceError, match="register STATUS"):  # the counter has no port for reads
        device.read_register("STATUS")
    device.close()
