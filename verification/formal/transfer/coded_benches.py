"""Benches of the decoder of LOAD_CODED beside `tilewright.isa.codes`, written as registers (`coded_reference`).

The builder of tables is cut out of the decoder: `table` says which slots it makes of its words, `decoder` what becomes
of slots and words. Of the slots one is tracked, which the solver chooses; what a lane reads of another one is free.
States are computed modulo 2**STATE_BITS there; `lane` says that none reaches that.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data

from tilewright.hw.memory.weight_codes import SLOT, Lane, TableBuilder, WeightCodes
from tilewright.isa.codes import (
    LOW,
    PART_BITS,
    QUEUE_BEATS,
    SLOT_BITS,
    SLOTS,
    START_ROUNDS,
    STATE_BITS,
    WORD_BITS,
    CodeMode,
    words_per_cycle,
)
from tilewright.isa.config import NpuConfig
from verification.formal.bench import Bench, implies, opened, registers
from verification.formal.engine import Cut
from verification.formal.transfer.coded_reference import DecoderReference, TableReference
from verification.formal.transfer.move_benches import MOVES_CODED


def legal(slot: Any) -> Value:
    """Returns whether a builder of tables makes it: the number of a slot is below how many its symbol has."""
    alone = (slot.factor[:PART_BITS] == 0) & (slot.offset < slot.factor >> PART_BITS)
    return alone | ((slot.factor != 0) & (slot.factor < 1 << PART_BITS))


def table(only: str | None) -> Bench:
    """The builder of tables with any words, of which the first stays until it is used up."""
    b = Bench(only)
    part, rule = TableBuilder(), TableReference()
    inside = SimpleNamespace(**registers(opened(part)))
    active, clear, word, begun = b.free(1, "active"), b.free(1, "clear"), Signal(WORD_BITS, name="word"), Signal()
    b.part("builder", part, active=active, clear=clear, word=word)
    b.part("rule", rule, step=active, clear=clear, word=word)
    # A table begins before its first word, and the next one behind the end.
    with b.m.If(clear):
        b.m.d.sync += begun.eq(1)
    with b.m.Elif(part.done):
        b.m.d.sync += begun.eq(0)
    b.assume(implies(active, begun & ~clear))
    with b.m.If(clear | part.pop):
        b.m.d.sync += word.eq(b.free(WORD_BITS, "next_word"))
    b.check(
        "slots",
        implies(active, part.write == rule.appends),
        "LOAD_CODED: the builder of tables makes of a word the slots that "
        "`tilewright.isa.codes.TableBuilder` appends, one in a cycle, in order from slot 0 on",
        Cut("builder.symbol"),
    )
    b.check(
        "slots",
        implies(part.write, active & (part.slot == rule.size) & (part.value.as_value() == rule.slot.as_value())),
    )
    b.check(
        "words",
        implies(active, part.pop == rule.used) & implies(part.pop, active),
        "a word is used up with the last slot it makes, or at once if it makes none",
        Cut("builder.repeated"),
    )
    b.check(
        "ends",
        part.done == (rule.appends & (rule.size == SLOTS - 1)),
        "a table ends with its last slot",
        Cut("builder.slot"),
    )
    b.check(
        "legal",
        implies(part.write, legal(part.value)),
        "the number of a slot is below how many its symbol has",
        Cut("builder.number"),
    )

    slot, symbol = rule.made
    count, run = word[: len(slot)], word[len(slot) :][: len(symbol)]
    b.invariant(implies(begun, (inside.symbol == rule.symbol) & (part.slot == rule.size) & (rule.size < SLOTS)))
    b.invariant(implies(begun, (inside.number == slot) & (inside.repeated == symbol)))
    b.invariant(implies(begun & (slot != 0), slot < count))
    b.invariant(implies(begun & (symbol != 0), (symbol <= run) & (count != 0)))
    return b


def _memory(b: Bench, memory: Any, name: str, at: Value) -> tuple[Value, Value]:
    """Leaves the memory of a lane empty but for slot `at`; returns that and what was read."""
    memory.elaborate = lambda platform: Module()
    (write,), (read,) = memory.write_ports, memory.read_ports
    kept, got = Signal(SLOT.size, name=f"{name}_kept"), Signal(SLOT.size, name=f"{name}_got")
    b.m.d.comb += Value.cast(read.data).eq(got)
    with b.m.If(write.en & (write.addr == at)):
        b.m.d.sync += kept.eq(write.data)
    with b.m.If(read.en):
        b.m.d.sync += got.eq(Mux(read.addr == at, kept, b.free(SLOT.size, f"{name}_other")))
    return kept, got


def lane(only: str | None) -> Bench:
    """A lane with any slots that a builder of tables makes."""
    b = Bench(only)
    part = Lane()
    module = opened(part)
    memory: Any = module.submodules.table
    memory.elaborate = lambda platform: Module()
    slot, high = data.View(SLOT, b.free(SLOT.size, "slot")), registers(module)["high"]
    b.assume(legal(slot))
    b.m.d.comb += Value.cast(memory.read_ports[0].data).eq(slot.as_value())
    b.part("lane", part, clear=0)
    exact = Signal(STATE_BITS + 1, name="exact")
    b.m.d.comb += exact.eq(((slot.factor * high) >> PART_BITS) + slot.offset)
    b.check(
        "fits",
        exact < 1 << STATE_BITS,
        "LOAD_CODED: with slots that are legal a state stays below 2**`STATE_BITS`",
        Cut("lane.high"),
    )
    b.check(
        "fits", implies(b.past(part.round & (exact >= LOW), "was"), high == b.past(exact, "was_exact") >> SLOT_BITS)
    )
    return b


def decoder(only: str | None, c: NpuConfig = MOVES_CODED) -> Bench:
    """The decoder with any instructions, any beats, whenever they like, and any table; nothing behind an error. The
    rule has no register for the high bits of a state: it goes on from those of the lane, which must be what it made."""
    b = Bench(only)
    part, rule = WeightCodes(c), DecoderReference(c)
    module = opened(part)
    inside = registers(module)
    queue: Any = module.submodules.queue
    builder: Any = module.submodules.builder
    held = registers(opened(queue))
    lanes = [getattr(module.submodules, f"lane{i}") for i in range(c.weight_codes)]
    at = b.constant(SLOT_BITS, "at")
    opened_lanes = [opened(lane) for lane in lanes]
    memories = [_memory(b, lane.submodules.table, f"table{i}", at) for i, lane in enumerate(opened_lanes)]
    b.cut(builder, "builder")
    b.assume(implies(builder.done | builder.pop | builder.write, builder.active) & implies(builder.done, builder.write))
    b.part("codes", part)
    parts = c.tile_bytes // c.weight_codes
    groups = part.tiles << (parts.bit_length() - 1)
    b.part(
        "rule",
        rule,
        step=part.step,
        mode=part.mode,
        groups=groups,
        beats=part.beats,
        beat=part.beat_data,
        used=builder.pop,
        built=builder.done,
        **{f"slots__{i}": got for i, (_, got) in enumerate(memories)},
    )

    # Instructions, one behind the other.
    stopped = Signal(name="stopped")
    b.m.d.sync += stopped.eq(stopped | part.fault | part.beyond)
    b.assume(implies(part.valid, ~stopped & ((part.mode == CodeMode.TABLE) | (part.tiles != 0))))
    for name in ("mode", "tiles", "beats"):
        kept = Signal.like(getattr(part, name), name=f"was_{name}")
        with b.m.If(part.step):
            b.m.d.sync += kept.eq(getattr(part, name))
        b.assume(implies(rule.active, getattr(part, name) == kept))

    b.check(
        "beats",
        part.beat_ready == (part.valid & rule.wants),
        "LOAD_CODED: a beat is wanted exactly when `tilewright.isa.codes.Decoder` takes one",
        Cut("codes.queue.level"),
    )
    b.check("beats", part.step == (part.valid & (part.beat | ~rule.wants)))
    b.check(
        "words",
        (builder.active == rule.builds) & implies(rule.builds, builder.word == rule.word),
        "the builder of tables sees the oldest word that waits; every lane is given a word in the cycles "
        "in which the rule gives it one, and the same word",
        Cut("codes.queue.first"),
    )
    b.check("words", builder.clear == rule.opens_table)
    for lane, (appends, word) in zip(lanes, rule.appended, strict=True):
        b.check("words", (lane.give == appends) & implies(appends, lane.word == word))
        b.check(
            "rounds",
            lane.round == rule.round_,
            "the lanes make a round exactly in the cycles in which the rule makes one",
            Cut("codes.lane3.held_up", 12),
        )
    b.check(
        "faults",
        part.beyond == (rule.emits & (part.current >= c.wgt_tiles)),
        "a stream that ends too early, weights without a table, beats left over at the end: an error "
        "exactly in the cycle of the rule; a round for a tile beyond WGT is the end as well",
        Cut("codes.complete"),
    )
    b.check("faults", part.fault == (rule.error & ~part.beyond))
    b.check(
        "ends",
        part.last == (rule.ends & ~part.beyond),
        "the instruction ends with its last round, or the last slot of its table",
        Cut("codes.queue.level"),
    )
    weights = b.past(rule.weights, "weights")
    b.check(
        "weights",
        part.write.valid == b.past(rule.emits & ~part.beyond, "emitted"),
        "the weights of a round, and no others, are written in the next cycle",
        Cut("codes.weights", 14),
    )
    b.check("weights", implies(part.write.valid, part.write.data == weights))

    # The tracked slot, as the builder wrote it last; a round behind a table begins with the words alone.
    entry, known = Signal(SLOT, name="entry"), Signal(name="known")
    with b.m.If(builder.write & (builder.slot == at)):
        b.m.d.sync += [entry.eq(builder.value), known.eq(1)]
    reads = rule.complete & (rule.starting != START_ROUNDS)
    first, written = rule.starting == START_ROUNDS, Cat(builder.slot, builder.value.as_value())
    for i, (kept, got) in enumerate(memories):
        low, high = Signal(SLOT_BITS, name=f"low{i}"), registers(opened_lanes[i])["high"]
        z = Cat(low, high)
        b.m.d.comb += rule.states[i].eq(z)
        with b.m.If(rule.round_):
            b.m.d.sync += low.eq(rule.nexts[i])
        after = b.past(Mux(rule.round_, rule.nexts[i][SLOT_BITS:], high), f"after{i}")
        b.check(
            "states",
            implies(rule.complete & ~first, high == after),
            "a state becomes what the rule makes of state, slot and the oldest word in reserve",
            Cut("codes.lane1.high", 11),
        )
        b.invariant(implies(first, high == 0))
        its = known & reads & (z[:SLOT_BITS] == at)
        memory: Any = opened_lanes[i].submodules.table
        write, read = memory.write_ports[0], memory.read_ports[0]
        b.check(
            "slots",
            (write.en == builder.write) & implies(write.en, Cat(write.addr, write.data) == written),
            "all lanes get every slot; what a lane has read is the slot of its state, as it was written last",
            Cut("codes.lane0.word", 12),
        )
        b.check("slots", (read.en == rule.round_) & implies(read.en, read.addr == rule.nexts[i][:SLOT_BITS]))
        b.check("slots", implies(its, got == entry.as_value()))
        b.invariant(implies(known, kept == entry.as_value()))

    _beside(b, part, rule, stopped, inside, held, queue, opened_lanes)
    return b


def _beside(b: Bench, part: Any, rule: Any, stopped: Value, inside: Any, held: Any, queue: Any, lanes: Any) -> None:
    """Invariants: every register is as the rule has it."""
    c = part.config
    number = words_per_cycle(c)
    parts = c.tile_bytes // c.weight_codes
    active, left = inside["$signal"], inside["$signal$1"]
    table = part.mode == CodeMode.TABLE
    same = (active == rule.active) & (inside["complete"] == rule.complete) & (inside["starting"] == rule.starting)
    b.invariant(implies(rule.active & table, rule.starting == START_ROUNDS) & (rule.starting <= START_ROUNDS))
    b.invariant(implies(~stopped, same & implies(rule.active, (left == rule.left) & (rule.complete == ~table))))
    rest = (inside["tiles_left"] << (parts.bit_length() - 1)) - inside["part"]
    within = (rule.groups_left == rest) & (rest != 0) & (inside["part"] < parts)
    b.invariant(implies(~stopped & rule.active & ~table, within))
    # Words that wait.
    room = QUEUE_BEATS * number
    words = [held[f"beat{k}"].word_select(n, WORD_BITS) for k in range(QUEUE_BEATS) for n in range(number)]
    b.invariant((queue.level == rule.waiting) & (queue.level <= room))
    end = (held["first"] + queue.level)[: len(held["first"])]
    b.invariant(end == held["into"] * number)
    for k, word in enumerate(rule.queue):
        place = Signal(range(room), name=f"place{k}")
        b.m.d.comb += place.eq(held["first"] + k)
        b.invariant(implies(rule.waiting > k, word == Array(words)[place]))
    # Lanes.
    for reserve, reserved, lane in zip(rule.reserve, rule.reserved, lanes, strict=True):
        own = registers(lane)
        b.invariant((own["$signal$1"] == (reserved != 0)) & (own["$signal$2"] == (reserved == 2)) & (reserved <= 2))
        b.invariant(implies(reserved != 0, own["$signal"] == reserve[0]))
        b.invariant(implies(reserved == 2, own["newest"] == reserve[1]))


def load_codes(only: str | None, c: NpuConfig = MOVES_CODED) -> Bench:
    """The decoder of LOAD_CODED with any instructions and any beats; its lanes give any weights, whenever they
    like, and tables are complete after any number of words."""
    b = Bench(only)
    p = WeightCodes(c)
    module = opened(p)
    held = registers(module)
    lanes = [getattr(module.submodules, f"lane{i}") for i in range(c.weight_codes)]
    for i, lane in enumerate(lanes):
        b.cut(lane, f"lane{i}")
    builder: Any = module.submodules.builder
    b.cut(builder, "builder")
    b.assume(implies(builder.done | builder.pop, builder.active))
    b.part("codes", p)
    parts = c.tile_bytes // c.weight_codes

    active, stopped = Signal(name="active"), Signal(name="stopped")
    names = ("mode", "row", "tiles", "beats")
    op = SimpleNamespace(**{n: Signal.like(getattr(p, n), name=f"op_{n}") for n in names})
    b.assume(implies(p.valid, ~stopped & ((p.mode == CodeMode.TABLE) | (p.tiles != 0))))
    for n in names:
        b.assume(implies(active, getattr(p, n) == getattr(op, n)))
    with b.m.If(p.step & ~active):
        b.m.d.sync += [active.eq(1), *(getattr(op, n).eq(getattr(p, n)) for n in names)]
    with b.m.If(p.last):
        b.m.d.sync += active.eq(0)
    b.m.d.sync += stopped.eq(stopped | p.fault | p.beyond)
    says = Cat(p.beat_ready, p.step, p.last, p.beyond, p.fault).any()
    b.check(
        "steps",
        implies(says, p.valid) & implies(p.last | p.beyond, p.step) & ~(p.last & p.beyond),
        "LOAD_CODED: the decoder makes no step of its own, and ends with one",
        Cut("codes.step"),
    )

    # Beats, and parts of tiles.
    taken, tile, part = Signal(17, name="taken"), Signal(17, name="tile"), Signal(8, name="part")
    beat = p.beat & p.beat_ready
    w, weights = p.write, op.mode != CodeMode.TABLE
    with b.m.If(p.step & ~active):
        b.m.d.sync += taken.eq(0)
    with b.m.Elif(beat):
        b.m.d.sync += taken.eq(taken + 1)
    b.check(
        "beats",
        implies(beat, active & (taken < op.beats)) & implies(p.last, taken + beat == op.beats),
        "LOAD_CODED: `beats` beats are taken, all by the end",
        Cut("codes.beat_ready"),
    )
    # A part is written in the cycle behind its round.
    was = {n: b.past(getattr(op, n), f"was_{n}") for n in names}
    ends = w.valid & (part == parts - 1)
    began = b.past(p.step & ~active, "began")
    with b.m.If(began):
        b.m.d.sync += [tile.eq(0), part.eq(0)]
    with b.m.Elif(w.valid):
        b.m.d.sync += [part.eq(Mux(ends, 0, part + 1)), tile.eq(tile + ends)]
    row = (was["row"] + tile)[: c.address_bits]
    place = (w.row == row) & (w.part == part) & (tile < was["tiles"]) & (w.row < c.wgt_tiles)
    rounds = b.past(Cat(lane.weight for lane in lanes), "were_weights")
    b.check(
        "tiles",
        implies(w.valid, b.past(active & weights, "were") & place & (w.data == rounds)),
        "LOAD_CODED: the weights of a round go to the next part of `count` tiles from `row` on, once "
        "each; none to a tile beyond WGT, nor after one",
        Cut("codes.tiles_left", 12),
    )
    full = w.valid & (tile + 1 == was["tiles"]) & (part == parts - 1)
    b.check("tiles", implies(b.past(p.last & weights, "was_last"), full))
    far = b.past(p.beyond, "was_beyond")
    b.check("tiles", implies(p.beyond, p.current >= c.wgt_tiles) & implies(far, ~w.valid))

    b.invariant(held["$signal"] == active)
    at = active & ~stopped
    b.invariant(implies(at, (held["$signal$1"] == op.beats - taken) & (taken <= op.beats)))
    now_part, now_tile = Mux(began, 0, Mux(w.valid, Mux(ends, 0, part + 1), part)), Mux(began, 0, tile + ends)
    b.invariant(implies(at & weights, (held["part"] == now_part) & (now_part < parts) & (now_tile < op.tiles)))
    b.invariant(implies(at & weights, held["tiles_left"] == op.tiles - now_tile))
    b.invariant(implies(at & weights, p.current == (op.row + now_tile)[: c.address_bits]))
    return b
