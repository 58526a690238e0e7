"""Configurations that cannot fit on a board are refused before synthesis, and none that was built is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tilewright.cli import cli
from tilewright.fpga import build as builder
from tilewright.fpga.area import estimate
from tilewright.fpga.boards import BOARDS
from tilewright.fpga.cells import Capacity
from tilewright.fpga.errors import FpgaError
from tilewright.fpga.fit import lower_bound, require_fit
from tilewright.fpga.points import board_named, point_of
from tilewright.fpga.zynq.boards import ZYNQ_BOARDS
from tilewright.isa.config import PRESETS, NpuConfig, preset

#: LUTs and flip-flops counted by builds, SoC and memory included (docs/fpga.md, docs/zynq.md).
BUILT = {
    ("ulx3s_85f", "tiny"): (14508, 11092), ("ulx3s_85f", "small"): (22576, 16942),
    ("ulx3s_85f", "wide"): (33319, 20551), ("tang_nano_20k", "nano"): (19122, 9582),
    ("pynq_z2", "wide"): (17091, 18420),
}  # fmt: skip


@pytest.mark.medium
def test_what_was_built_is_not_refused() -> None:
    for board in (*BOARDS.values(), *ZYNQ_BOARDS.values()):
        for name, point in board.points.items():
            require_fit(board, preset(name), point)


@pytest.mark.parametrize(("name", "config"), BUILT)
def test_it_is_a_lower_bound(name: str, config: str) -> None:
    board = (BOARDS | ZYNQ_BOARDS)[name]
    needs = lower_bound(preset(config), board.family, board.capacity)
    assert needs["LUTs"] <= BUILT[name, config][0] and needs["flip-flops"] <= BUILT[name, config][1]


@pytest.mark.medium
@pytest.mark.parametrize(
    ("board", "config"),
    [
        ("ulx3s_85f", PRESETS["large"]),
        ("orangecrab_85f", PRESETS["large"]),
        ("tang_nano_20k", PRESETS["small"]),
        ("pynq_z2", PRESETS["large"]),
        ("ultra96_v2", PRESETS["large"].with_(block_in=64)),
    ],
    ids=lambda one: one if isinstance(one, str) else one.name,
)
def test_what_cannot_fit(board: str, config: NpuConfig) -> None:
    chosen = board_named(board)
    with pytest.raises(FpgaError) as error:
        require_fit(chosen, config, point_of(chosen, config))
    text = str(error.value)
    assert "\n" not in text and f"cannot fit on {board}" in text and "fit: " in text.replace("estimate: ", "fit: ")
    family = {"ultra96_v2": "xc7"}.get(board, chosen.family)  # UltraScale+ has no model of its own
    assert f"{estimate(config, family).lut:,} LUTs" in text and f"{chosen.capacity.lut:,}" in text
    assert ("of xc7, another family" in text) == (board == "ultra96_v2")


@pytest.mark.medium
def test_memory_and_multipliers_that_are_missing_become_luts() -> None:
    large, tiny = Capacity(lut=0, ff=0, dsp=9999, bram=9999), preset("tiny")
    plain = lower_bound(tiny, "ecp5", large)
    assert lower_bound(tiny, "ecp5", large, memory_kib=1024) == plain
    assert lower_bound(tiny, "ecp5", Capacity(lut=0, ff=0, dsp=0, bram=9999))["LUTs"] > plain["LUTs"]
    without = lower_bound(tiny, "ecp5", Capacity(lut=0, ff=0, dsp=9999, bram=0))["LUTs"]
    bits = (lower_bound(tiny, "ecp5", Capacity(lut=0, ff=0, dsp=9999, bram=0), memory_kib=2)["LUTs"] - without) * 64 / 6
    assert bits == pytest.approx(2 << 13, abs=11)
    board = board_named("ulx3s_85f")
    require_fit(board, tiny, point_of(board, tiny, memory_kib=400))
    with pytest.raises(FpgaError, match="tiny with 4096 KiB of memory cannot fit on ulx3s_85f"):
        require_fit(board, tiny, point_of(board, tiny, memory_kib=4096))
    require_fit(board, tiny, point_of(board, tiny, memory="sdram"))


@pytest.mark.medium
def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    built: list[NpuConfig] = []

    def build(board: Any, config: NpuConfig, *more: Any, **options: Any) -> Any:
        built.append(config)
        raise FpgaError("built")

    monkeypatch.setattr(builder, "build", build)

    def run(*more: str) -> str:
        with pytest.raises(SystemExit) as exit_:
            cli.main(
                ["fpga", "build", "--board", "ulx3s_85f", "--config", "large", "-o", str(tmp_path / "bits"), *more],
                prog_name="tilewright",
            )
        assert exit_.value.code == 2
        return capsys.readouterr().err

    refused = run()
    assert "large" in refused and "--anyway" in refused and not built and len(refused.splitlines()) == 1
    assert not (tmp_path / "bits").exists()
    assert "built" in run("--anyway") and built == [PRESETS["large"]]
