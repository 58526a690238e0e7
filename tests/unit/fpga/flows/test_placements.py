"""Several placements: which is routed, and what happens where some of them fail."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.common.waiting import HANG
from tilewright.fpga.board import Point
from tilewright.fpga.boards import BOARDS
from tilewright.fpga.build import build
from tilewright.fpga.errors import FpgaError
from tilewright.fpga.flows.placements import estimate, implement
from tilewright.isa.config import preset

FILE = "netlist"


class Tool:
    """Places and routes by a table.

    Attributes:
        clocks: of the placement by seed: MHz, "fail" or "hang".
        routed: seeds that can be routed.
        calls: what was done.
    """

    def __init__(self, clocks: dict[int, float | str], routed: set[int]) -> None:
        self.clocks, self.routed = clocks, routed
        self.calls: list[str] = []
        self._lock = threading.Lock()

    def place(self, folder: Path, seed: int, watch: Callable[[], None]) -> str:
        assert (folder / FILE).read_text() == "cells"
        with self._lock:
            self.calls.append(f"place{seed}")
        clock = self.clocks[seed]
        if clock == "fail":
            raise FpgaError(f"placement: no room for seed {seed}")
        while clock == "hang":
            watch()
            time.sleep(0.01)
        line = "Info: Max frequency for clock '{}': {} MHz\n"
        return line.format("a", clock) + line.format("io", "900.00")

    def route(self, folder: Path, seed: int) -> None:
        assert (folder / FILE).read_text() == "cells"
        self.calls.append(f"route{seed}")
        if seed not in self.routed:
            raise FpgaError(f"routing: no route for seed {seed}")


def ignore(text: str) -> None:
    """Progress nobody looks at."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / FILE).write_text("cells")
    return tmp_path


def run(folder: Path, tool: Tool, seeds: range, progress: Callable[[str], None] = ignore) -> int:
    return implement(folder, [FILE], seeds, tool.place, tool.route, progress)


def test_the_best_is_routed(folder: Path) -> None:
    told: list[str] = []
    tool = Tool({3: 41.5, 4: 60, 5: 52, 6: 60}, {3, 4, 5, 6})
    assert run(folder, tool, range(3, 7), told.append) == 4
    assert sorted(tool.calls[:4]) == ["place3", "place4", "place5", "place6"] and tool.calls[4:] == ["route4"]
    assert "4 of 4 placed, the best 60.0 MHz before routing" in told
    assert not list(folder.glob("seed*"))


def test_one_seed_is_placed_once(folder: Path) -> None:
    tool = Tool({}, {9})
    assert run(folder, tool, range(9, 10)) == 9 and tool.calls == ["route9"]


def test_the_next_one_where_routing_fails(folder: Path) -> None:
    tool = Tool({1: 50, 2: "fail", 3: 70, 4: 60}, {1})
    assert run(folder, tool, range(1, 5)) == 1
    assert tool.calls[4:] == ["route3", "route4", "route1"]


def test_none_can_be_routed_or_placed(folder: Path) -> None:
    with pytest.raises(FpgaError, match="routing: no route for seed 2"):
        run(folder, Tool({1: 50, 2: 60}, set()), range(1, 3))
    with pytest.raises(FpgaError, match="placement: no room for seed"):
        run(folder, Tool({1: "fail", 2: "fail"}, set()), range(1, 3))


def test_ctrl_c_ends_the_others(folder: Path) -> None:
    def interrupt(text: str) -> None:
        if "1 of 3" in text:
            raise KeyboardInterrupt

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run(folder, Tool({1: 50, 2: "hang", 3: "hang"}, set()), range(1, 4), interrupt)
    assert time.monotonic() - started < HANG  # the others would hang for ever


def test_the_clock_of_a_log() -> None:
    """nextpnr's own lines."""
    log = (
        "Info: Max frequency for clock '$glbnet$clk': 60.97 MHz (FAIL at 70.00 MHz)\n"
        "Info: Max frequency for clock  '$glbnet$sdram': 149.25 MHz (PASS at 90.00 MHz)\n"
    )
    assert estimate(log) == 60.97
    with pytest.raises(FpgaError, match="no clock for the placement"):
        estimate("Info: Program finished normally.\n")


def test_a_family_without_placements(tmp_path: Path) -> None:
    board = next(b for b in BOARDS.values() if b.family == "gowin")
    with pytest.raises(FpgaError, match="tang_nano_20k is placed and routed in one step: no --tries"):
        build(board, preset("tiny"), Point(clock_mhz=20, memory_kib=8), tmp_path, tries=2)
