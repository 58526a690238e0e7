"""Prices of options: differences of cells and cycles, and what cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibration.benchmarks import prices
from tilewright import zoo
from tilewright.errors import TilewrightError
from tilewright.fpga.bare.resources import Resources
from tilewright.isa.config import ConfigError, NpuConfig, preset


def counted(config: NpuConfig, family: str) -> Resources:
    """Cells that are easy to know."""
    assert family == "ecp5"
    return Resources(lut=1000 * config.semaphores, ff=config.queue_depth, dsp=config.vector_lanes, bram=1)


@pytest.mark.medium
def test_rows() -> None:
    options = ["semaphores=13,queue_depth=2", "vector_passes=1"]
    models = {"resnet8": zoo.build_quantized("resnet8", size=8)}
    whole, deep, wide = prices.rows(preset("tiny"), options, "ecp5", models=models, count_cells=counted)
    assert whole[:5] == ["`tiny`", "12,000", "16", "1", "1"]
    assert deep[:5] == ["`semaphores=13, queue_depth=2`", "+1,000", "-14", "+0", "+0"]
    assert wide[:5] == ["`vector_passes=1`", "+0", "+0", "+3", "+0"]
    assert int(whole[5].replace(",", "")) > 40_000
    # Queues of two hold the engines up, four times the lanes make them faster.
    assert float(deep[5].rstrip(" %")) > 0 > float(wide[5].rstrip(" %"))


@pytest.mark.parametrize("option", ["semaphores", "semaphores=many", "=3,", "semaphores=-1"])
def test_options_that_cannot_be_read(option: str) -> None:
    with pytest.raises(TilewrightError):
        preset("tiny").with_(**prices.parse_option(option))


def test_options_no_machine_has() -> None:
    with pytest.raises(ConfigError, match=r"semaphores must be 12\.\.63, not 3"):
        list(prices.rows(preset("tiny"), ["semaphores=3"], "ecp5"))


@pytest.mark.medium
def test_table_in_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The table with the same heading is replaced, and nothing around it; cycles are kept."""
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "kept"))
    models = {"ds_cnn": zoo.build_quantized("ds_cnn", **zoo.ZOO["ds_cnn"].small)}
    runs: list[str] = []
    monkeypatch.setattr(prices, "_run", lambda model, config: runs.append(config.name) or 1000 * config.semaphores)
    page = tmp_path / "page.md"
    head = prices.line(prices.HEAD)
    page.write_text(f"before\n\n{head}\n|---|\n| old | 1 |\n\n| other |\n")
    for _ in range(2):
        prices.main(["tiny", "semaphores=24", "--write", str(page)], models=models, count_cells=counted)
    printed = capsys.readouterr().out.splitlines()
    assert printed[:4] == printed[4:]
    assert printed[3] == "| `semaphores=24` | +12,000 | +0 | +0 | +0 | +100.0 % |"
    assert page.read_text().splitlines() == ["before", "", *printed[:4], "", "| other |"]
    assert len(runs) == 2
    with pytest.raises(TilewrightError, match="has no table with the heading"):
        prices.put(["| another |"], page)
