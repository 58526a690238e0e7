"""Compile times are those of a first compile, and leave the caches as they were."""

from __future__ import annotations

import os

import pytest

from tilewright.measure import speed


@pytest.mark.medium
def test_a_first_compile_each_time(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    seen: list[str] = []
    found = speed.compile_time("autoencoder", "tiny", seen.append)
    assert found["autoencoder_macs"] > 2e5
    assert found["autoencoder_compile_seconds"] > 0 and found["autoencoder_compile_cpu_seconds"] > 0
    assert os.environ["TILEWRIGHT_CACHE"] == str(tmp_path) and not (tmp_path / "kernels").exists()
    assert seen == ["getting autoencoder", "compiling autoencoder"]
