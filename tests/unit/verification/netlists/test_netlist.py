"""The netlist of a bitstream is the machine: the driver's bytes, and those of the RTL, after everything that is done to
it between Amaranth and the placement."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import tilewright as tw
from tests.common.paths import ROOT
from tests.unit.verification.netlists.smallest_network import (
    BOARD,
    LEAST,
    check_bytes_and_cycles,
    check_random_values,
    check_wrong_bits,
    smallest_network,
)
from tilewright.fpga.boards import BOARDS
from tilewright.fpga.errors import FpgaError
from tilewright.isa.config import preset
from tilewright.isa.program import Program
from verification.netlists.netlist import read_netlist
from verification.netlists.runs import NetworkRecording, Pair, pair, record, record_programs, replay

pytestmark = pytest.mark.cosim
DIGITS = ROOT / "examples" / "digits" / "digits_int8.onnx"
#: A slow clock has fewer cycles for each byte of the line.
SLOW = {"clock_mhz": 25, "memory_kib": 128, "baud": 3_000_000}


@pytest.fixture(scope="module")
def both() -> Iterator[Pair]:
    made = pair(BOARD, preset("tiny"), **SLOW)
    yield made
    made.netlist.close()
    made.rtl.close()


@pytest.fixture(scope="module")
def network() -> Program:
    return smallest_network(preset("tiny"))


def test_bytes_and_cycles(both: Pair, network: Program, recording: NetworkRecording) -> None:
    check_bytes_and_cycles(both, network, recording)


@pytest.mark.long
def test_digits() -> None:
    """A trained network, on machines on which nothing else has run."""
    made = pair(BOARD, preset("tiny"), **SLOW)
    program = tw.compile(DIGITS, config="tiny")
    check_bytes_and_cycles(made, program, record(made.netlist, made.baud, program))


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
def test_another_family() -> None:
    made = pair(BOARDS["tang_nano_20k"], preset("nano"))
    program = tw.compile(DIGITS, config="nano")
    recording = record(made.netlist, made.baud, program)
    check_bytes_and_cycles(made, program, recording)
    check_random_values(made, recording)
    assert not made.netlist.sdram_fault
