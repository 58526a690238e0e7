"""Benches of the SDRAM's controller. The chip is what its data sheet says: times in ns, as cycles of the clock, counted
from the commands at the pins."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from math import ceil
from typing import Any

from amaranth.hdl import Array, Cat, Mux, Signal, Value

from tilewright.fpga.sdram.chip import LONGEST_WAIT, SDRAM_32M, SdramChip
from tilewright.fpga.sdram.controller import SdramController
from verification.formal.bench import Bench, implies, opened, registers
from verification.formal.engine import Cut

#: A row may be open for so many ns.
_ROW_OPEN_MOST = 100_000
#: Cycles until a segment is taken, at most: a row is opened for the one before, and once there is a REFRESH.
TAKE_WAIT = 160
#: RAS, CAS and WE of the commands, asserted = 1.
_MODE, _REFRESH, _PRECHARGE, _ACTIVE, _WRITE, _READ = 0b111, 0b110, 0b101, 0b100, 0b011, 0b010
#: The state machine of `SdramController`.
_S = SdramController.State


def at_least(ns: float, hz: int) -> int:
    """Returns the cycles of a clock that take so many ns."""
    return ceil(ns * hz / 1e9 - 1e-9)


def most(*values: Any) -> Value:
    """Returns the largest one."""
    return reduce(lambda a, c: Mux(Value.cast(a) > c, a, c), map(Value.cast, values))


class Age:
    """Cycles since an event, at most `top`; that if there was none. `before`: since one before this cycle. `now`: 0 if
    it is in this cycle."""

    def __init__(self, b: Bench, event: Value, top: int, name: str) -> None:
        self.before = Signal(range(top + 1), name=name, init=top)
        self.now = Mux(event, 0, self.before)
        b.invariant(self.before <= top)
        b.m.d.sync += self.before.eq(Mux(event, min(1, top), Mux(self.before == top, top, self.before + 1)))


class Pins:
    """Signals at the SDRAM's pins in this cycle."""

    def __init__(self, c: SdramController) -> None:
        code = Cat(c.sdram_we, c.sdram_cas, c.sdram_ras)
        self.code = Mux(c.sdram_cs & c.sdram_clk_en, code, 0)
        self.mode, self.refresh, self.precharge, self.active, self.write, self.read = (
            self.code == code for code in (_MODE, _REFRESH, _PRECHARGE, _ACTIVE, _WRITE, _READ)
        )
        self.column = self.write | self.read
        self.any = self.code != 0
        self.bank, self.address = c.sdram_ba, c.sdram_a
        self.all_banks = c.sdram_a[10]


class Inside:
    """Registers inside `SdramController`, for invariants, under the names that `_rows` gives them."""

    def __init__(self, c: SdramController) -> None:
        def shown(m: Any, state: Any, for_columns: Any, command: Any, *parts: Any) -> None:
            self.state, self.for_columns = state, for_columns
            self.refresh, self.segment, self.moving, self.banks = parts
            rows(m, state, for_columns, command, *parts)

        rows = c._rows
        c._rows = shown  # type: ignore
        module = opened(c)
        self.register = registers(module)


def controller(only: str | None, b: Bench, chip: SdramChip, hz: int) -> tuple[SdramController, Inside]:
    """Returns a controller that is asked for any segments within a row. With a fault it starts sooner than it should
    and refreshes more often: so few cycles show what is wrong."""
    c = SdramController(chip, hz, 2)
    if only is not None:
        often = c.cycles.refresh_interval if only == "interval" else 24
        c.cycles = replace(c.cycles, refresh_interval=often, start_intervals=1)
        c.chip = replace(chip, start_refreshes=1)
    inside = Inside(c)
    b.part("controller", c)
    last = c.i_pair[: c.column_bits] + c.i_count
    b.assume(implies(c.i_valid, last < 1 << c.column_bits))
    return c, inside


def rows_known(b: Bench, i: Inside) -> None:
    """Whether the controller has a segment, what it knows of its row, and of the bank whose words move."""
    state, segment, moving, banks = i.state, i.segment, i.moving, i.banks
    b.invariant(segment.held == ((state != _S.IDLE) & ~((state == _S.REFRESH) & ~segment.held)))
    there = banks.is_open.bit_select(segment.bank, 1)
    b.invariant(implies((state == _S.READY) | (state == _S.CLOSE), there))
    b.invariant(implies(state == _S.LOOK, there == i.register["there_open"]))
    b.invariant(implies(moving.active, banks.is_open.bit_select(moving.bank, 1)))
    b.invariant(implies(moving.active & (state == _S.OPEN), moving.bank != segment.bank))
    b.invariant((state <= _S.REFRESH) & implies(state == _S.REFRESH, (banks.is_open == 0) & ~moving.active))


def rules(only: str | None, chip: SdramChip = SDRAM_32M, hz: int = 120_000_000) -> Bench:
    """Every rule of the data sheet, for a bank that the solver chooses."""
    b = Bench(only)
    c, i = controller(only, b, chip, hz)
    t, p, burst = c.cycles, Pins(c), chip.burst_words
    start = at_least(1000 * chip.start_us, hz) if only is None else t.refresh_interval
    rcd, rp, rc, ras, rrd, wr, rfc = (
        at_least(ns, hz)
        for ns in (
            chip.activate_to_column, chip.precharge, chip.row, chip.row_active, chip.bank_to_bank, chip.write_recovery,
            chip.refresh,
        )
    )  # fmt: skip
    bank = b.constant(chip.bank_bits, "bank")
    mine = p.bank == bank
    closes = p.precharge & (mine | p.all_banks)
    keep = max(ras, rc - rp)  # from ACTIVE to PRECHARGE so that the next ACTIVE may come when tRP has passed
    activated = Age(b, p.active & mine, keep + rp, "activated")
    any_activated = Age(b, p.active, max(rcd, rrd), "any_activated")
    precharged = Age(b, closes, rp, "precharged")
    read = Age(b, p.read & mine, burst, "read")
    written = Age(b, p.write & mine, burst - 1 + wr, "written")
    moved = Age(b, p.column, burst, "moved")
    refreshed = Age(b, p.refresh, rfc, "refreshed")
    moded = Age(b, p.mode, chip.mode_cycles, "moded")

    # After power-on.
    elapsed = Signal(range(t.start_intervals * t.refresh_interval + 1), name="elapsed")
    top = t.start_intervals * t.refresh_interval
    b.m.d.sync += elapsed.eq(Mux(elapsed == top, top, elapsed + 1))
    all_closed, has_mode = Signal(name="all_closed"), Signal(name="has_mode")
    refreshes = Signal(range(c.chip.start_refreshes + 1), name="refreshes")
    enough = refreshes == c.chip.start_refreshes
    b.m.d.sync += [
        all_closed.eq(all_closed | (p.precharge & p.all_banks)),
        has_mode.eq(has_mode | p.mode),
        refreshes.eq(Mux(p.refresh & ~enough, refreshes + 1, refreshes)),
    ]
    b.check(
        "start",
        implies(p.any, elapsed >= start) & implies(~has_mode, c.sdram_dqm.all()),
        "SDRAM: no command before the time after power-on, the bytes are masked; then PRECHARGE of all "
        "banks, the REFRESH commands, LOAD MODE once, and only then rows",
        Cut("controller.left"),
    )
    b.check("start", implies(p.refresh | p.mode, all_closed) & implies(p.mode, enough & ~has_mode))
    b.check("start", implies(p.active | p.column, has_mode))
    cas = next(latency for highest, latency in chip.cas if hz <= highest)
    mode = (burst.bit_length() - 1) | cas << 4
    b.check(
        "mode",
        implies(p.mode, (p.address == mode) & (p.bank == 0)),
        "SDRAM: the mode is bursts of one pair, with the CAS latency of the clock",
        Cut("controller.sdram_a", 50),
    )
    b.check(
        "commands",
        (p.code != 0b001) & c.sdram_clk_en,
        "SDRAM: there is no other command than those six, and the chip's clock is enabled",
        Cut("controller.sdram_we"),
    )

    # Rows.
    is_open = Signal(name="is_open")
    open_now = Mux(closes, 0, is_open | (p.active & mine))
    b.m.d.sync += is_open.eq(open_now)
    b.check(
        "recovery",
        implies(p.any, (refreshed.before >= rfc) & (moded.before >= chip.mode_cycles)),
        "SDRAM: no command before tRFC after REFRESH and tMRD after LOAD MODE",
        Cut("controller.sdram_cas", 50),
    )
    b.check(
        "active",
        implies(p.active & mine, ~is_open & (precharged.before >= rp) & (activated.before >= rc)),
        "SDRAM: ACTIVE only for a bank without an open row, tRP after its PRECHARGE, tRC after its last "
        "ACTIVE, tRRD after that of any bank",
        Cut("controller.sdram_ras"),
    )
    b.check("active", implies(p.active, any_activated.before >= rrd))
    b.check(
        "precharge",
        implies(closes & is_open, (activated.before >= ras) & (written.before >= burst - 1 + wr)),
        "SDRAM: a row is closed tRAS after its ACTIVE, tWR after its last word was written, and no word "
        "that is read is cut",
        Cut("controller.may_close", 60),
    )
    b.check("precharge", implies(closes & is_open, read.before >= burst))
    b.check(
        "refresh",
        implies(p.refresh | p.mode, ~is_open & (precharged.before >= rp)),
        "SDRAM: REFRESH and LOAD MODE only when no bank has an open row, tRP after PRECHARGE",
        Cut("controller.sdram_ras", 60),
    )
    b.check(
        "columns",
        implies(p.column & mine, is_open & (activated.before >= rcd) & ~p.all_banks),
        "SDRAM: READ and WRITE only in a bank with an open row, tRCD after its ACTIVE, without precharge,"
        " behind the words of the one before",
        Cut("controller.is_open", 60),
    )
    b.check("columns", implies(p.column, moved.before >= burst))

    # The bus of data: chips let go `access` after the edge that ends their last word, and the FPGA drives from
    # `clock_delay` before an edge.
    gap = at_least(chip.access + t.clock_delay, hz)
    any_read = Age(b, p.read, cas + burst - 1 + gap, "any_read")
    drives = p.write if burst == 1 else p.write | b.past(p.write, "wrote")
    b.check(
        "bus",
        (c.sdram_dq_oe == drives) & implies(drives, any_read.before >= cas + burst - 1 + gap),
        "SDRAM: the FPGA drives data exactly with the words of a WRITE, and not before the chip has let "
        "go of those of a READ",
        Cut("controller.sdram_dq_oe"),
    )

    _refresh_in_time(b, c, i, p, has_mode, Mux(p.active & mine, 0, is_open), open_now, hz)
    _invariants_of_start(b, c, i, elapsed, top, all_closed, has_mode | p.mode, refreshes + (p.refresh & ~enough))
    segment, moving, banks, state = i.segment, i.moving, i.banks, i.state
    keep_here, wait = banks.keep[bank], banks.wait
    # A counter and the age of what it counts from: when one has ended the other has come.
    b.invariant((keep_here + activated.now >= keep - 2) & (keep_here >= -1) & (wait >= -1) & (banks.driven >= -1))
    b.invariant((keep_here + written.now >= burst + wr - 3) & (keep_here + read.now >= burst - 2))
    b.invariant((wait + precharged.now >= rp - 2) & (wait + refreshed.now >= rfc - 2))
    b.invariant((wait + moded.now >= chip.mode_cycles - 2) & (banks.driven + any_read.now >= cas + burst - 2))
    # A bank that is closed for another row has its bit of `is_open` nevertheless.
    opening = (state == _S.OPEN) & (segment.bank == bank)
    b.invariant(open_now == (banks.is_open.bit_select(bank, 1) & ~opening))
    b.invariant(implies(open_now, wait + activated.now >= rcd - 3))
    b.invariant(implies(~open_now, activated.now >= keep + precharged.now))
    apart = max(rcd, rrd)
    b.invariant(Mux(state == _S.READY, wait + any_activated.now >= apart - 3, any_activated.now >= apart - 1))
    b.invariant(implies(banks.is_open.any(), (refreshed.now == rfc) & (moded.now == chip.mode_cycles)))
    b.invariant(implies(moved.now < burst, i.for_columns == moved.now[0]))
    rows_known(b, i)
    b.invariant(implies(moving.active & (moving.bank == bank), activated.now >= rcd - 1))
    b.invariant(implies(moving.active & moving.write, any_read.now >= cas + burst))
    if burst == 2:
        b.invariant(i.register["second_driven"] == p.write)
    return b


def _invariants_of_start(
    b: Bench, c: SdramController, i: Inside, elapsed: Signal, top: int, all_closed: Value, has_mode: Value,
    refreshes: Value,
) -> None:  # fmt: skip
    """Invariants of the controller from power-on until it has loaded the mode."""
    t, p, state, starting, left = c.cycles, Pins(c), i.state, i.register["starting"], i.register["left"]
    tick, due, working, wanted = i.refresh.tick, i.refresh.due, i.refresh.working, i.refresh.start_refreshes
    begun, every = state == _S.REFRESH, c.chip.start_refreshes
    passed = (t.start_intervals - starting) * t.refresh_interval + (t.refresh_interval - 1 - left)
    b.invariant((starting <= t.start_intervals) & implies(starting == 0, elapsed == top) & (left < t.refresh_interval))
    quiet = (state == _S.IDLE) & ~tick & ~due & (wanted == every) & ~p.any
    b.invariant(implies(starting != 0, (elapsed == passed) & quiet))
    b.invariant((working == has_mode) & (wanted + refreshes == every))
    none = ~i.segment.held & ~i.moving.active & (i.banks.is_open == 0) & (i.segment.bank == 0)
    b.invariant(
        implies(~working, i.banks.may_close.all() & none & (begun | (state == _S.IDLE))) & implies(working, wanted == 0)
    )
    b.invariant(implies(begun, due))
    b.invariant(implies(begun | (wanted != every), all_closed | (p.precharge & p.all_banks)))


def _refresh_in_time(
    b: Bench, c: SdramController, i: Inside, p: Pins, has_mode: Signal, opened: Value, open_now: Value, hz: int
) -> None:
    """Checks that there is one REFRESH for every interval, soon after its time, and that no row is open for longer than
    between two of them.

    Args:
        opened: the bank has a row since before this cycle. open_now: it has one.
    """
    t = c.cycles
    left, tick, due = i.register["left"], i.refresh.tick, i.refresh.due
    # Intervals since LOAD MODE whose REFRESH has not come, and for how long not.
    time = Signal(range(t.refresh_interval), name="time")
    ends = Signal(name="ends")
    owed, owed_now = Signal(2, name="owed"), Signal(2, name="owed_now")
    late = Signal(range(2 * LONGEST_WAIT), name="late")
    b.m.d.comb += owed_now.eq(owed - (p.refresh & has_mode))  # before, only the cycle before counts
    b.m.d.sync += [
        time.eq(Mux(time == t.refresh_interval - 1, 0, time + 1)),
        ends.eq(time == t.refresh_interval - 1),
        owed.eq(Mux(has_mode | p.mode, owed_now, 0) + ends),
        late.eq(Mux((has_mode | p.mode) & (owed_now != 0), late + (late != 2 * LONGEST_WAIT - 1), 0)),
    ]
    b.check(
        "interval",
        implies(p.refresh & has_mode, owed == 1) & (late <= LONGEST_WAIT),
        f"SDRAM: from LOAD MODE on one REFRESH for every interval of the data sheet, at most {LONGEST_WAIT} cycles "
        "after it; no row is open for 100 us",
        Cut("controller.left", 40),
    )
    b.invariant((time + left == t.refresh_interval - 1) & (tick == (ends & (i.register["starting"] == 0))))
    b.invariant(implies(i.refresh.working, owed_now == due))
    b.invariant(implies(i.refresh.working & due, late + 1 == time) & implies(ends, time == 0))
    top = int(_ROW_OPEN_MOST * hz / 1e9) + 1
    age = Signal(range(top + 1), name="row_age")
    age_now = Mux(opened, age, 0)
    b.m.d.sync += age.eq(Mux(age_now == top, top, age_now + 1))
    rest = _rest(c, i, _busy(i, _keep(c) - 1))
    b.invariant(implies(i.refresh.working & due, late + rest < LONGEST_WAIT))
    b.check("interval", implies(open_now, age_now < top))
    b.invariant(implies(open_now, i.refresh.working & (age_now <= time + Mux(due | tick, t.refresh_interval, 0))))
    _taken_in_time(b, c, i, time)


def _turn(cycles: Any, columns: Any) -> Value:
    """Returns a number of cycles, one more where that is the turn of columns; it is theirs now if `columns`."""
    return cycles + (cycles + columns)[0]


def _keep(c: SdramController) -> int:
    """Cycles from words that move until their bank may be closed, at most."""
    t, burst = c.cycles, c.chip.burst_words
    return max(burst, t.row_active - t.activate_to_column, burst - 1 + t.write_recovery)


def _busy(i: Inside, behind: int) -> Value:
    """Cycles until no words move, and so many behind; until there may be a command, and all banks may be closed."""
    moving, banks = i.moving, i.banks
    moves = Mux(moving.active, 2 * moving.left + 2 - i.for_columns + behind, 0)
    return most(moves, banks.wait + 1, *(k + 1 for k in banks.keep))


def _rest(c: SdramController, i: Inside, busy: Value) -> Value:
    """Cycles until a REFRESH that is due, at most: until nothing is `busy` and it is the turn of rows; then PRECHARGE
    and REFRESH. A segment whose row is closed has it opened before."""
    t, wait = c.cycles, i.banks.wait
    closing = 1 + _turn(Value.cast(t.precharge - 1), 1)
    opening = 1 + _turn(Value.cast(t.row_active - 1), 1)
    until = _turn(busy, i.for_columns)
    rest = {
        _S.REFRESH: _turn(wait + 1, i.for_columns),
        _S.READY: until + closing,
        _S.OPEN: most(_turn(wait + 1, i.for_columns) + opening, until) + closing,
        _S.CLOSE: until + closing + opening + closing,
        _S.LOOK: until + closing + opening + closing + 2,
        _S.IDLE: until + closing + opening + closing + 4,
    }
    return Array(rest[s] for s in sorted(_S, key=lambda s: s.value))[i.state]


def _taken_in_time(b: Bench, c: SdramController, i: Inside, time: Signal) -> None:
    """Checks that segments are taken again and again: at most one REFRESH comes between."""
    state, banks, refresh = i.state, i.banks, i.refresh
    late = Signal(range(2 * TAKE_WAIT), name="take_late")
    refreshed = Signal(name="take_refreshed")
    waits = refresh.working & ~c.i_ready
    b.m.d.sync += [
        late.eq(Mux(waits, late + 1, 0)),
        refreshed.eq(waits & (refreshed | ((state == _S.REFRESH) & ~i.for_columns & (banks.wait < 0)))),
    ]
    b.check(
        "progress",
        implies(waits, late < TAKE_WAIT),
        f"SDRAM: once it has loaded the mode, the controller takes a segment within {TAKE_WAIT} cycles",
        Cut("controller.i_ready", 260),
    )
    # Cycles from OPEN or READY on with no REFRESH before it; behind one, at most.
    open_wait, refresh_wait = (Value.cast(banks.waits[name] + 1) for name in ("open", "refresh"))
    opened = _turn(open_wait, 1) + 1
    driven = _turn(banks.driven + 1, i.for_columns) + 1
    waited = _turn(banks.wait + 1, i.for_columns) + 1
    rest = most(driven, Mux(state == _S.OPEN, waited + opened, waited))
    behind = 1 + most(_turn(refresh_wait, 1) + 1 + opened, _turn(Value.cast(banks.after_read), 1) + 1)
    every = most(_busy(i, max(_keep(c) - 1, banks.after_read)), banks.driven + 1)
    b.invariant(implies(waits, late + Mux(refreshed, rest, _rest(c, i, every) + behind) <= TAKE_WAIT))
    opens = (state == _S.OPEN) | (state == _S.READY)
    quiet = i.segment.held & opens & ~refresh.due & ~refresh.tick & ~i.moving.active
    b.invariant(implies(waits & refreshed, quiet & (time + rest <= LONGEST_WAIT + 1 + behind)))
    b.invariant((banks.wait <= max(banks.waits.values())) & (banks.driven < banks.after_read))
    for k in banks.keep:
        b.invariant((k >= -1) & (k <= c.cycles.row_active + _keep(c)))
