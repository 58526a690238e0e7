"""The rule of `tilewright.isa.codes` as registers that go on once in every cycle of it, with its names.

`tests/unit/verification/formal/test_coded_reference.py` compares both with `tilewright.isa.codes`: weights, states,
words, errors, cycles.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, C, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from tilewright.hw.memory.weight_codes import BEATS_BITS, MODE_BITS, SLOT, TILES_BITS
from tilewright.isa.codes import (
    COUNT_BITS,
    FIRST_WEIGHT,
    LOW,
    PART_BITS,
    QUEUE_BEATS,
    RESERVE,
    RUN_BITS,
    SLOT_BITS,
    SLOTS,
    START_ROUNDS,
    STATE_BITS,
    WORD_BITS,
    CodeMode,
    words_per_cycle,
)
from tilewright.isa.config import NpuConfig


class TableReference(wiring.Component):
    """`tilewright.isa.codes.TableBuilder`.

    Ports:
        clear: a new one. step, word: a cycle with the first word. used: that is used up.
        appends, slot: a slot is appended. size: slots there are.
    """

    def __init__(self) -> None:
        self.symbol = Signal(8)
        self.made = Signal(COUNT_BITS, name="made_slots"), Signal(RUN_BITS, name="made_symbols")
        ports = {"clear": In(1), "step": In(1), "word": In(WORD_BITS)}
        ports |= {"used": Out(1), "appends": Out(1), "slot": Out(SLOT), "size": Out(range(SLOTS + 1))}
        super().__init__(ports)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count, rest = self.word[:COUNT_BITS], self.word[COUNT_BITS:]
        run, share = rest[:RUN_BITS], Mux(rest[RUN_BITS:] > PART_BITS, PART_BITS, rest[RUN_BITS:])
        slot, symbol = self.made
        last_slot, last_symbol = slot + 1 >= count, symbol == run
        m.d.comb += [
            self.appends.eq(self.step & (count != 0)),
            self.used.eq(self.step & ((count == 0) | (last_slot & last_symbol))),
            self.slot.symbol.eq(self.symbol ^ FIRST_WEIGHT),
            self.slot.factor.eq(Mux(share == 0, count << PART_BITS, C(1 << PART_BITS) >> share)),
            self.slot.offset.eq(slot),
            self.slot.mask.eq((C(1) << share) - 1),
        ]
        with m.If(self.clear):
            m.d.sync += [self.symbol.eq(0), slot.eq(0), symbol.eq(0), self.size.eq(0)]
        with m.Elif(self.step & (count == 0)):
            m.d.sync += self.symbol.eq(self.symbol + ((run + 1) << share))
        with m.Elif(self.step):
            m.d.sync += [self.size.eq(self.size + 1), slot.eq(slot + 1)]
            with m.If(last_slot):
                m.d.sync += [self.symbol.eq(self.symbol + (C(1) << share)), slot.eq(0)]
                m.d.sync += symbol.eq(Mux(last_symbol, 0, symbol + 1))
        return m


class DecoderReference(wiring.Component):
    """`tilewright.isa.codes.Decoder`, whose cycles are those in which `step` is: the first of an instruction begins it.

    Attributes:
        active: an instruction has begun. left, groups_left: its beats and rounds. complete: there is a table.
        starting, reserve, reserved, queue, waiting: as there; `reserved` and `waiting` say how many.
        following: states before a word is added, modulo 2**STATE_BITS.
        appended, taken: words for the reserve and out of the queue.

    Ports:
        step, mode, groups, beats: of the instruction. beat: what is taken where `wants` is.
        used, built: what the builder of tables says of `word`, the first one, in a cycle with `builds`.
        states: before the cycle, which are not kept here. slots: that the table has for them. nexts: behind the round.
        round_, emits, weights: a round; one that gives weights. error; ends: the instruction's last cycle.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config, self.number = config, words_per_cycle(config)
        lanes, room = config.weight_codes, QUEUE_BEATS * self.number
        rounds_bits = TILES_BITS + (config.tile_bytes // config.weight_codes).bit_length()
        self.active, self.complete = Signal(), Signal()
        self.left, self.groups_left = Signal(BEATS_BITS), Signal(rounds_bits)
        self.starting = Signal(range(START_ROUNDS + 1))
        self.reserve = [[Signal(WORD_BITS, name=f"reserve{i}_{k}") for k in range(RESERVE)] for i in range(lanes)]
        self.reserved = [Signal(range(RESERVE + 1), name=f"reserved{i}") for i in range(lanes)]
        self.queue = [Signal(WORD_BITS, name=f"queue{k}") for k in range(room)]
        self.waiting = Signal(range(room + 1))
        self.following = [Signal(STATE_BITS, name=f"following{i}") for i in range(lanes)]
        self.appended = [(Signal(name=f"appends{i}"), Signal(WORD_BITS, name=f"append{i}")) for i in range(lanes)]
        self.taken = Signal(range(self.number + 1))
        ports: dict[str, Any] = {"step": In(1), "mode": In(MODE_BITS), "groups": In(rounds_bits)}
        ports |= {"beats": In(BEATS_BITS), "beat": In(config.axi_data_bits), "slots": In(SLOT).array(lanes)}
        ports |= {"states": In(STATE_BITS).array(lanes), "nexts": Out(STATE_BITS).array(lanes)}
        ports |= {"used": In(1), "built": In(1), "builds": Out(1), "word": Out(WORD_BITS), "opens_table": Out(1)}
        ports |= {"wants": Out(1), "round_": Out(1), "emits": Out(1), "weights": Out(8 * lanes)}
        super().__init__(ports | {"error": Out(1), "ends": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        opens, cycle = self.step & ~self.active, self.step & self.active
        table, some = self.mode == CodeMode.TABLE, self.waiting != 0
        held_up = self._following(m)
        ready, decodes = ~Cat(held_up).any(), cycle & ~table
        m.d.comb += [
            self.opens_table.eq(opens & table),
            self.wants.eq(self.active & (self.left != 0) & (self.waiting <= (QUEUE_BEATS - 1) * self.number)),
            self.builds.eq(cycle & table & some),
            self.word.eq(self.queue[0]),
            self.round_.eq(decodes & ready),
            self.emits.eq(self.round_ & (self.starting == 0)),
        ]
        finished = Mux(table, self.builds & self.built, self.emits & (self.groups_left == 1))
        none_left = self.left == self.wants
        too_early = ~some & ~self.wants & (table | ~ready)
        m.d.comb += [
            self.error.eq(Mux(opens, ~table & ~self.complete, cycle & (too_early | (finished & ~none_left)))),
            self.ends.eq(cycle & finished & none_left),
        ]
        with m.If(opens):
            m.d.sync += [self.active.eq(1), self.left.eq(self.beats), self.groups_left.eq(self.groups)]
            with m.If(table):
                m.d.sync += [self.complete.eq(0), self.starting.eq(START_ROUNDS)]
        with m.If(self.ends):
            m.d.sync += self.active.eq(0)
        with m.If(cycle):
            m.d.sync += self.left.eq(self.left - self.wants)
            with m.If(table & self.ends):
                m.d.sync += self.complete.eq(1)
        with m.If(self.emits):
            m.d.sync += self.groups_left.eq(self.groups_left - 1)
        with m.If(self.round_ & (self.starting != 0)):
            m.d.sync += self.starting.eq(self.starting - 1)
        given = self._give(m, held_up, decodes)
        m.d.comb += self.taken.eq(Mux(table, self.builds & self.used, given))
        self._words(m, cycle & self.wants)
        self._round(m)
        return m

    def _following(self, m: Module) -> list[Value]:
        """Computes the states before they take words. Returns which lanes need a word that is not there."""
        held_up: list[Value] = []
        weights = []
        for i, (z, slot, following) in enumerate(zip(self.states, self.slots, self.following, strict=True)):
            high = z >> SLOT_BITS
            after = ((slot.factor * high) >> PART_BITS) + slot.offset
            held_up.append(Signal(name=f"held_up{i}"))
            m.d.comb += following.eq(Mux(self.starting == START_ROUNDS, 0, after))
            m.d.comb += held_up[i].eq((following < LOW) & (self.reserved[i] == 0))
            weights.append((slot.symbol | (high & slot.mask))[:8])
        m.d.comb += self.weights.eq(Cat(weights))
        return held_up

    def _give(self, m: Module, held_up: list[Value], decodes: Value) -> Value:
        """Hands out words to the reserves. Returns their number."""
        place: Value = C(0)  # words for the banks before
        for bank in range(self.number):
            lanes = range(bank, len(self.states), self.number)
            urgent, gives = Signal(name=f"urgent{bank}"), Signal(name=f"gives{bank}")
            word, wanting = Signal(WORD_BITS, name=f"word{bank}"), Signal(len(lanes), name=f"wanting{bank}")
            m.d.comb += [
                urgent.eq(Cat(held_up[i] for i in lanes).any()),
                wanting.eq(Cat(Mux(urgent, held_up[i], self.reserved[i] < RESERVE) for i in lanes)),
                gives.eq(decodes & wanting.any() & (self.waiting > place)),
                word.eq(Array(self.queue)[place]),
            ]
            for n, i in enumerate(lanes):
                appends, own = self.appended[i]
                m.d.comb += [appends.eq(gives & wanting[n] & ~wanting[:n].any()), own.eq(word)]
            place = place + gives
        return place

    def _words(self, m: Module, comes: Value) -> None:
        """Updates the queue: it loses `taken` words, and then gets those of a beat."""
        rest = Signal.like(self.waiting, name="rest")
        m.d.comb += rest.eq(self.waiting - self.taken)
        m.d.sync += self.waiting.eq(rest + Mux(comes, self.number, 0))
        words = [self.beat.word_select(n, WORD_BITS) for n in range(self.number)]
        for k, register in enumerate(self.queue):
            value: Value = Array(self.queue[k : k + self.number + 1])[self.taken]
            for n, word in enumerate(words):
                value = Mux(comes & (rest + n == k), word, value)
            m.d.sync += register.eq(value)

    def _round(self, m: Module) -> None:
        """Updates states and reserves at the end of a round."""
        for i, (after, words, reserved) in enumerate(zip(self.nexts, self.reserve, self.reserved, strict=True)):
            following, (appends, word) = self.following[i], self.appended[i]
            takes = self.round_ & (following < LOW)
            m.d.comb += after.eq(Mux(takes, Cat(words[0], following), following))
            left = [*words[1:], C(0)]
            rest = reserved - takes
            m.d.sync += reserved.eq(rest + appends)
            for k, register in enumerate(words):
                stays = Mux(takes, left[k], register)
                m.d.sync += register.eq(Mux(appends & (rest == k), word, stays))
