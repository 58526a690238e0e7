"""`run --trace-file` and `--trace-window`: what reaches the RTL device, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.cli.run import waveform_options
from tilewright.errors import UsageError


def test_window_and_file(tmp_path: Path) -> None:
    file = tmp_path / "w.vcd"
    assert waveform_options("rtl", Path("m.onnx"), file, "100:400") == {"trace_file": file, "trace_window": (100, 400)}
    assert waveform_options("rtl", Path("m.onnx"), file, None) == {"trace_file": file}
    assert waveform_options("functional", Path("m.onnx"), None, None) == {}


@pytest.mark.parametrize("window", ["5:2", "7", "a:b", "-1:4", "3:3", ""])
def test_bad_windows(window: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must be A:B"):
        waveform_options("rtl", Path("m.onnx"), tmp_path / "w.vcd", window)


def test_only_the_rtl_has_signals(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="add --backend rtl"):
        waveform_options("cycle", Path("m.onnx"), tmp_path / "w.vcd", None)
