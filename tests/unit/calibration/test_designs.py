"""`python -m calibration`: whether designs are those that were measured."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from calibration import __main__ as command
from calibration import designs
from tilewright.isa.config import PRESETS


def test_designs_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(designs.designs, "digest", lambda config: f"{config.name} now")
    stored = {"area": "tiny now", "fmax": "tiny before", "energy": "tiny now"}
    monkeypatch.setattr(command, "measured_designs", lambda name: [(PRESETS["tiny"], stored[name])])
    done = CliRunner().invoke(command.main, ["area", "energy"])
    assert done.exit_code == 0 and done.output.splitlines() == ["area: tiny: as measured", "energy: tiny: as measured"]
    done = CliRunner().invoke(command.main, [])
    assert done.exit_code == 1 and "fmax: tiny: another design now" in done.output
    assert "other designs than those measured for fmax; anew by: python -m calibration.fmax" in done.output


def test_every_model_has_machines() -> None:
    for name in command.COMMANDS:
        assert len(command.measured_designs(name)) >= 8
