"""A netlist with an SDRAM on a clock of its own: the driver's bytes, those of the RTL, and the rules of the chip."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from fpga.board import SDRAM
from fpga.build import point_of
from fpga.errors import FpgaError
from fpga.sdram.chip import SDRAM_32M
from fpga.sim.netlist import NetlistLine
from isa.program import Program
from tests.common.netlist_runs import NetworkRecording, Pair, pair, placed_cells, record_programs, replay
from tests.unit.fpga.sim.least import BOARD, LEAST, check_bytes_and_cycles, check_random_values

pytestmark = pytest.mark.cosim
#: A slow clock has fewer cycles for each byte of the line. Each fifth edge of one clock comes with one of the other.
SLOW = {"clock_mhz": 25, "baud": 3_000_000}
CHIP = SDRAM_32M
POINT = replace(point_of(BOARD, LEAST, memory=SDRAM), **SLOW)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def both() -> Iterator[Pair]:
    made = pair(BOARD, LEAST, memory=SDRAM, **SLOW)
    yield made
    made.netlist.close()
    made.rtl.close()


def test_bytes_and_cycles(both: Pair, network: Program, recording: NetworkRecording) -> None:
    counts, fault = both.netlist.sdram_commands, both.netlist.sdram_fault
    check_bytes_and_cycles(both, network, recording)
    assert not fault
    assert counts["LOAD MODE"] == 1 and min(counts[name] for name in ("ACTIVE", "READ", "WRITE")) > 30
    nanoseconds = both.netlist.cycles * 1e9 / 25_000_000 - 1000 * CHIP.start_us
    assert counts["REFRESH"] >= nanoseconds / CHIP.refresh_interval - 8


@pytest.mark.long
def test_random_values_in_what_is_not_reset(both: Pair, recording: NetworkRecording) -> None:
    check_random_values(both, recording)
    both.netlist.start(2)
    assert replay(both.netlist, recording) == recording.answers and not both.netlist.sdram_fault
    both.netlist.start()


@pytest.mark.long
def test_a_reset_of_the_board(both: Pair, recording: NetworkRecording) -> None:
    both.netlist.start(3)
    both.netlist.run(20_000)
    both.netlist.reset()
    assert replay(both.netlist, recording) == recording.answers and not both.netlist.sdram_fault
    both.netlist.start()


@pytest.mark.long
def test_random_programs() -> None:
    made = pair(BOARD, LEAST, memory=SDRAM, **SLOW)
    recording = record_programs(made.netlist, made.baud, LEAST, range(2))
    assert not recording.wrong and recording.longest > 1000
    assert recording.answers == replay(made.rtl, recording) != b""
    assert not made.netlist.sdram_fault


def test_a_slower_chip_is_found() -> None:
    """The controller keeps the times of its chip, and not much longer ones."""
    cells = placed_cells(BOARD, LEAST, POINT)
    hz = BOARD.clocks(POINT).output_hz
    for slower, rule in (
        (replace(CHIP, start_us=250), "a command before the time after power-on"),
        (replace(CHIP, refresh=70), "a command too soon after REFRESH (tRFC)"),
        (replace(CHIP, refresh_period_ms=32), "REFRESH is missing"),
        (replace(CHIP, cas=((100_000_000, 2), (110_000_000, 3))), "the clock is too fast for the CAS latency"),
    ):
        with closing(NetlistLine(cells, clock_hz=hz, baud=POINT.baud, sdram=slower)) as line:
            line.run(8000)  # 320 us
            assert line.sdram_fault.startswith(rule)


def test_without_a_chip() -> None:
    with pytest.raises(FpgaError, match="which is not always an output"):
        NetlistLine(placed_cells(BOARD, LEAST, POINT), clock_hz=25_000_000, baud=POINT.baud)
