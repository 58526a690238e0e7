"""Benches of what the SDRAM's controller makes of segments: which words of the chip it reads and writes, and in which
order. Beside it are the segments that it took, at most two of them not done, and of the chip one row and one byte."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Mux, Signal, Value

from tilewright.fpga.sdram.chip import SDRAM_32M, SdramChip
from tilewright.fpga.sdram.controller import PAIR_BYTES, SdramController
from verification.formal.bench import Bench, implies
from verification.formal.boards.sdram_benches import Age, Inside, Pins, controller, rows_known
from verification.formal.engine import Cut

_S = SdramController.State


class _Segment:
    """A segment that was taken: its first pair that is not done, and how many follow."""

    def __init__(self, c: SdramController, name: str) -> None:
        fields = {"valid": 1, "write": 1, "pair": c.pair_bits, "left": len(c.i_count), "tag": c.tag_bits}
        self.fields = {field: Signal(bits, name=f"{name}_{field}") for field, bits in fields.items()}
        self.valid, self.write, self.pair, self.left, self.tag = self.fields.values()

    def whole(self) -> Value:
        return Cat(self.fields.values())


def _taken(b: Bench, c: SdramController, p: Pins) -> tuple[_Segment, _Segment, _Segment]:
    """Returns the oldest segment that is not done, before the command of this cycle; the two that are not done behind
    it."""
    names = ("oldest", "second", "oldest_after", "second_after", "comes")
    oldest, second, after, behind, comes = (_Segment(c, name) for name in names)
    ends = p.column & (oldest.left == 0)
    b.m.d.comb += [
        after.whole().eq(Mux(ends, second.whole(), oldest.whole())),
        behind.whole().eq(Mux(ends, 0, second.whole())),
        Cat(comes.valid, comes.write, comes.pair, comes.left, comes.tag).eq(
            Cat(c.i_valid & c.i_ready, c.i_write, c.i_pair, c.i_count, c.i_tag)
        ),
    ]
    with b.m.If(p.column & ~ends):
        b.m.d.comb += [after.pair.eq(oldest.pair + 1), after.left.eq(oldest.left - 1)]
    b.m.d.sync += [
        oldest.whole().eq(Mux(after.valid, after.whole(), comes.whole())),
        second.whole().eq(Mux(after.valid & ~behind.valid, comes.whole(), behind.whole())),
    ]
    b.check(
        "order",
        implies(comes.valid, ~behind.valid),
        "SDRAM: the pairs of the segments that were taken are read and written in order, each once, and "
        "no others: with their bank, their column, and their row open",
        Cut("controller.sdram_ba", 60),
    )
    return oldest, after, behind


def order(only: str | None, chip: SdramChip = SDRAM_32M, hz: int = 120_000_000) -> Bench:
    """Segments as commands, and a byte at an address that the solver chooses."""
    b = Bench(only)
    c, i = controller(only, b, chip, hz)
    t, p, burst = c.cycles, Pins(c), chip.burst_words
    oldest, after, behind = _taken(b, c, p)
    address = b.constant(c.pair_bits, "address")
    bank = address[c.column_bits :][: chip.bank_bits]
    mine = p.bank == bank
    # The row that is open in the bank of the address.
    row = Signal(chip.row_bits, name="open_row")
    is_open = Signal(name="bank_open")
    with b.m.If(p.active & mine):
        b.m.d.sync += [row.eq(p.address), is_open.eq(1)]
    with b.m.If(p.precharge & (mine | p.all_banks)):
        b.m.d.sync += is_open.eq(0)
    column = p.address[burst.bit_length() - 1 :][: c.column_bits]
    reached = Cat(column, p.bank, row)  # where the bank is that of the address
    b.check("order", implies(p.column, oldest.valid & (p.write == oldest.write)))
    b.check("order", implies(p.column, Cat(column, p.bank) == oldest.pair[: c.column_bits + chip.bank_bits]))
    b.check("order", implies(p.column & mine, is_open & (reached == oldest.pair)))
    b.check("order", implies(p.column & (burst == 2), ~p.address[0]))

    # Words to write: those of the cycle before the command, and their masks.
    took = b.past(c.w_take, "took")
    data, mask = b.past(c.w_data, "took_data"), b.past(c.w_mask, "took_mask")
    bits, lanes = chip.word_bits, chip.word_bits // 8
    b.check(
        "writes",
        p.write == took,
        "SDRAM: a pair is taken in the cycle before its WRITE, with its tag and marked if it is the last "
        "of its segment; its words and masks are at the pins with the WRITE and behind it",
        Cut("controller.sdram_dqm", 60),
    )
    last, tag = b.past(c.w_last, "took_last"), b.past(c.w_tag, "took_tag")
    b.check("writes", implies(took, (tag == oldest.tag) & (last == (oldest.left == 0))))
    b.check("writes", implies(took, (c.sdram_dq_o == data[:bits]) & (c.sdram_dqm == mask[:lanes])))
    if burst == 2:
        data, mask = b.past(data, "took_data_before"), b.past(mask, "took_mask_before")
        right = (c.sdram_dq_o == data[bits:]) & (c.sdram_dqm == mask[lanes:])
        b.check("writes", implies(b.past(took, "took_before"), right))

    # Words that are read: word n of a READ is at `dq_i` so many cycles after the command is at the port, where it has
    # one register to the pins.
    first = 1 + t.cas + t.late
    steps = first + burst
    behind_it: list[Value] = [Cat(p.read, oldest.left == 0, oldest.tag)]
    for n in range(steps):
        behind_it.append(b.past(behind_it[-1], f"reading{n}"))
    arrived = behind_it[steps]
    b.check(
        "reads",
        (c.r_valid == arrived[0]) & implies(c.r_valid, Cat(c.r_last, c.r_tag) == arrived[1:]),
        "SDRAM: for every READ, CAS latency and registers of the pins later, one answer: the words that "
        "the chip gave, none of them masked, with the tag and the mark of their segment",
        Cut("controller.passing0", 16),
    )
    words = Cat(b.past(c.sdram_dq_i, f"word{n}", burst - n) for n in range(burst))
    b.check("reads", implies(c.r_valid, c.r_data == words))
    for n in range(burst):  # masks act on words two cycles later
        b.check("reads", implies(behind_it[t.cas - 2 + n][0], c.sdram_dqm == 0))
    b.check(
        "idle",
        implies(c.idle, ~after.valid & ~Cat(stage[0] for stage in behind_it[:steps]).any()),
        "SDRAM: `idle` only while every segment that was taken is done and answered",
        Cut("controller.idle", 50),
    )

    # One byte of the pair: what the side of segments wrote there last, and what the chip has.
    lane = b.constant((PAIR_BYTES - 1).bit_length(), "lane")
    written, held = Signal(8, name="written"), Signal(8, name="held_byte")
    with b.m.If(c.w_take & (after.pair == address) & ~c.w_mask.bit_select(lane, 1)):
        b.m.d.sync += written.eq(c.w_data.word_select(lane, 8))
    there = mine & is_open & (reached == address)
    hit = p.write & there
    late = b.past(hit, "hit_before")
    at_pins = lane[: (lanes - 1).bit_length()]
    now = (hit if burst == 1 else Mux(lane[-1], late, hit)) & ~c.sdram_dqm.bit_select(at_pins, 1)
    with b.m.If(now):
        b.m.d.sync += held.eq(c.sdram_dq_o.word_select(at_pins, 8))
    reading: list[Value] = [Cat(p.read & there, held, written)]
    for n in range(steps):
        reading.append(b.past(reading[-1], f"byte{n}"))
    for n in range(burst):
        gives = reading[first + n][0] & (True if burst == 1 else lane[-1] == n)
        b.assume(implies(gives, c.sdram_dq_i.word_select(at_pins, 8) == reading[first + n][1:9]))
    answer = reading[steps]
    b.check(
        "memory",
        implies(answer[0], c.r_valid & (c.r_data.word_select(lane, 8) == answer[9:])),
        "SDRAM: with a chip that keeps its words, a read gives of every byte what the last write that did"
        " not mask it wrote there before",
        Cut("controller.sdram_dq_o", 80),
    )
    for stage, known in zip(reading, behind_it, strict=True):
        b.invariant(implies(stage[0], known[0] & (stage[1:9] == stage[9:])))
    pending = hit if burst == 1 else Mux(lane[-1], hit | late, hit)
    value, kept = c.sdram_dq_o.word_select(at_pins, 8), c.sdram_dqm.bit_select(at_pins, 1)
    if burst == 2:  # the second word is still behind the register of the pins
        waits = lane[-1] & hit
        value = Mux(waits, b.past(c.w_data, "second_data").word_select(lane, 8), value)
        kept = Mux(waits, b.past(c.w_mask, "second_mask").bit_select(lane, 1), kept)
    b.invariant(written == Mux(pending & ~kept, value, held))

    _invariants(b, c, i, p, after, behind, bank, is_open, row, behind_it)
    return b


def _invariants(
    b: Bench, c: SdramController, i: Inside, p: Pins, after: _Segment, behind: _Segment, bank: Value, is_open: Value,
    row: Value, behind_it: list[Any],
) -> None:  # fmt: skip
    """The controller's registers beside those of the bench."""
    chip, t, state, segment, moving, banks = c.chip, c.cycles, i.state, i.segment, i.moving, i.banks
    mine = p.bank == bank
    opening = (state == _S.OPEN) & (segment.bank == bank)
    closes = p.precharge & (mine | p.all_banks)
    open_now = ~closes & (is_open | (p.active & mine))
    row_now = Mux(p.active & mine, p.address, row)
    b.invariant(open_now == (banks.is_open.bit_select(bank, 1) & ~opening))
    b.invariant(implies(open_now, row_now == banks.rows[bank]))
    rows_known(b, i)
    b.invariant(implies(state == _S.READY, banks.rows[segment.bank] == segment.row))
    working = i.refresh.working
    b.invariant(implies(~working, ~segment.held & ~moving.active))
    b.invariant(implies(moving.active, banks.rows[moving.bank] == after.pair[-chip.row_bits :]))
    place = Cat(moving.column, moving.bank, after.pair[-chip.row_bits :])
    moves = Cat(moving.active, moving.write, place, moving.left, moving.tag)
    next_place = Cat(segment.column, segment.bank, segment.row)
    waits = Cat(segment.held, segment.write, next_place, segment.count, segment.tag)
    front = Mux(moving.active, moves, waits)
    b.invariant((after.valid == front[0]) & implies(after.valid, after.whole() == front))
    back = moving.active & segment.held
    b.invariant((behind.valid == back) & implies(back, behind.whole() == waits))
    for s in (after, behind):
        b.invariant(implies(s.valid, s.pair[: c.column_bits] + s.left < 1 << c.column_bits))
    any_read = Age(b, p.read, t.cas + chip.burst_words, "any_read")
    b.invariant(banks.driven + any_read.now >= t.cas + chip.burst_words - 2)
    b.invariant(implies(moving.active & moving.write, any_read.now >= t.cas + chip.burst_words))
    b.invariant(implies(p.column, ~i.for_columns))
    stages = [i.register[f"passing{n}"] for n in range(len(behind_it))]
    for stage, known in zip(stages, behind_it, strict=True):
        b.invariant((stage[0] == known[0]) & implies(stage[0], stage == known))
