"""Several placements: which is routed, what happens where tools fail. The tools are stand-ins that take seeds only."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fpga.board import Point
from fpga.boards import BOARDS
from fpga.build import board_named, build
from fpga.errors import FpgaError
from fpga.floorplan import refinement
from fpga.implementation import Implementation, estimate
from fpga.routing import TRIED
from fpga.toolchain import CONSTRAINTS, FAMILIES, NETLIST, PLACEMENT, PLACEMENT_LOG, Family, Plan, Step
from isa.config import preset
from tests.common.waiting import HANG

#: By seed: the clock of its placement, "fail" or "hang"; whether it can be routed. A trial has passes, and goes on
#: after the last one if they are TRIED.
TOOL = """
import json, re, sys, time
from pathlib import Path

def act(arguments):
    what, seed = arguments
    if what == "routeplaced":  # which is placed, says what the floorplan left there
        seed = re.search(r"planned (\\d+)", Path("PLACEMENT").read_text())[1]
    if what == "trial":
        with Path("trial.tim").open("w") as file:
            for number in range(1, int(seed) + 1):
                file.write(f"Info:     iter={number} wires=9 overused=1 overuse=1 archfail=NA\\n")
        time.sleep(3600 if int(seed) >= TRIED else 0)
        return
    clocks, routed = json.loads(Path(__file__).with_name("plan.json").read_text())
    with Path(__file__).with_name("calls").open("a") as file:
        file.write(f"{what}{seed} ")
    if what == "place":
        Path("PLACEMENT").write_text(Path("top.json").read_text())
        if clocks[seed] == "hang":
            time.sleep(3600)
        if clocks[seed] == "fail":
            sys.exit("ERROR: no room for seed " + seed)
        line = "Info: Max frequency for clock '{}': {} MHz\\n"
        Path("LOG").write_text(line.format("a", clocks[seed]) + line.format("io", "900.00"))
    else:
        if not routed[seed]:
            sys.exit("ERROR: no route for seed " + seed)
        source = "PLACEMENT" if what == "routeplaced" else "top.json"
        Path("routed").write_text(Path(source).read_text() + " by " + seed)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "standin.py").write_text(
        TOOL.replace("LOG", PLACEMENT_LOG).replace("TRIED", str(TRIED)).replace("PLACEMENT", PLACEMENT)
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    directory = tmp_path / "build"
    directory.mkdir()
    (directory / NETLIST).write_text("netlist")
    (directory / CONSTRAINTS).write_text("")
    return directory


def floorplan(platform: Any, directory: Path, blocks: tuple[int, int]) -> Plan:
    assert blocks == (156, 208)

    def plan(folder: Path, seed: int, progress: Any) -> None:
        file = folder / NETLIST
        file.write_text(f"{file.read_text()} planned {seed}")

    return plan


def room(folder: Path, left: int) -> int:
    (folder / NETLIST).write_text(f"{(folder / PLACEMENT).read_text()} with room of {left}")
    return left // 2


def refine(folder: Path, tried: bool, progress: Any) -> None:
    file = folder / PLACEMENT
    file.write_text(f"{file.read_text()} moved{' away' if tried else ''}")


def implementation(
    folder: Path,
    clocks: dict[int, float | str],
    routed: dict[int, bool],
    crowded: bool = True,
    left: int | None = None,
    passes: int = TRIED,
) -> Implementation:
    (folder.parent / "plan.json").write_text(json.dumps([clocks, routed]))
    family = Family(
        overrides={},
        command="",
        techmap="",
        place=lambda platform, mhz, seed, crowded: Step(
            "placement", "standin", "act", ("place", str(seed)), PLACEMENT_LOG
        ),
        route=lambda platform, mhz, seed, crowded: Step("routing", "standin", "act", ("route", str(seed)), "top.tim"),
        pack=lambda platform: Step("", "", "", (), ""),
        bitstream="",
        floorplan=floorplan,
        trial=lambda platform, folder, mhz: Step("trial", "standin", "act", ("trial", str(passes)), "trial.tim"),
        room=room,
        refine=refine,
        can_refine=lambda: None,
        route_placed=lambda platform, mhz: Step("routing", "standin", "act", ("routeplaced", ""), "top.tim"),
    )
    capacity = board_named("ulx3s_85f").capacity
    return Implementation(family, None, capacity, folder, mhz=50, crowded=crowded, left=left)


def calls(folder: Path) -> list[str]:
    return (folder.parent / "calls").read_text().split()


def test_the_best_is_routed(folder: Path) -> None:
    told: list[str] = []
    work = implementation(folder, {3: 41.5, 4: 60, 5: 52, 6: 60}, dict.fromkeys((3, 4, 5, 6), True))
    assert work.run(range(3, 7), told.append) == 4
    assert (folder / "routed").read_text() == "netlist planned 4 by 4"
    assert sorted(calls(folder)[:4]) == ["place3", "place4", "place5", "place6"] and calls(folder)[4:] == ["route4"]
    assert "4 of 4 placed, the best 60.0 MHz before routing" in told
    assert not list(folder.glob("seed*"))


def test_one_seed_is_placed_once(folder: Path) -> None:
    assert implementation(folder, {}, {9: True}).run([9], lambda text: None) == 9
    assert (folder / "routed").read_text() == "netlist planned 9 by 9" and calls(folder) == ["route9"]


def test_with_room_to_spare_blocks_are_left_to_nextpnr(folder: Path) -> None:
    work = implementation(folder, {1: 50, 2: 60}, {2: True}, crowded=False)
    assert work.run(range(1, 3), lambda text: None) == 2
    assert (folder / "routed").read_text() == "netlist by 2"


def test_the_next_one_where_routing_fails(folder: Path) -> None:
    work = implementation(folder, {1: 50, 2: "fail", 3: 70, 4: 60}, {1: True, 3: False, 4: False})
    assert work.run(range(1, 5), lambda text: None) == 1
    assert calls(folder)[4:] == ["route3", "route4", "route1"]
    assert (folder / "routed").read_text() == "netlist planned 1 by 1"


@pytest.mark.slow
def test_what_fills_the_fpga_is_placed_twice(folder: Path) -> None:
    """Then its cells are moved, and it is routed as it lies. The trial would sleep for a minute."""
    told: list[str] = []
    started = time.monotonic()
    work = implementation(folder, {9: 40}, {9: True}, left=70)
    assert work.run([9], told.append) == 9
    assert calls(folder) == ["place9", "place9", "routeplaced9"]
    assert [text for text in told if text != "placing blocks"] == [
        "trial of routing", "35 LUTs of room", "moving cells", "trial of routing", "moving cells", "routing",
    ]  # fmt: skip
    assert (folder / "routed").read_text() == "netlist planned 9 with room of 70 moved moved away by 9"
    assert time.monotonic() - started < HANG


def test_a_trial_that_finds_enough_wires(folder: Path) -> None:
    assert implementation(folder, {9: 40}, {9: True}, left=70, passes=TRIED - 1).run([9], lambda text: None) == 9
    assert (folder / "routed").read_text() == "netlist planned 9 moved by 9"


@pytest.mark.slow
def test_each_of_several_placements_has_its_own_room(folder: Path) -> None:
    work = implementation(folder, {1: 50, 2: 60}, {1: True, 2: False}, left=70)
    assert work.run(range(1, 3), lambda text: None) == 1
    assert (folder / "routed").read_text() == "netlist planned 1 with room of 70 moved moved away by 1"
    assert calls(folder)[2:] == ["place2", "routeplaced2", "place1", "routeplaced1"]
    assert not list(folder.glob("seed*"))


def test_a_missing_compiler_is_told_before_anything_is_placed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = implementation(folder, {9: 40}, {9: True}, left=70)
    work = replace(work, family=replace(work.family, can_refine=FAMILIES["ecp5"].can_refine))
    monkeypatch.setenv("CXX", "no-such-compiler")
    refinement._library.cache_clear()
    with pytest.raises(FpgaError, match="no C\\+\\+ compiler: no-such-compiler not found"):
        work.run([9], lambda text: None)
    assert not (folder.parent / "calls").exists()


def test_none_can_be_routed_or_placed(folder: Path) -> None:
    work = implementation(folder, {1: 50, 2: 60}, {1: False, 2: False})
    with pytest.raises(FpgaError, match="routing: standin failed: ERROR: no route for seed 2"):
        work.run(range(1, 3), lambda text: None)
    work = implementation(folder, {1: "fail", 2: "fail"}, {})
    with pytest.raises(FpgaError, match="placement: standin failed: ERROR: no room for seed"):
        work.run(range(1, 3), lambda text: None)


@pytest.mark.slow
def test_ctrl_c_ends_the_others(folder: Path) -> None:
    def interrupt(text: str) -> None:
        if "1 of 3" in text:
            raise KeyboardInterrupt

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        implementation(folder, {1: 50, 2: "hang", 3: "hang"}, {}).run(range(1, 4), interrupt)
    assert time.monotonic() - started < HANG  # the stand-in sleeps for an hour


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
