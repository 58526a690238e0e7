"""Coded weights: the rule by which LOAD_CODED turns words of a stream into weights.

A range variant of asymmetric numeral systems (rANS). `NpuConfig.weight_codes` lanes decode a weight each at a time (a
round); lane i has byte i of the round, rounds follow each other in a tile. All lanes share a table of SLOTS slots and
one stream of words, 16 bits each, low byte first. A lane has a state z below 2**STATE_BITS, and RESERVE words at
most in reserve. In a round it gives

    slot = table[z % SLOTS]; high = z // SLOTS; weight = slot.symbol | high & slot.mask
    z = slot.factor * high // 4 + slot.offset; if z < LOW: z = z * 2**WORD_BITS + the lane's oldest word

A symbol with f slots has factor 4 * f, so it costs log2(SLOTS / f) bits. Rare symbols share a slot: two of them, or
four, whose number is in the low bits of `high`; their factor is 2 or 1.

Time is part of the rule, because words are handed out as lanes need them. In every cycle

- a bank, lane i is of bank i % `words_per_cycle`, gives a word to the lowest of its lanes that needs one for the round
  and has none, or else to the lowest one with room in its reserve. The banks with such a lane take the words that wait,
  the lowest bank the oldest, as far as there are;
- and if every lane that needs a word had one at the beginning of the cycle, the round is made.

Words come by bus beats, `words_per_cycle` at a time. A beat is taken in each cycle at whose beginning no more words
wait than QUEUE_BEATS - 1 beats have, if the instruction has beats left; its words count from the next cycle on. Words
that wait or are in reserve at the end of an instruction are there for the next: those of a program are one stream. The
words of a table are taken from it too, and make a slot a cycle; words that skip symbols take a cycle each.

After a table, START_ROUNDS rounds give no weights: the first makes the words of the lanes their states, the others
bring them to any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from tilewright.isa.config import NpuConfig

SLOT_BITS, WORD_BITS, PART_BITS = 9, 16, 2
SLOTS = 1 << SLOT_BITS
#: Below this a state takes a word; the smallest it has otherwise.
LOW = 1 << (SLOT_BITS + PART_BITS)
STATE_BITS = SLOT_BITS + PART_BITS + WORD_BITS
#: Words a lane has in reserve at most; beats of words that wait at most.
RESERVE, QUEUE_BEATS = 2, 4
#: Rounds at the beginning of a stream that give no weights.
START_ROUNDS = 2
#: A word of a table: how many slots a symbol has, how many symbols less 1 in a row have as many, `Share`.
COUNT_BITS, RUN_BITS, SHARE_BITS = 9, 5, 2
#: Symbols are in the order of the weights they stand for: the lowest weight is symbol 0.
FIRST_WEIGHT = 0x80


class CodeMode(IntEnum):
    """The kinds of data that LOAD_CODED loads."""

    WEIGHTS = 0
    TABLE = 1


class Slot(NamedTuple):
    """A slot of the table: the transition of a state whose low bits are the slot's number."""

    symbol: int
    factor: int
    offset: int
    mask: int


def words_per_cycle(config: NpuConfig) -> int:
    """Words of a bus beat; also the most words handed out in a cycle, and the number of banks of lanes."""
    return config.bus_bytes * 8 // WORD_BITS


def table_word(count: int, run: int, share: int) -> int:
    """The table word of `run` groups of 2**share symbols with `count` slots each; a count of 0 skips them."""
    return count | (run - 1) << COUNT_BITS | share << (COUNT_BITS + RUN_BITS)


class CodeError(Exception):
    """A stream that ends too early, weights without a table, or beats that are left over."""


@dataclass
class TableBuilder:
    """Builds table slots from words, one in a cycle.

    Attributes:
        slots: the slots made so far.
        symbol: number of the next one.
        made: slots of the present symbol; symbols of the present word.
    """

    slots: list[Slot] = field(default_factory=list)
    symbol: int = 0
    made: tuple[int, int] = (0, 0)

    def step(self, word: int) -> bool:
        """Makes the slot of a cycle from the first word. Returns True if the word is used up."""
        count = word % (1 << COUNT_BITS)
        run = (word >> COUNT_BITS) % (1 << RUN_BITS)
        share = min(word >> (COUNT_BITS + RUN_BITS), PART_BITS)
        if count == 0:
            self.symbol = (self.symbol + (run + 1 << share)) % 256
            return True
        slot, symbol = self.made
        factor = (count << PART_BITS if share == 0 else 1 << PART_BITS) >> share
        self.slots.append(Slot(self.symbol ^ FIRST_WEIGHT, factor, slot, (1 << share) - 1))
        if slot + 1 < count:
            self.made = slot + 1, symbol
            return False
        self.symbol = (self.symbol + (1 << share)) % 256
        self.made = 0, 0 if symbol == run else symbol + 1
        return symbol == run


@dataclass
class Decoder:
    """The decoder of LOAD, in its simplest form; its state is kept from one instruction to the next.

    Attributes:
        table: the slots, none before the first table is complete.
        states, reserve: states and reserved words of the lanes.
        queue: words that wait.
        starting: rounds until there are weights.
        cycles: spent so far.
    """

    config: NpuConfig
    table: list[Slot] = field(default_factory=list)
    states: list[int] = field(default_factory=list)
    reserve: list[list[int]] = field(default_factory=list)
    queue: list[int] = field(default_factory=list)
    starting: int = 0
    cycles: int = 0
    _left: int = 0
    _beats: list[list[int]] = field(default_factory=list)
    _read: Callable[[], bytes] = bytes

    def __post_init__(self) -> None:
        self.states = [0] * self.config.weight_codes
        self.reserve = [[] for _ in self.states]

    def load(self, mode: int, groups: int, beats: int, read: Callable[[], bytes]) -> Iterator[bytes]:
        """Executes one LOAD_CODED.

        Args:
            groups: rounds of weights, ignored for a table.
            beats: number of bus beats of the instruction.
            read: reads the beats; called when the first is needed.

        Yields:
            The weights of a round, one of each lane.

        Raises:
            CodeError: the stream ends too early, there is no table, or beats are left over.
        """
        self._left, self._read, self._beats = beats, read, []
        self.cycles += 1
        if mode == CodeMode.TABLE:
            self._build()
        elif not self.table:
            raise CodeError("there is no table")
        else:
            while groups:
                weights = self._cycle()
                if weights is not None:
                    yield weights
                    groups -= 1
        if self._left:
            raise CodeError("beats are left over")

    def _build(self) -> None:
        self.table, self.starting = [], START_ROUNDS
        builder = TableBuilder()
        while len(builder.slots) < SLOTS:
            self.cycles += 1
            beat = self._beat()
            if self.queue:
                if builder.step(self.queue[0]):
                    self.queue.pop(0)
            elif not beat:
                raise CodeError("the stream ends too early")
            self.queue += beat
        self.table = builder.slots

    def _beat(self) -> list[int]:
        """The words of the beat that this cycle takes."""
        number = words_per_cycle(self.config)
        if not self._left or len(self.queue) > (QUEUE_BEATS - 1) * number:
            return []
        if not self._beats:
            data = self._read()
            words = [int.from_bytes(data[i : i + 2], "little") for i in range(0, len(data), 2)]
            self._beats = [words[i : i + number] for i in range(0, len(words), number)]
        self._left -= 1
        return self._beats.pop(0)

    def _cycle(self) -> bytes | None:
        """Executes a cycle; returns the weights of a completed round, else None."""
        self.cycles += 1
        beat = self._beat()
        following = [self._next(z) for z in self.states]
        held_up = [z < LOW and not words for z, words in zip(following, self.reserve)]
        ready = not any(held_up)
        if not ready and not self.queue and not beat:
            raise CodeError("the stream ends too early")
        number = words_per_cycle(self.config)
        given: list[tuple[int, int]] = []
        for bank in range(number):
            lanes = range(bank, len(self.states), number)
            wanting = [i for i in lanes if held_up[i]] or [i for i in lanes if len(self.reserve[i]) < RESERVE]
            if wanting and self.queue:
                given.append((wanting[0], self.queue.pop(0)))
        weights = None
        if ready:
            if not self.starting:
                weights = bytes(self._weight(z) for z in self.states)
            self.states = [z << WORD_BITS | words.pop(0) if z < LOW else z for z, words in zip(following, self.reserve)]
            self.starting = max(0, self.starting - 1)
        for i, word in given:
            self.reserve[i].append(word)
        self.queue += beat
        return weights

    def _next(self, z: int) -> int:
        if self.starting == START_ROUNDS:
            return 0
        slot = self.table[z % SLOTS]
        return (slot.factor * (z // SLOTS) >> PART_BITS) + slot.offset

    def _weight(self, z: int) -> int:
        slot = self.table[z % SLOTS]
        return slot.symbol | z // SLOTS & slot.mask
