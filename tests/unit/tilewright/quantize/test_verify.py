"""The process in which a quantised model is run."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from tests.unit.tilewright.quantize import networks
from tilewright.errors import UsageError
from tilewright.quantize import ranges, verify
from tilewright.quantize.recipe import Recipe
from tilewright.quantize.writing import write


@pytest.mark.slow
def test_a_process_of_its_own() -> None:
    """Verification in a process of its own has a report, shows progress, and refuses inputs that do not fit."""
    model, samples = networks.deep(depth=2), networks.samples(2)
    written = write(Recipe(model, ranges.find(model, samples, "minmax")))
    said: list[tuple[str, float]] = []
    found = verify.verify(written, samples[0], lambda text, done: said.append((text, done)))
    assert found.report.ok and found.npu_macs == found.macs > 0
    assert said[0][0].startswith("running") and any(text.startswith("compiling") for text, _ in said)
    with pytest.raises(UsageError, match="does not run on calibration data of x"):
        verify.verify(written, {"x": np.zeros((1, 3, 5), np.float32)})


def test_a_process_that_dies(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    script = tmp_path / "dies"
    model, (sample,) = networks.deep(depth=1), networks.samples(1)
    script.write_text("#!/bin/sh\necho from a library\nkill -SEGV $$\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    with pytest.raises(UsageError, match="the process that ran it was ended by SIGSEGV"):
        verify.verify(model, sample)
    script.write_text("#!/bin/sh\necho no memory >&2\nexit 3\n")
    with pytest.raises(UsageError, match="the process that ran it ended with code 3: no memory"):
        verify.verify(model, sample)
