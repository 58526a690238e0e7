"""Compile times are those of a first compile, and leave the caches as they were."""

from __future__ import annotations

import os

import pytest

from tilewright.measure import speed


def test_a_first_compile_each_time(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    seen: list[str] = []
    found = speed.compile_time("ds_cnn", "tiny", seen.append)
    assert found["ds_cnn_macs"] > 2e6
    assert found["ds_cnn_compile_seconds"] > 0 and found["ds_cnn_compile_cpu_seconds"] > 0
    assert os.environ["TILEWRIGHT_CACHE"] == str(tmp_path) and not (tmp_path / "kernels").exists()
    assert seen == ["getting ds_cnn", "compiling ds_cnn"]
