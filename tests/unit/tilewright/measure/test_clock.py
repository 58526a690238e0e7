"""Clocks: those of boards, those asked for, and the times they give."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from tests.common.paths import ROOT
from tilewright.cli import cli
from tilewright.fpga.board import SDRAM
from tilewright.fpga.boards import BOARDS
from tilewright.fpga.errors import FpgaError
from tilewright.fpga.zynq.boards import ZYNQ_BOARDS
from tilewright.isa.config import preset
from tilewright.isa.timing import MemoryTiming
from tilewright.measure.clock import Clock, at_board, clock_of, clock_option, show

pytestmark = pytest.mark.usefixtures("compiled_once")

MODEL = ROOT / "examples" / "digits" / "digits_int8.onnx"


def output(*arguments: object) -> Any:
    done = CliRunner().invoke(cli, [str(a) for a in arguments], prog_name="tilewright")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout) if "--json" in arguments else done.stdout


def test_memory_and_clock_of_a_board() -> None:
    """Block RAM gives a beat every cycle; a SDRAM of 2 bytes at 120 MHz takes so many cycles of the NPU for one."""
    point = BOARDS["ulx3s_85f"].points["tiny"]
    clock, timing = at_board("ulx3s_85f", preset("tiny"))
    assert clock == point.clock_mhz and timing.read_interval == timing.write_interval == 1
    for mhz, bus_bytes in ((20, 8), (60, 8), (90, 8), (100, 4)):
        config = preset("wide" if bus_bytes == 8 else "tiny")
        clock, timing = at_board("ulx3s_85f", config, mhz, SDRAM)
        assert clock == mhz and timing.read_interval == max(1, bus_bytes / 2 * mhz / 120)
        assert timing.read_latency > timing.write_latency > 4


def test_memory_of_a_processor() -> None:
    """Three quarters of what the DRAM gives: more than 8 bytes a cycle at 100 MHz, less at 250 MHz."""
    assert at_board("pynq_z2", preset("base"), 100) == (100, MemoryTiming())
    _, timing = at_board("pynq_z2", preset("base"), 250)
    assert timing.read_interval == timing.write_interval == pytest.approx(250 * 8 / (0.75 * 2100))
    assert at_board("pynq_z2", preset("pynq"))[0] == ZYNQ_BOARDS["pynq_z2"].points["pynq"].clock_mhz
    with pytest.raises(FpgaError, match="ultra96_v2 has the memory of its processor"):
        at_board("ultra96_v2", preset("base"))
    with pytest.raises(FpgaError, match="pynq_z2 has its own memory"):
        at_board("pynq_z2", preset("pynq"), memory=SDRAM)


def test_a_preset_runs_as_fast_as_on_its_fastest_board() -> None:
    fastest = max(b.points["small"].clock_mhz for b in BOARDS.values() if "small" in b.points)
    clock = clock_of(preset("small"))
    assert clock is not None and clock.mhz == fastest and clock.source in BOARDS


def test_a_machine_on_no_board_has_no_time() -> None:
    other = preset("base").with_(queue_depth=7)
    assert clock_of(other) is None
    assert clock_of(other, clock_option(40.0)) == Clock(40.0, "--clock")
    assert clock_of(preset("base").with_(name="other name")) == clock_of(preset("base")), "a name changes nothing"


def test_times() -> None:
    clock = Clock(50.0, "--clock")
    assert clock.milliseconds(1_000_000) == 20.0
    assert clock.describe(1_000_000)["inferences_per_second"] == 50.0
    assert clock.describe(0)["inferences_per_second"] is None
    assert clock.sentence(1_000_000) == "20.0 ms, 50.0 inferences/s at 50 MHz (--clock)"


@pytest.mark.parametrize(("ms", "text"), [(0.1234, "0.123"), (1.234, "1.23"), (12.34, "12.3"), (1234.5, "1,234")])
def test_three_digits(ms: float, text: str) -> None:
    assert show(ms) == text


@pytest.mark.medium
def test_reports_tell_time() -> None:
    found = output("explain", MODEL, "--config", "tiny", "--clock", 50, "--json", "-")
    assert found["milliseconds"] == pytest.approx(found["cycles"] / 50e3)
    assert " ms, " in output("explain", MODEL, "--config", "tiny")
    (pair,) = output("compare", "tiny", "small", "--model", MODEL, "--json", "-")
    a, b = pair["a"], pair["b"]
    assert pair["time_ratio"] == pytest.approx(b["milliseconds"] / a["milliseconds"])
    (pair,) = output("compare", "tiny", "small", "--model", MODEL, "--clock", 10, "--json", "-")
    assert pair["time_ratio"] == pytest.approx(pair["cycles_ratio"])
