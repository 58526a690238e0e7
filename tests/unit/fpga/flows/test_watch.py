"""The log of nextpnr as it grows: what is told, and what is stopped. The lines are nextpnr's own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tilewright.fpga.errors import FpgaError
from tilewright.fpga.flows.tools import execute
from tilewright.fpga.flows.watch import FEW, PASSES, STUCK, Watch

STATIC = "Info: iter=100 steplen=0.911 a=44.5 penalty=[0.00, 0.00, 0.00, 0.00]\n"
ROUTER1 = "Info:      45000 |     8380      36619 |  226   774 |    149389|       0.89      35.40|\n"
ROUTER2 = "Info:     iter=3 wires=750627 overused=21779 overuse=22684 tmgfail=55 archfail=NA\n"
UNTIMED = "Info:     iter=70 wires=776776 overused=2 overuse=2 archfail=NA\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (STATIC, "placing: step 100"),
        ("Info:   at iteration #5: temp = 0.000000, timing cost = 1565, wirelen = 356425\n", "placing: step 5"),
        (ROUTER1, "routing: 149389 connections left"),
        (ROUTER2, "routing: pass 3, 21779 wires used twice, 55 too slow"),
        (UNTIMED, "routing: pass 70, 2 wires used twice"),
        ("Info: Checksum: 0x1e4b1a2f\n", ""),
    ],
)
def test_what_a_line_says(tmp_path: Path, line: str, said: str) -> None:
    assert Watch(tmp_path / "top.tim", 50).line(line) == said


def test_a_log_that_grows(tmp_path: Path) -> None:
    log, told = tmp_path / "top.tim", []
    log.write_text(UNTIMED)  # of the build before
    watch = Watch(log, 50, told.append)
    watch()
    with log.open("w") as file:
        for text in (STATIC + "Info: Checksum", ": 0x1\n", ROUTER2[:20], ROUTER2[20:], ""):
            file.write(text)
            file.flush()
            watch()
    assert told == ["placing: step 100", "routing: pass 3, 21779 wires used twice, 55 too slow"]


@pytest.mark.slow
@pytest.mark.parametrize(("late", "passes"), [("12", r"2[5-9]"), ("n % 2", r"5\d\d")])
def test_routing_that_does_not_end(tmp_path: Path, late: str, passes: str) -> None:
    """A tool that routes for ever is killed, with the reason: soon where nothing changes any more."""
    log = tmp_path / "top.tim"
    code = (
        "import itertools, time\n"
        "log = open('top.tim', 'w', buffering=1)\n"
        "for n in itertools.count(1):\n"
        "    if n < 520:\n"
        f"        log.write(f'Info:     iter={{n}} wires=7 overused=0 overuse=0 tmgfail={{{late}}} archfail=NA\\n')\n"
        f"    time.sleep(3 / {PASSES})\n"
    )
    told: list[str] = []
    with pytest.raises(
        FpgaError, match=rf"not routed at 75\.0 MHz: 0 wires used twice(, 12? connections too slow)? after {passes}"
    ):
        execute((sys.executable, "-c", code), tmp_path, "route", "python", log, Watch(log, 75, told.append))
    assert all(text.startswith("routing: pass ") for text in told)


def test_wires_used_twice_that_stay(tmp_path: Path) -> None:
    """The router is stopped where many overused wires stay, however their number goes up and down; a few may stay for
    long."""
    line = "Info:     iter={} wires=9 overused={} overuse=1 archfail=NA"
    watch = Watch(tmp_path / "top.tim", 20)
    for number in range(1, 30):
        watch.line(line.format(number, 10_000 - number))
    with pytest.raises(FpgaError, match=rf"997\d wires used twice after {29 + STUCK} passes"):
        for number in range(30, 100):
            watch.line(line.format(number, 9_971 + number % 2))
    watch = Watch(tmp_path / "top.tim", 20)
    for number in range(1, PASSES):
        watch.line(line.format(number, FEW))
