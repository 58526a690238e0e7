"""`run --trace-file`, `--fst` and `--trace-window`: what reaches the RTL device, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.cli.job import Recording
from tilewright.errors import UsageError


def test_window_and_file(tmp_path: Path) -> None:
    file = tmp_path / "w.vcd"
    assert Recording(trace_file=file, trace_window="100:400").device_options("rtl", Path("m.onnx")) == {
        "trace_file": file,
        "trace_window": (100, 400),
    }
    assert Recording(trace_file=file).device_options("rtl", Path("m.onnx")) == {"trace_file": file}
    assert Recording(fst=tmp_path / "w.fst").device_options("rtl", Path("m.onnx")) == {"trace_file": tmp_path / "w.fst"}
    assert Recording().device_options("functional", Path("m.onnx")) == {}


@pytest.mark.parametrize("window", ["5:2", "7", "a:b", "-1:4", "3:3", ""])
def test_bad_windows(window: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must be A:B"):
        Recording(trace_file=tmp_path / "w.vcd", trace_window=window).device_options("rtl", Path("m.onnx"))


def test_only_the_rtl_has_signals(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="add --backend rtl"):
        Recording(trace_file=tmp_path / "w.vcd").device_options("cycle", Path("m.onnx"))
    with pytest.raises(UsageError, match="add --backend rtl"):
        Recording(fst=tmp_path / "w.fst").device_options("cycle", Path("m.onnx"))


def test_one_waveform_of_its_format(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--fst or --trace-file, not both"):
        Recording(fst=tmp_path / "w.fst", trace_file=tmp_path / "w.vcd").device_options("rtl", Path("m.onnx"))
    with pytest.raises(UsageError, match=r"must be a file that ends in \.fst, not '.*w\.vcd'"):
        Recording(fst=tmp_path / "w.vcd").device_options("rtl", Path("m.onnx"))
