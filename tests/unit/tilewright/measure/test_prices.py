"""Prices of options: differences of cells and cycles, and what cannot be read."""

from __future__ import annotations

import pytest

from fpga.bare.resources import Resources
from isa.config import ConfigError, NpuConfig, preset
from tilewright.errors import TilewrightError
from tilewright.measure import prices


def counted(config: NpuConfig, family: str) -> Resources:
    """Cells that are easy to know."""
    assert family == "ecp5"
    return Resources(lut=1000 * config.semaphores, ff=config.queue_depth, dsp=config.vector_lanes, bram=1)


def test_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prices, "synthesise", counted)
    monkeypatch.setattr(prices, "NETWORKS", ("ds_cnn",))
    whole, deep, wide = prices.rows(preset("tiny"), ["semaphores=13,queue_depth=2", "vector_passes=1"], "ecp5")
    assert whole[:5] == ["`tiny`", "12,000", "16", "1", "1"]
    assert deep[:5] == ["`semaphores=13, queue_depth=2`", "+1,000", "-14", "+0", "+0"]
    assert wide[:5] == ["`vector_passes=1`", "+0", "+0", "+3", "+0"]
    assert int(whole[5].replace(",", "")) > 100_000
    # Queues of two hold the engines up, four times the lanes make them faster.
    assert float(deep[5].rstrip(" %")) > 1 > 0 > float(wide[5].rstrip(" %"))


@pytest.mark.parametrize("option", ["semaphores", "semaphores=many", "=3,", "semaphores=-1"])
def test_options_that_cannot_be_read(option: str) -> None:
    with pytest.raises(TilewrightError):
        preset("tiny").with_(**prices.parse_option(option))


def test_options_no_machine_has() -> None:
    with pytest.raises(ConfigError, match=r"semaphores must be 12\.\.63, not 3"):
        list(prices.rows(preset("tiny"), ["semaphores=3"], "ecp5"))
