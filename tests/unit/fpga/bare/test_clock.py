"""Place and route out of context, on a part of the NPU in its place: the whole one takes minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.fpga.bare import clock
from tilewright.fpga.bare.resources import family_named, synthesise
from tilewright.fpga.errors import FpgaError
from tilewright.hw.issue.semaphores import Semaphores
from tilewright.isa.config import PRESETS


@pytest.mark.slow
@pytest.mark.long
def test_clock_of_the_semaphores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    command = family_named("ecp5").command
    first, second = (clock.place_and_route(PRESETS["tiny"].with_(semaphores=12), command, Semaphores) for _ in range(2))
    assert 20 < first < 400 and second == first  # kept


def test_other_families() -> None:
    with pytest.raises(FpgaError, match="nextpnr out of context is there for ecp5, not xc7"):
        synthesise(PRESETS["tiny"], "xc7", "nextpnr")
