"""A netlist with an SDRAM on a clock of its own: the driver's bytes, those of the RTL, and the rules of the chip."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tests.unit.verification.netlists.smallest_network import BOARD, LEAST, check_bytes_and_cycles, check_random_values
from tilewright.fpga.board import SDRAM
from tilewright.fpga.board_top import BoardTop
from tilewright.fpga.errors import FpgaError
from tilewright.fpga.flows.netlist import Module as Netlist
from tilewright.fpga.points import point_of
from tilewright.fpga.sdram.chip import SDRAM_32M
from tilewright.fpga.sdram.memory import SdramMemory
from tilewright.isa.program import Program
from verification.netlists.netlist import NetlistLine, read_netlist
from verification.netlists.runs import NetworkRecording, Pair, netlist_file, pair, record_programs, replay

pytestmark = pytest.mark.cosim
#: A slow clock has fewer cycles for each byte of the line. Each fifth edge of one clock comes with one of the other.
SLOW = {"clock_mhz": 25, "baud": 3_000_000}
CHIP = SDRAM_32M
POINT = replace(point_of(BOARD, LEAST, memory=SDRAM), **SLOW)  # type: ignore[arg-type]
#: Words that the small design writes and reads again.
WORDS = 64


class Words(wiring.Component):
    """Writes words to rows of all banks, reads them, and shows on LEDs that it has ended and that one was another."""

    def __init__(self, memory: SdramMemory) -> None:
        self.memory = memory
        super().__init__({"rx": In(1), "tx": Out(1, init=1), "leds": Out(4), **memory.pins})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.memory = memory = self.memory
        for name, member in memory.pins.items():
            source, target = (self, memory) if member.flow == In else (memory, self)  # type: ignore[attr-defined]
            m.d.comb += getattr(target, name).eq(getattr(source, name))
        count, ended, wrong, waits = Signal(range(WORDS)), Signal(), Signal(), Signal()
        writes = Signal(init=1)
        word = Cat(count, ~count, count ^ 0x15, count, ~count)[:32]
        m.d.comb += [
            self.leds.eq(Cat(ended, wrong)),
            memory.mem.valid.eq(~ended & ~waits),
            memory.mem.write.eq(writes),
            memory.mem.address.eq(count << 10 | count << 2),
            memory.mem.wdata.eq(word),
            memory.mem.strobe.eq(15),
        ]
        done = memory.mem.rvalid | (writes & memory.mem.valid & memory.mem.ready)
        with m.If(memory.mem.valid & memory.mem.ready & ~writes):
            m.d.sync += waits.eq(1)
        with m.If(memory.mem.rvalid):
            m.d.sync += [waits.eq(0), wrong.eq(wrong | (memory.mem.rdata != word))]
        with m.If(done):
            m.d.sync += count.eq(count + 1)
            with m.If(count == WORDS - 1):
                m.d.sync += [writes.eq(0), ended.eq(~writes)]
        return m


class WordsTop(BoardTop):
    """`Words` on the pins of the board."""

    def soc(self, memory: Any, clock_hz: int) -> Words:
        return Words(memory)


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> Netlist:
    """The netlist of the small design that is placed."""
    folder, flow = tmp_path_factory.mktemp("words"), BOARD.flow()
    flow.generate(WordsTop(BOARD, LEAST, POINT, BOARD.clocks(POINT)), folder)
    flow.synthesise(folder)
    return read_netlist(folder, netlist_file(BOARD))


def check_chip(line: NetlistLine) -> None:
    """Checks that the chip was started and refreshed, has worked, and saw nothing that it does not allow."""
    counts = line.sdram_commands
    assert not line.sdram_fault
    assert counts["LOAD MODE"] == 1 and min(counts[name] for name in ("ACTIVE", "READ", "WRITE")) > 30
    nanoseconds = line.cycles * 1e9 / 25_000_000 - 1000 * CHIP.start_us
    assert counts["REFRESH"] >= nanoseconds / CHIP.refresh_interval - 8


@pytest.mark.parametrize("seed", [0, 2])
def test_words_come_back(cells: Netlist, seed: int) -> None:
    """Words come back, also with random values in what is not reset."""
    hz = BOARD.clocks(POINT).output_hz
    with closing(NetlistLine(cells, clock_hz=hz, baud=POINT.baud, sdram=CHIP, seed=seed)) as line:
        line.run(12_000)
        assert (line.level("led_0__io"), line.level("led_1__io")) == (1, 0)
        check_chip(line)


@pytest.fixture(scope="module")
def both() -> Iterator[Pair]:
    made = pair(BOARD, LEAST, memory=SDRAM, **SLOW)
    yield made
    made.netlist.close()
    made.rtl.close()


@pytest.mark.long
def test_bytes_and_cycles(both: Pair, network: Program, recording: NetworkRecording) -> None:
    check_chip(both.netlist)  # before the RTL is played
    check_bytes_and_cycles(both, network, recording)


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


def test_a_slower_chip_is_found(cells: Netlist) -> None:
    """The controller keeps the times of its chip, and not much longer ones."""
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


def test_without_a_chip(cells: Netlist) -> None:
    with pytest.raises(FpgaError, match="which is not always an output"):
        NetlistLine(cells, clock_hz=25_000_000, baud=POINT.baud)
