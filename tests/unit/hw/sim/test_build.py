"""Building the Verilated NPU: what happens where it cannot be built."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hw.sim import build as sim
from isa.config import preset


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    with pytest.raises(sim.BuildError, match=r"^no C\+\+ compiler: g\+\+ not found \(install g\+\+ or set CXX\)$"):
        sim.build(preset("tiny"))
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(sim.BuildError, match="no-such-compiler not found"):
        sim.build(preset("tiny"))


@pytest.mark.slow
def test_a_compiler_that_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "c++broken"
    broken.write_text("#!/bin/sh\necho 'error: no licence' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    with pytest.raises(sim.BuildError, match="error: no licence") as info:
        sim.build(preset("tiny"), say=lambda line: None)
    assert "\n" not in str(info.value)
    assert not list((tmp_path / "cache").rglob("*.so"))


def test_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(blocked))
    with pytest.raises(sim.BuildError, match="cannot write the RTL simulation to") as info:
        sim.build(preset("tiny"), say=lambda line: None)
    assert os.linesep not in str(info.value)
