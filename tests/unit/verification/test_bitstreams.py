"""`python -m verification.bitstreams`: what it writes of a build, and of one that fails, and what the page makes of
it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tilewright.fpga.boards import BOARDS
from tilewright.fpga.errors import FpgaError
from verification import bitstreams
from verification.signoff import page

REPORT = {
    "used": {"lut": 22451, "ff": 16944, "dsp": 15.5, "bram": 115},
    "timing": {"fmax_mhz": 90.42, "memory_fmax_mhz": 120.21},
    "clock_mhz": 90.0,
    "memory_mhz": 120.0,
    "cpu_seconds": 780.0,
    "sha256": "0123456789abcdef" * 4,
}
NAME = "bitstream_ulx3s_85f_small"


def digest(board: str, config: str) -> str:
    return f"5{config}5"


def page_of(folder: Path) -> str:
    """The page, where all blocks are about the design that was built."""
    return page(folder, digest=lambda block: digest("", "small"))


def test_a_build(tmp_path: Path) -> None:
    seen: list[Any] = []

    def build(board: Any, config: Any, point: Any, folder: Path, progress: Any) -> SimpleNamespace:
        seen.append((board.name, config.name, point.seed, folder.is_dir()))
        return SimpleNamespace(to_dict=lambda: REPORT)

    chosen = ["--board", "ulx3s_85f", "--config", "small", "--folder", str(tmp_path)]
    assert bitstreams.main(chosen, build, digest) == 0  # type: ignore[arg-type]
    assert seen == [("ulx3s_85f", "small", BOARDS["ulx3s_85f"].points["small"].seed, True)]
    text = page_of(tmp_path)
    assert "| 22,451 | 16,944 | 15.5 | 115 | 90 | 90.4 | 120 | 120.2 | 13 | `0123456789abcdef` |" in text
    assert "RTL of `small` on `ulx3s_85f` `5small5`:" in text
    assert "\n.venv/bin/python -m verification.bitstreams --board ulx3s_85f --config small\n" in text
    file = tmp_path / f"{NAME}.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"sources": "another"}))
    assert "RTL of `small` on `ulx3s_85f` `another`, changed since then:" in page_of(tmp_path)


def test_a_build_that_fails(tmp_path: Path) -> None:
    def build(board: Any, config: Any, point: Any, folder: Path, progress: Any) -> None:
        raise FpgaError(f"not routed (see {folder}/top.tim)")

    chosen = ["--board", "ulx3s_85f", "--folder", str(tmp_path)]
    assert bitstreams.main(chosen, build, digest) == 1  # type: ignore[arg-type]
    written = sorted(file.stem for file in tmp_path.iterdir())
    assert written == sorted(f"bitstream_ulx3s_85f_{config}" for config in BOARDS["ulx3s_85f"].points)
    assert "Open: it is not built. not routed (see .../top.tim)" in page_of(tmp_path)


def test_no_such_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bitstreams.main(["--board", "tang_nano_20k", "--config", "base"])
    assert "no board has a configuration 'base': known are nano, small, tiny, wide" in capsys.readouterr().err
