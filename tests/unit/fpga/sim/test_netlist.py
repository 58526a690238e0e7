"""The netlist of a bitstream is the machine: the driver's bytes, and those of the RTL, after everything that is done to
it between Amaranth and the placement."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from fpga.boards import BOARDS
from fpga.errors import FpgaError
from fpga.sim.netlist import read_netlist
from fpga.uart_board import UartBoard
from isa.config import preset
from isa.program import Program
from tests.common.netlist_runs import NetworkRecording, Pair, pair, record, record_programs, replay
from tests.common.paths import ROOT
from tests.unit.fpga.sim.least import BOARD, LEAST, check_bytes_and_cycles, check_random_values, check_wrong_bits

pytestmark = pytest.mark.cosim
#: A slow clock has fewer cycles for each byte of the line.
SLOW = {"clock_mhz": 25, "memory_kib": 128, "baud": 3_000_000}


@pytest.fixture(scope="module")
def both() -> Iterator[Pair]:
    made = pair(BOARD, LEAST, **SLOW)
    yield made
    made.netlist.close()
    made.rtl.close()


def test_bytes_and_cycles(both: Pair, network: Program, recording: NetworkRecording) -> None:
    check_bytes_and_cycles(both, network, recording)


def test_random_values_in_what_is_not_reset(both: Pair, recording: NetworkRecording) -> None:
    check_random_values(both, recording)


@pytest.mark.long
def test_random_programs() -> None:
    made = pair(BOARD, LEAST, **SLOW)  # programs may read rows that were never loaded, so that nothing may have run
    netlist = made.netlist
    recording = record_programs(netlist, made.baud, LEAST, range(2))
    assert not recording.wrong and recording.longest > 1000
    assert recording.answers == replay(made.rtl, recording) != b""
    # Bits that no value has named decide nothing, even all at once.
    unseen = [(lut, bit) for lut in range(len(netlist.luts)) for bit in range(16) if not netlist.seen(lut) >> bit & 1]
    assert len(unseen) > len(netlist.luts)
    netlist.start()
    for fault in unseen:
        netlist.flip(*fault)
    assert replay(netlist, recording) == recording.answers


@pytest.mark.long
def test_a_reset_of_the_board(both: Pair, recording: NetworkRecording) -> None:
    both.netlist.start(3)
    replay(both.netlist, replace(recording, sent=recording.sent[: len(recording.sent) // 2]))
    both.netlist.reset()
    assert replay(both.netlist, recording) == recording.answers
    both.netlist.start()


def test_wrong_bits_of_luts_are_found(both: Pair, recording: NetworkRecording) -> None:
    check_wrong_bits(both, recording)
    with pytest.raises(ValueError, match="must be 0"):
        both.netlist.flip(0, 16)


def test_no_netlist(tmp_path: Path) -> None:
    with pytest.raises(FpgaError, match=r"cannot read netlist .*top.json"):
        read_netlist(tmp_path)
    (tmp_path / "top.json").write_text("{}")
    with pytest.raises(FpgaError, match="no netlist of yosys"):
        read_netlist(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("board, config", [(BOARD, "tiny"), (BOARDS["tang_nano_20k"], "nano")])
def test_digits(board: UartBoard, config: str) -> None:
    made = pair(board, preset(config))
    program = tw.compile(ROOT / "examples" / "digits" / "digits_int8.onnx", config=config)
    recording = record(made.netlist, made.baud, program)
    expected = tw.Device("functional").run(program, tw.random_inputs(program, 0))
    assert all(np.array_equal(recording.outputs[name], expected[name]) for name in expected)
    made.netlist.start(1)
    assert replay(made.netlist, recording) == replay(made.rtl, recording)
    assert not made.netlist.sdram_fault
