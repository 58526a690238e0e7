"""Building the Verilated NPU: what is built again and what is not, and what happens where it cannot be built."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.common.paths import ROOT
from tilewright.hw.sim import build as sim
from tilewright.isa.config import preset

#: A line that echoes, behind the smallest harness there is: what is built again does not depend on the design.
ECHO = "module echo(input clk, input rst, input rx, output reg tx); always @(posedge clk) tx <= rst | rx; endmodule"
HARNESS = ROOT / "fpga" / "sim" / "line.cpp"


def echo(verilog: Callable[[], str] = lambda: ECHO) -> sim.Design:
    return sim.Design("echo", "the simulation of an echo", "echo", HARNESS, verilog, [Path(__file__)])


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    with pytest.raises(sim.BuildError, match=r"^no C\+\+ compiler: g\+\+ not found \(install g\+\+ or set CXX\)$"):
        sim.build(preset("tiny"))
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(sim.BuildError, match="no-such-compiler not found"):
        sim.build(preset("tiny"))


def test_a_compiler_that_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "c++broken"
    broken.write_text("#!/bin/sh\necho 'error: no licence' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    with pytest.raises(sim.BuildError, match="error: no licence") as info:
        sim.build_library(echo(), progress=lambda what, done: None)
    assert "\n" not in str(info.value)
    assert not list((tmp_path / "cache").rglob("*.so"))


def test_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(blocked))
    with pytest.raises(sim.BuildError, match="cannot write the RTL simulation to") as info:
        sim.build(preset("tiny"), progress=lambda what, done: None)
    assert os.linesep not in str(info.value)


@pytest.mark.slow
@pytest.mark.cosim
def test_what_is_built_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    elaborated, seen = [], []
    design = echo(lambda: elaborated.append(1) or ECHO)

    def progress(what: str, done: float) -> None:
        seen.append((what, done))

    library = sim.build_library(design, progress=progress)
    fractions = [done for _, done in seen]
    assert fractions == sorted(fractions) and fractions[0] == 0 and fractions[-1] == 1 and len(fractions) > 4
    assert all(what.startswith("building the simulation of an echo") for what, _ in seen)
    objects = sorted(library.parent.glob("*.o"))
    assert {path.name.partition("-")[0] for path in objects} == {"runtime"}

    seen.clear()
    assert sim.build_library(design, progress=progress) == library and not seen
    # Neither the time of a file nor the folder the headers are in counts.
    elsewhere = tmp_path / "include"
    shutil.copytree(sim._INCLUDE, elsewhere)
    monkeypatch.setattr(sim, "_INCLUDE", elsewhere)
    assert sim.build_library(design, progress=progress) == library and not seen and len(elaborated) == 1
    # A build that is lost, or one with other flags, needs neither Amaranth nor the run-time library again.
    library.unlink()
    times = [path.stat().st_mtime_ns for path in objects]
    assert sim.build_library(design, progress=progress) == library and seen and len(elaborated) == 1
    assert [path.stat().st_mtime_ns for path in objects] == times


def test_a_compiler_that_fails_leaves_no_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The run-time library is compiled meanwhile: its compiler ends with the build."""
    slow = tmp_path / "c++slow"
    slow.write_text(
        f'#!/bin/sh\ncase "$*" in *-dM*) exec g++ "$@";; esac\necho $$ >> {tmp_path}/pids\nexec sleep 1000\n'
    )
    slow.chmod(0o755)
    monkeypatch.setenv("CXX", str(slow))
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))

    def fails(config: object) -> str:
        while not (tmp_path / "pids").exists():
            pass
        raise KeyboardInterrupt

    monkeypatch.setattr(sim, "convert", fails)
    with pytest.raises(KeyboardInterrupt):
        sim.build(preset("tiny"), progress=lambda what, done: None)
    pids = [int(text) for text in (tmp_path / "pids").read_text().split()]
    assert pids and not any(psutil.pid_exists(pid) for pid in pids)
