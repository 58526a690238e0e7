"""The decoder of coded weights, between the beats of LOAD and WGT; `tilewright.isa.codes` has its rule."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from tilewright.hw.interfaces import ADDRESS_BITS, bits_for
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

LOW_BITS = (LOW - 1).bit_length()
BEATS_BITS, TILES_BITS, MODE_BITS = 16, 16, 2
SLOT = data.StructLayout({"symbol": 8, "factor": COUNT_BITS + PART_BITS, "offset": COUNT_BITS, "mask": PART_BITS})


class CodedWrite(wiring.Signature):
    """The weights of one round, written to part `part` of tile `row` of WGT."""

    def __init__(self, config: NpuConfig) -> None:
        super().__init__(
            {
                "valid": Out(1),
                "row": Out(ADDRESS_BITS),
                "part": Out(bits_for(config.tile_bytes // config.weight_codes)),
                "data": Out(8 * config.weight_codes),
            }
        )


class WordQueue(wiring.Component):
    """A queue of words: QUEUE_BEATS beats in a ring, of which a cycle takes the first few words.

    Ports:
        take, beat: a beat is added.  level: number of words in the queue.
        heads: the oldest words.  pops: number of words that leave.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.number = words_per_cycle(config)
        super().__init__(
            {
                "take": In(1),
                "beat": In(config.axi_data_bits),
                "level": Out(range(QUEUE_BEATS * self.number + 1)),
                "heads": Out(WORD_BITS).array(self.number),
                "pops": In(range(self.number + 1)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        n = self.number
        column_bits = (n - 1).bit_length()
        ring = [Signal(n * WORD_BITS, name=f"beat{k}", reset_less=True) for k in range(QUEUE_BEATS)]
        first = Signal(range(QUEUE_BEATS * n))
        into = Signal(range(QUEUE_BEATS))
        with m.If(self.take):
            m.d.sync += into.eq(into + 1)
            for k, beat in enumerate(ring):
                with m.If(into == k):
                    m.d.sync += beat.eq(self.beat)
        m.d.sync += [
            first.eq(first + self.pops),
            self.level.eq(self.level - self.pops + Mux(self.take, n, 0)),
        ]
        # The first n words lie in n different columns, those before the first one's column in the next beat.
        column, row = first[:column_bits], first[column_bits:]
        words = []
        for c in range(n):
            word = Signal(WORD_BITS, name=f"column{c}")
            place = Signal.like(row, name=f"place{c}")
            m.d.comb += [
                place.eq(row + (column > c)),
                word.eq(Array(beat.word_select(c, WORD_BITS) for beat in ring)[place]),
            ]
            words.append(word)
        for k in range(n):
            at = Signal(column_bits, name=f"at{k}")
            m.d.comb += [at.eq(column + k), self.heads[k].eq(Array(words)[at])]
        return m


class Lane(wiring.Component):
    """One lane: its copy of the table, its state, its words in reserve.

    Latency: a round a cycle.

    Ports:
        table_write, slot, value: a slot is written.
        clear: the state becomes 0.
        word, give: a word for the reserve.
        round, first: a round is made; it is the first after a table.
        wants, held_up: the reserve has room for a word; the round needs a word, and the reserve is empty.
        weight: int8, the result of the round.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "table_write": In(1),
                "slot": In(SLOT_BITS),
                "value": In(SLOT),
                "clear": In(1),
                "word": In(WORD_BITS),
                "give": In(1),
                "round": In(1),
                "first": In(1),
                "wants": Out(1),
                "held_up": Out(1),
                "weight": Out(8),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        assert RESERVE == 2
        m.submodules.table = table = Memory(shape=SLOT, depth=SLOTS, init=[])
        write, read = table.write_port(), table.read_port()
        high = Signal(STATE_BITS - SLOT_BITS, reset_less=True)
        following, need = Signal(STATE_BITS), Signal()
        oldest, newest = Signal(WORD_BITS, reset_less=True), Signal(WORD_BITS, reset_less=True)
        has_one, has_two, used = Signal(), Signal(), Signal()
        slot = read.data
        # What is below LOW has nothing above it, so that it is moved up by ORs; of the first round only the word stays.
        state = Cat(
            Mux(need, oldest, following[:WORD_BITS]),
            following[WORD_BITS:] | Mux(need & ~self.first, following[:LOW_BITS], 0),
        )
        m.d.comb += [
            write.en.eq(self.table_write),
            write.addr.eq(self.slot),
            write.data.eq(self.value),
            following.eq(((slot.factor * high) >> PART_BITS) + slot.offset),
            need.eq(following[LOW_BITS:] == 0),
            read.en.eq(self.round),
            read.addr.eq(state[:SLOT_BITS]),
            self.weight.eq(slot.symbol | (high & slot.mask)),
            self.wants.eq(~has_two),
            self.held_up.eq(need & ~has_one),
            used.eq(self.round & need),
        ]
        with m.If(self.clear):
            m.d.sync += high.eq(0)
        with m.Elif(self.round):
            m.d.sync += high.eq(state[SLOT_BITS:])
        with m.If(used | ~has_one):
            m.d.sync += oldest.eq(Mux(has_two, newest, self.word))
        with m.If(self.give):
            m.d.sync += newest.eq(self.word)
        m.d.sync += [
            has_one.eq((has_one & ~used) | has_two | self.give),
            has_two.eq(~used & (has_two | (has_one & self.give))),
        ]
        return m


class TableBuilder(wiring.Component):
    """Expands the words of a table to slots, one per cycle.

    Ports:
        clear: a table begins.
        active, word: the oldest word of the queue is there.  pop: it is used up.
        write, slot, value: a slot is written.  done: it is the last.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "clear": In(1),
                "active": In(1),
                "word": In(WORD_BITS),
                "pop": Out(1),
                "write": Out(1),
                "slot": Out(SLOT_BITS),
                "value": Out(SLOT),
                "done": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        assert PART_BITS == 2 and SLOT_BITS == COUNT_BITS
        count, run = self.word[:COUNT_BITS], self.word[COUNT_BITS:][:RUN_BITS]
        pair, four = Signal(), Signal()
        symbol = Signal(8, reset_less=True)
        number = Signal(COUNT_BITS, reset_less=True)  # of the slot among those of its symbol
        repeated = Signal(RUN_BITS, reset_less=True)
        skips, ends = Signal(), Signal()
        groups = Mux(skips, run + 1, 1)
        m.d.comb += [
            four.eq(self.word[-1]),
            pair.eq(self.word[-2] & ~four),
            skips.eq(count == 0),
            ends.eq(number + 1 == count),
            self.write.eq(self.active & ~skips),
            self.value.symbol.eq(symbol ^ FIRST_WEIGHT),
            self.value.factor.eq(Mux(four, 1, Mux(pair, 2, count << PART_BITS))),
            self.value.offset.eq(number),
            self.value.mask.eq(Cat(pair | four, four)),
            self.done.eq(self.write & self.slot.all()),
            self.pop.eq(self.active & (skips | (ends & (repeated == run)))),
        ]
        with m.If(self.active):
            with m.If(skips | ends):
                m.d.sync += symbol.eq(symbol + Mux(four, groups << 2, Mux(pair, groups << 1, groups)))
            with m.If(~skips):
                m.d.sync += [self.slot.eq(self.slot + 1), number.eq(Mux(ends, 0, number + 1))]
                with m.If(ends):
                    m.d.sync += repeated.eq(Mux(repeated == run, 0, repeated + 1))
        with m.If(self.clear):
            m.d.sync += [symbol.eq(0), number.eq(0), repeated.eq(0), self.slot.eq(0)]
        return m


class WeightCodes(wiring.Component):
    """Decodes the beats of LOAD_CODED.

    Latency: a cycle to begin an instruction, then those of the rule; weights are written in the cycle after their
    round.

    Ports:
        valid, mode, row, tiles, beats: an instruction is at hand and may go on; they stay until `last` or an error.
        beat_ready, beat, beat_data: beats.
        step: something happens. last: the instruction ends. beyond: its next tile is not in WGT. fault: an error.
        current: the tile that is decoded.
        write: to WGT.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        super().__init__(
            {
                "valid": In(1),
                "mode": In(MODE_BITS),
                "row": In(config.address_bits),
                "tiles": In(TILES_BITS),
                "beats": In(BEATS_BITS),
                "beat": In(1),
                "beat_ready": Out(1),
                "beat_data": In(config.axi_data_bits),
                "step": Out(1),
                "last": Out(1),
                "beyond": Out(1),
                "fault": Out(1),
                "current": Out(config.address_bits),
                "write": Out(CodedWrite(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c = self.config
        number = words_per_cycle(c)
        m.submodules.queue = queue = WordQueue(c)
        m.submodules.builder = builder = TableBuilder()
        lanes = [Lane() for _ in range(c.weight_codes)]
        for i, lane in enumerate(lanes):
            m.submodules[f"lane{i}"] = lane

        opened, complete = Signal(), Signal()
        starting = Signal(range(START_ROUNDS + 1))
        beats_left, tiles_left = Signal(BEATS_BITS, reset_less=True), Signal(TILES_BITS, reset_less=True)
        part = Signal.like(self.write.part, name="part", reset_less=True)
        parts = c.tile_bytes // c.weight_codes
        table, opens, cycle, wants_beat, empty = Signal(), Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            table.eq(self.mode == CodeMode.TABLE),
            wants_beat.eq(opened & (beats_left != 0) & (queue.level <= (QUEUE_BEATS - 1) * number)),
            self.beat_ready.eq(self.valid & wants_beat),
            self.step.eq(self.valid & (self.beat | ~wants_beat)),
            opens.eq(self.step & ~opened),
            cycle.eq(self.step & opened),
            empty.eq(queue.level == 0),
            queue.take.eq(cycle & wants_beat),
            queue.beat.eq(self.beat_data),
        ]

        # Words to lanes, or to the table.
        round_, emits, ready = Signal(), Signal(), Signal()
        gives = self._hand_out(m, queue, lanes, cycle & ~table)
        m.d.comb += [
            builder.clear.eq(opens & table),
            builder.active.eq(cycle & table & ~empty),
            builder.word.eq(queue.heads[0]),
            queue.pops.eq(Mux(table, builder.pop, gives)),
            ready.eq(~Cat(lane.held_up for lane in lanes).any()),
            round_.eq(cycle & ~table & ready),
            emits.eq(round_ & (starting == 0)),
        ]
        for lane in lanes:
            m.d.comb += [
                lane.table_write.eq(builder.write),
                lane.slot.eq(builder.slot),
                lane.value.eq(builder.value),
                lane.clear.eq(builder.clear),
                lane.round.eq(round_),
                lane.first.eq(starting == START_ROUNDS),
            ]

        # The instruction.
        ends, all_taken, ends_tile = Signal(), Signal(), Signal()
        m.d.comb += [
            ends_tile.eq(emits & (part == parts - 1)),
            ends.eq((ends_tile & (tiles_left == 1)) | builder.done),
            all_taken.eq(beats_left == wants_beat),
            self.beyond.eq(emits & (self.current >= c.wgt_tiles)),
            self.fault.eq(
                (opens & ~table & ~complete)
                | (cycle & empty & ~wants_beat & (table | ~ready))
                | (ends & ~all_taken & ~self.beyond)
            ),
            self.last.eq(ends & all_taken & ~self.beyond),
        ]
        with m.If(opens):
            m.d.sync += [
                opened.eq(1),
                beats_left.eq(self.beats),
                tiles_left.eq(self.tiles),
                part.eq(0),
                self.current.eq(self.row),
            ]
            with m.If(table):
                m.d.sync += [complete.eq(0), starting.eq(START_ROUNDS)]
        with m.If(self.last):
            m.d.sync += opened.eq(0)
        with m.If(builder.done):
            m.d.sync += complete.eq(1)
        with m.If(queue.take):
            m.d.sync += beats_left.eq(beats_left - 1)
        with m.If(round_ & (starting != 0)):
            m.d.sync += starting.eq(starting - 1)
        with m.If(emits):
            m.d.sync += part.eq(Mux(ends_tile, 0, part + 1))
        with m.If(ends_tile):
            m.d.sync += [self.current.eq(self.current + 1), tiles_left.eq(tiles_left - 1)]

        m.d.sync += [
            self.write.valid.eq(emits & ~self.beyond),
            self.write.row.eq(self.current),
            self.write.part.eq(part),
        ]
        weights = Signal(len(self.write.data), reset_less=True)
        m.d.comb += self.write.data.eq(weights)
        with m.If(round_):
            m.d.sync += weights.eq(Cat(lane.weight for lane in lanes))
        return m

    def _hand_out(self, m: Module, queue: WordQueue, lanes: list[Lane], allowed: Value) -> Value:
        """Hands out words to the lanes of every bank. Returns the number of words."""
        number = words_per_cycle(self.config)
        before: Value = allowed & 0  # words for the banks before
        for k in range(number):
            bank = lanes[k::number]
            asks, held_up = Cat(lane.wants for lane in bank), Cat(lane.held_up for lane in bank)
            given, after = Signal(name=f"given{k}"), Signal(range(number + 1), name=f"after{k}")
            m.d.comb += [
                given.eq(allowed & asks.any() & (queue.level > before)),
                after.eq(before + given),
            ]
            for n, lane in enumerate(bank):
                m.d.comb += [
                    lane.word.eq(Array(queue.heads)[before]),
                    lane.give.eq(
                        given & Mux(held_up.any(), lane.held_up & ~held_up[:n].any(), lane.wants & ~asks[:n].any())
                    ),
                ]
            before = after
        return before
