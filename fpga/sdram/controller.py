"""Commands of an SDR SDRAM: initialisation, refresh, rows, columns."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

from amaranth.hdl import Array, C, Cat, Module, Mux, Signal, Value
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

from tilewright.fpga.sdram.chip import COMMAND_BITS, SdramChip, SdramCycles, pins

#: Bytes of a pair: of two words, or of one that is twice as wide, which one READ or WRITE command moves.
PAIR_BYTES = COMMAND_BITS // 8
#: A segment is at most this many pairs, so that REFRESH and the serial bridge do not wait for long.
SEGMENT_PAIRS = 16
#: A10 in PRECHARGE: all banks.
ALL_BANKS = 1 << 10
#: Registers a command passes after the decision: here and at the pin; words pass two on their way back.
PIN_CYCLES = 2


class _Refresh(NamedTuple):
    """State of refreshes.

    Attributes:
        start_refreshes: refreshes still to be made after power-on.
        tick: a refresh period has passed.  due: a refresh has to be made.
        working: the chip is ready for segments.
    """

    start_refreshes: Signal
    tick: Signal
    due: Signal
    working: Signal


class _Segment(NamedTuple):
    """The segment whose row is being opened; `held`: there is one."""

    write: Signal
    tag: Signal
    column: Signal
    bank: Signal
    row: Signal
    count: Signal
    held: Signal


class _Moving(NamedTuple):
    """The segment whose words are transferred; `active`: there is one. `left`: pairs less one."""

    active: Signal
    write: Signal
    tag: Signal
    column: Signal
    bank: Signal
    left: Signal


class _Banks(NamedTuple):
    """Open rows of the banks, and counters of waiting times.

    Attributes:
        rows, is_open: open row of each bank, and if there is one.
        keep: cycles until a bank may be closed.  keep_read, keep_write: from a command for columns on.
        waits: cycles from a command for rows to the next, by name.  wait: remaining `waits`.
        driven: cycles until words may be driven after words were read.  after_read: `driven`, counted from the command.
        may_close: banks whose `keep` has ended.
    """

    rows: Any
    is_open: Signal
    keep: Any
    keep_read: int
    keep_write: int
    waits: dict[str, int]
    wait: Signal
    after_read: int
    driven: Signal
    may_close: Signal


class SdramController(wiring.Component):
    """Executes segments: runs of pairs of words within one row, in the order they come, without a stall: the words
    to write are there and there is room for those that are read.

    Cycles alternate: in one, columns are read or written; in the other, a row is closed or opened. So the row of the
    next segment is opened while the one before moves its words, if it lies in another bank, and hits follow each other
    without a gap. Rows stay open until another row of the bank is needed, or a refresh.

    Latency: r_valid of the first pair `2 * PIN_CYCLES + 3 + CAS latency + late` cycles after a segment of an open row
    was taken, or one more.

    Parameters:
        chip: the memory.
        clock_hz: clock of domain `sync`.
        tag_bits: bits that travel with a segment.

    Ports:
        i_valid, i_ready, i_write, i_pair, i_count, i_tag: segments; `i_pair` is the address of the first pair,
            `i_count` pairs less one. They must not leave their row.
        w_take, w_last, w_tag, w_data, w_mask: a pair is written in this cycle, the last of its segment if `w_last`:
            its words, and a bit for every byte that keeps its value.
        r_valid, r_data, r_tag, r_last: a pair was read; `r_last` ends its segment.
        idle: nothing is under way but, perhaps, a refresh.
        sdram_*: see `tilewright.fpga.sdram.chip.pins`.

    Raises:
        ValueError: the chip does not work at this clock.
    """

    class State(enum.Enum):
        IDLE = 0
        LOOK = 1  # is the row open?
        CLOSE = 2
        OPEN = 3
        READY = 4
        REFRESH = 5  # rows are closed

    def __init__(self, chip: SdramChip, clock_hz: int, tag_bits: int) -> None:
        self.chip, self.cycles, self.tag_bits = chip, SdramCycles.of(chip, clock_hz), tag_bits
        #: Bits of a pair's address within its row, and altogether.
        self.column_bits = chip.column_bits - (chip.burst_words.bit_length() - 1)
        self.pair_bits = self.column_bits + chip.bank_bits + chip.row_bits
        super().__init__(
            {
                "i_valid": In(1),
                "i_ready": Out(1),
                "i_write": In(1),
                "i_pair": In(self.pair_bits),
                "i_count": In(range(SEGMENT_PAIRS)),
                "i_tag": In(tag_bits),
                "w_take": Out(1),
                "w_last": Out(1),
                "w_tag": Out(tag_bits),
                "w_data": In(8 * PAIR_BYTES),
                "w_mask": In(PAIR_BYTES),
                "r_valid": Out(1),
                "r_data": Out(8 * PAIR_BYTES),
                "r_tag": Out(tag_bits),
                "r_last": Out(1),
                "idle": Out(1),
                **pins(chip),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        s = self.State
        state = Signal(s)
        for_columns = Signal()  # whose turn this cycle is
        m.d.sync += for_columns.eq(~for_columns)
        command = Cat(self.sdram_we, self.sdram_cas, self.sdram_ras)
        m.d.sync += command.eq(0)
        start_refreshes = Signal(range(self.chip.start_refreshes + 1), init=self.chip.start_refreshes)
        tick, due, working = Signal(), Signal(), Signal()
        refresh = _Refresh(start_refreshes, tick, due, working)
        self._clock(m, refresh)
        segment = self._segment()
        moving = self._moving()
        banks = self._banks(m)
        self._rows(m, state, for_columns, command, refresh, segment, moving, banks)
        reads = self._columns(m, for_columns, command, working, moving, banks)
        self._address(m, state, for_columns, refresh, segment, moving)
        self._words(m, segment, moving, reads)
        return m

    def _clock(self, m: Module, refresh: _Refresh) -> None:
        """Counts the refresh period, which also measures the time after power-on."""
        t = self.cycles
        left = Signal(range(t.refresh_interval), init=t.refresh_interval - 1)
        starting = Signal(range(t.start_intervals + 1), init=t.start_intervals)
        m.d.sync += left.eq(Mux(left == 0, t.refresh_interval - 1, left - 1))
        m.d.sync += refresh.tick.eq((left == 0) & (starting <= 1))
        with m.If((left == 0) & (starting != 0)):
            m.d.sync += starting.eq(starting - 1)
        with m.If(refresh.tick):
            m.d.sync += refresh.due.eq(1)

    def _segment(self) -> _Segment:
        """Registers of the segment whose row is being opened."""
        chip = self.chip
        write, tag = Signal(), Signal(self.tag_bits)
        column, bank, row = Signal(self.column_bits), Signal(chip.bank_bits), Signal(chip.row_bits)
        count = Signal(range(SEGMENT_PAIRS))
        held = Signal()
        return _Segment(write, tag, column, bank, row, count, held)

    def _moving(self) -> _Moving:
        """Registers of the segment whose words are transferred."""
        moving, moving_write, moving_tag = Signal(), Signal(), Signal(self.tag_bits)
        moving_column, moving_bank = Signal(self.column_bits), Signal(self.chip.bank_bits)
        moving_left = Signal(range(SEGMENT_PAIRS))
        return _Moving(moving, moving_write, moving_tag, moving_column, moving_bank, moving_left)

    def _banks(self, m: Module) -> _Banks:
        """Registers of open rows and waiting times. Counters stop below 0, so that their sign marks the end."""
        t, chip = self.cycles, self.chip
        banks, burst = 1 << chip.bank_bits, chip.burst_words
        rows = Array(Signal(chip.row_bits, name=f"row{b}") for b in range(banks))
        is_open = Signal(banks)
        keep_read = max(burst, t.row_active - t.activate_to_column)
        keep_write = max(burst - 1 + t.write_recovery, t.row_active - t.activate_to_column)
        longest_keep = max(keep_read, keep_write, t.row_active)
        keep = Array(Signal(range(-1, longest_keep - 1), name=f"keep{b}", init=-1) for b in range(banks))
        waits = {
            "precharge": t.precharge - 2,
            "open": max(-1, t.activate_to_column - 3),
            "refresh": t.refresh - 2,
            "mode": chip.mode_cycles - 2,
        }
        wait = Signal(range(-1, max(waits.values()) + 1), init=-1)
        after_read = t.cas + burst - 1
        driven = Signal(range(-1, after_read), init=-1)
        for counter in (*keep, wait, driven):
            with m.If(counter >= 0):
                m.d.sync += counter.eq(counter - 1)
        may_close = Signal(banks)
        m.d.comb += may_close.eq(Cat(counter < 0 for counter in keep))
        return _Banks(rows, is_open, keep, keep_read, keep_write, waits, wait, after_read, driven, may_close)

    def _rows(
        self,
        m: Module,
        state: Signal,
        for_columns: Signal,
        command: Value,
        refresh: _Refresh,
        segment: _Segment,
        moving: _Moving,
        banks: _Banks,
    ) -> None:
        """Issues commands for rows and for the whole chip until the segment may transfer its words."""
        s, t, due, working, bank = self.State, self.cycles, refresh.due, refresh.working, segment.bank
        wait, waits, is_open, may_close = banks.wait, banks.waits, banks.is_open, banks.may_close
        there_row, there_open = Signal(self.chip.row_bits), Signal()
        m.d.comb += self.i_ready.eq((state == s.IDLE) & working)
        for_rows, refreshing = Signal(), Signal()
        m.d.comb += [
            for_rows.eq(~for_columns & (wait < 0)),
            refreshing.eq(due & for_rows & ~moving.active & may_close.all()),
        ]

        def close_all() -> None:
            m.d.sync += [
                command.eq(_PRECHARGE), is_open.eq(0), wait.eq(waits["precharge"]), state.eq(s.REFRESH),
            ]  # fmt: skip

        with m.Switch(state):
            with m.Case(s.IDLE):
                with m.If(self.i_valid & working):
                    next_bank = self.i_pair[self.column_bits :][: self.chip.bank_bits]
                    self._take(m, segment)
                    m.d.sync += [
                        state.eq(s.LOOK),
                        there_row.eq(banks.rows[next_bank]), there_open.eq(is_open.bit_select(next_bank, 1)),
                    ]  # fmt: skip
                with m.Elif(refreshing):
                    close_all()
                with m.Elif(~working & for_rows & (refresh.start_refreshes == 0)):
                    m.d.sync += [command.eq(_MODE), wait.eq(waits["mode"]), working.eq(1)]
            with m.Case(s.LOOK):
                m.d.sync += state.eq(Mux(there_open, Mux(there_row == segment.row, s.READY, s.CLOSE), s.OPEN))
            with m.Case(s.CLOSE):
                with m.If(for_rows & may_close.bit_select(bank, 1) & ~(moving.active & (moving.bank == bank))):
                    m.d.sync += [command.eq(_PRECHARGE), wait.eq(waits["precharge"]), state.eq(s.OPEN)]
            with m.Case(s.OPEN):
                with m.If(for_rows):
                    m.d.sync += [
                        command.eq(_ACTIVE), wait.eq(waits["open"]), state.eq(s.READY),
                        banks.rows[bank].eq(segment.row), is_open.bit_select(bank, 1).eq(1),
                        banks.keep[bank].eq(t.row_active - 2),
                    ]  # fmt: skip
            with m.Case(s.READY):
                with m.If(refreshing):
                    close_all()
                with m.Elif(for_rows & ~moving.active & ~due & ~(segment.write & (banks.driven >= 0))):
                    self._move(m, segment, moving)
                    m.d.sync += state.eq(s.IDLE)
            with m.Case(s.REFRESH):
                with m.If(for_rows):
                    next_state = Mux(segment.held, s.OPEN, s.IDLE)
                    m.d.sync += [command.eq(_REFRESH), wait.eq(waits["refresh"]), state.eq(next_state)]
                    with m.If(refresh.start_refreshes != 0):
                        m.d.sync += refresh.start_refreshes.eq(refresh.start_refreshes - 1)
                    m.d.sync += due.eq(refresh.tick | (refresh.start_refreshes > 1))

    def _take(self, m: Module, segment: _Segment) -> None:
        """Takes a new segment."""
        m.d.sync += [
            Cat(segment.column, segment.bank, segment.row).eq(self.i_pair),
            segment.write.eq(self.i_write),
            segment.tag.eq(self.i_tag),
            segment.count.eq(self.i_count),
            segment.held.eq(1),
        ]

    def _move(self, m: Module, segment: _Segment, moving: _Moving) -> None:
        """Starts the transfer of a segment's words: its row is open."""
        m.d.sync += [
            moving.active.eq(1),
            moving.write.eq(segment.write),
            moving.tag.eq(segment.tag),
            moving.column.eq(segment.column),
            moving.bank.eq(segment.bank),
            moving.left.eq(segment.count),
            segment.held.eq(0),
        ]

    def _columns(
        self, m: Module, for_columns: Signal, command: Value, working: Signal, moving: _Moving, banks: _Banks
    ) -> Signal:
        """Issues READ and WRITE, a pair in every second cycle. Returns the signal that a pair is read."""
        go, reads = Signal(), Signal()
        m.d.comb += [
            go.eq(for_columns & moving.active),
            self.w_take.eq(go & moving.write),
            self.w_last.eq(moving.left == 0),
            self.w_tag.eq(moving.tag),
            reads.eq(go & ~moving.write),
        ]
        self._drive(m, for_columns, working)
        m.d.comb += [self.sdram_clk_en.eq(1), self.sdram_cs.eq(1)]
        with m.If(go):
            m.d.sync += [
                command.eq(Mux(moving.write, _WRITE, _READ)), moving.active.eq(~self.w_last),
                moving.column.eq(moving.column + 1), moving.left.eq(moving.left - 1),
                banks.keep[moving.bank].eq(Mux(moving.write, banks.keep_write - 2, banks.keep_read - 2)),
            ]  # fmt: skip
        with m.If(reads):
            m.d.sync += banks.driven.eq(banks.after_read - 1)
        return reads

    def _address(
        self, m: Module, state: Signal, for_columns: Signal, refresh: _Refresh, segment: _Segment, moving: _Moving
    ) -> None:
        """Drives the address a command would need, whether or not there is one, which is known late. The mode is that
        of sequential bursts, of writes too.
        """
        s, burst = self.State, self.chip.burst_words
        mode = (burst.bit_length() - 1) | self.cycles.cas << 4
        for_all = Mux(refresh.working | refresh.due, ALL_BANKS, mode)
        for_a_row = Mux(state == s.OPEN, segment.row, Mux(state == s.CLOSE, 0, for_all))
        for_words = Cat(C(0, burst.bit_length() - 1), moving.column)
        m.d.sync += [
            self.sdram_a.eq(Mux(for_columns, for_words, for_a_row)),
            self.sdram_ba.eq(Mux(for_columns, moving.bank, segment.bank)),
        ]

    def _words(self, m: Module, segment: _Segment, moving: _Moving, reads: Signal) -> None:
        """Receives read words, with the tag of their segment."""
        t, burst = self.cycles, self.chip.burst_words
        word, word_before = Signal(self.chip.word_bits), Signal(self.chip.word_bits)
        m.d.sync += [word.eq(self.sdram_dq_i), word_before.eq(word)]
        cycles = t.cas + t.late + 2 * PIN_CYCLES + burst - 2
        stages = [Signal(2 + self.tag_bits, name=f"passing{stage}") for stage in range(cycles)]
        for before, behind in pairwise([Cat(reads, self.w_last, moving.tag), *stages]):
            m.d.sync += behind.eq(before)
        m.d.comb += [
            Cat(self.r_valid, self.r_last, self.r_tag).eq(stages[-1]),
            self.r_data.eq(Cat(word_before, word) if burst == 2 else word),
            self.idle.eq(~segment.held & ~moving.active & ~Cat(stage[0] for stage in stages).any()),
        ]

    def _drive(self, m: Module, for_columns: Signal, working: Signal) -> None:
        """Drives the words to write and their byte masks. Of two words, the second is driven in the cycle after."""
        nothing = ~working.replicate(len(self.sdram_dqm))
        if self.chip.burst_words == 1:
            m.d.sync += [self.sdram_dq_o.eq(self.w_data), self.sdram_dq_oe.eq(self.w_take), self.sdram_dqm.eq(nothing)]
            with m.If(self.w_take):
                m.d.sync += self.sdram_dqm.eq(self.w_mask)
            return
        second, second_mask, second_driven = Signal(16), Signal(2), Signal()
        low, high = self.w_data[:16], self.w_data[16:]
        m.d.sync += [
            second.eq(high), second_mask.eq(self.w_mask[2:]), second_driven.eq(self.w_take),
            self.sdram_dq_o.eq(Mux(for_columns, low, second)),
            self.sdram_dq_oe.eq(self.w_take | second_driven),
            self.sdram_dqm.eq(nothing),
        ]  # fmt: skip
        with m.If(self.w_take):
            m.d.sync += self.sdram_dqm.eq(self.w_mask[:2])
        with m.Elif(second_driven):
            m.d.sync += self.sdram_dqm.eq(second_mask)


# RAS, CAS and WE of the commands, asserted = 1.
_MODE, _REFRESH, _PRECHARGE, _ACTIVE, _WRITE, _READ = 0b111, 0b110, 0b101, 0b100, 0b011, 0b010
