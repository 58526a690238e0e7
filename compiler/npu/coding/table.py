"""Code tables of weights: the number of slots of every symbol, and the words that describe them to the decoder.

`tilewright.isa.codes` has the format.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from tilewright.isa.codes import (
    COUNT_BITS,
    FIRST_WEIGHT,
    LOW,
    PART_BITS,
    RUN_BITS,
    SLOT_BITS,
    SLOTS,
    WORD_BITS,
    table_word,
)

_WORD_COST = 16.0  # bits of a word
_MAX_SLOTS = (1 << COUNT_BITS) - 1  # slots of a symbol
#: Numbers of slots for runs of symbols: equal numbers save words, and the exact number matters little.
_LEVELS = np.array(sorted({*np.rint(1.12 ** np.arange(0, 56)).clip(1, _MAX_SLOTS).tolist()}))
#: Ways to give a symbol slots: its best number, none, a number of `_LEVELS`, or a part of a slot.
_OWN, _NONE, _FIRST_LEVEL = 0, 1, 2
#: Least slots of the most frequent symbol: then a first word can bring a lane to any state.
_MIN_TOP_SLOTS = LOW >> (WORD_BITS - SLOT_BITS)
_SHARED = _FIRST_LEVEL + len(_LEVELS) - 1  # plus log2 of the symbols of a slot
_WAYS = _SHARED + PART_BITS + 1


@dataclass(frozen=True)
class CodeTable:
    """A code table.

    Attributes:
        words: uint16 [n], as the decoder reads them.
        symbols: uint32 [256, 4] by byte: slots, first slot, log2 of the symbols that share a slot, number among these.
            A byte without a code has 0 slots.
    """

    words: np.ndarray
    symbols: np.ndarray

    @functools.cached_property
    def bits(self) -> np.ndarray:
        """The bits that each byte costs, float64 [256]; infinity for a byte without a code."""
        count, _, share, _ = self.symbols.T.astype(np.float64)
        with np.errstate(divide="ignore"):
            return np.where(count > 0, np.log2(SLOTS) - np.log2(count) + share, np.inf)

    def cost(self, histogram: np.ndarray) -> float:
        """Returns the bytes that coded weights take; infinity if one of them has no code.

        Args:
            histogram: number of weights, float64 or integers [256] by byte.
        """
        used = histogram > 0
        return float((histogram[used] * self.bits[used]).sum()) / 8


def make_table(histogram: np.ndarray) -> CodeTable:
    """Returns the code table for weights with a histogram of integers, [256] by byte."""
    counts = np.roll(histogram.astype(np.float64), FIRST_WEIGHT)  # by symbol: the lowest weight first
    groups = _cheapest_groups(counts, _slot_price(counts))
    _assign_leftover_slots(counts, groups)
    return _encode_table(groups)


#: First symbol, log2 of the symbols that share a slot, slots.
_Group = list[int]


def _slot_price(counts: np.ndarray) -> float:
    """Returns the price of a slot in bits at which the cheapest groups need no more slots than there are."""
    low = high = float(counts.sum()) / SLOTS / math.log(2)  # right if every symbol could have its best number
    least = high / SLOTS
    if _total_slots(counts, least) <= SLOTS:
        return least
    while _total_slots(counts, high) > SLOTS:
        low, high = high, 1.3 * high
    while low == high or _total_slots(counts, low) <= SLOTS:
        low, high = low / 1.3, low
    for _ in range(8):
        middle = math.sqrt(low * high)
        if _total_slots(counts, middle) > SLOTS:
            low = middle
        else:
            high = middle
    return high


def _total_slots(counts: np.ndarray, price: float) -> int:
    """Returns the slots of the cheapest groups, where a slot costs `price` bits."""
    return sum(g[2] for g in _cheapest_groups(counts, price))


def _cheapest_groups(counts: np.ndarray, price: float) -> list[_Group]:
    """Returns the slots of all symbols for which weights and words take fewest bits, where a slot costs `price` bits.

    It is the cheapest path through the symbols, on which every change of the number of slots costs a word.

    Args:
        counts: number of weights, float64 [256] by symbol.
    """
    best = np.clip(np.rint(counts / (price * np.log(2))), 1, _MAX_SLOTS)
    most = int(counts.argmax())
    best[most] = max(best[most], _MIN_TOP_SLOTS)
    cost = np.full((256, _WAYS), np.inf)
    cost[:, _OWN] = _WORD_COST - counts * np.log2(best) + price * best
    cost[counts == 0, _NONE] = 0.0
    cost[:, _FIRST_LEVEL : _SHARED + 1] = price * _LEVELS - counts[:, None] * np.log2(_LEVELS)
    for share in range(1, PART_BITS + 1):
        together = counts.reshape(-1, 1 << share).sum(1)
        cost[:, _SHARED + share] = 0.0
        cost[:: 1 << share, _SHARED + share] = together * share + price
    cost[most, _NONE:][np.concatenate([[True], _LEVELS < _MIN_TOP_SLOTS, [True] * PART_BITS])] = np.inf
    previous = np.zeros((256, _WAYS), np.int64)
    total = np.where(np.arange(_WAYS) == _OWN, 0.0, _WORD_COST)
    total = total + cost[0]
    ways = np.arange(_WAYS)
    for symbol in range(1, 256):
        left = total.copy()  # costs of the ways that may end here
        for share in range(1, PART_BITS + 1):
            if symbol % (1 << share):
                left[_SHARED + share] = np.inf
        other = int(left.argmin())
        change = left[other] + np.where(ways == _OWN, 0.0, _WORD_COST)
        stay = np.where(ways == _OWN, np.inf, total)
        for share in range(1, PART_BITS + 1):
            if symbol % (1 << share):
                change[_SHARED + share] = np.inf
        previous[symbol] = np.where(stay <= change, ways, other)
        total = np.minimum(stay, change) + cost[symbol]
    way = int(total.argmin())
    groups: list[_Group] = []
    for symbol in range(255, -1, -1):
        if way > _SHARED:
            if symbol % (1 << (way - _SHARED)) == 0:
                groups.append([symbol, way - _SHARED, 1])
        elif way != _NONE:
            groups.append([symbol, 0, int(best[symbol] if way == _OWN else _LEVELS[way - _FIRST_LEVEL])])
        way = int(previous[symbol, way])
    return groups[::-1]


def _assign_leftover_slots(counts: np.ndarray, groups: list[_Group]) -> None:
    """Adds the slots that are left to symbols with a word of their own, where they save most bits.

    Args:
        counts: number of weights, float64 [256] by symbol.
        groups: the groups, which are changed.
    """
    left = SLOTS - sum(g[2] for g in groups)
    alone = [
        g for n, g in enumerate(groups)
        if g[1] == 0 and all(groups[i][1:] != g[1:] for i in (n - 1, n + 1) if 0 <= i < len(groups))
    ]  # fmt: skip
    while left:
        n = np.array([g[2] for g in alone], float)
        c = counts[[g[0] for g in alone]]
        gain = np.where(n < _MAX_SLOTS, c * np.log2((n + 1) / n), -1.0) if alone else np.zeros(0)
        if gain.size and gain.max() >= 0:
            more = alone[int(gain.argmax())]
            # Nothing else gains from what is left over, so that many go at once.
            step = min(left, max(1, left // 8), _MAX_SLOTS - more[2])
            more[2] += step
            left -= step
            continue
        # All that have a word have as many as a word can tell: a symbol that has none, or part of many, gets some.
        lone = next((g for g in groups if g[1] == 0 and g[2] < _MAX_SLOTS and g not in alone), None)
        if lone is None:
            held = {g[0] + i for g in groups for i in range(1 << g[1])}
            lone = [next(s for s in range(256) if s not in held), 0, 1] if len(held) < 256 else None
            assert lone is not None, "every symbol shares a slot"
            groups.append(lone)
            groups.sort()
            left -= 1
        alone.append(lone)


def _encode_table(groups: list[_Group]) -> CodeTable:
    """Returns the table with words and symbols for groups that use all slots."""
    words: list[int] = []
    symbols = np.zeros((256, 4), np.uint32)
    start, at, n = 0, 0, 0
    while n < len(groups):
        symbol, share, count = groups[n]
        words += _skip_words(symbol - at)
        run = 1
        while (
            n + run < len(groups) and run < 1 << RUN_BITS and groups[n + run][1:] == [share, count]
            and groups[n + run][0] == symbol + (run << share)
        ):  # fmt: skip
            run += 1
        words.append(table_word(count, run, share))
        for first, *_ in groups[n : n + run]:
            for number in range(1 << share):
                symbols[(first + number) ^ FIRST_WEIGHT] = count, start, share, number
            start += count
        at, n = symbol + (run << share), n + run
    assert start == SLOTS, start
    return CodeTable(np.array(words, np.uint16), symbols)


def _skip_words(symbols: int) -> list[int]:
    """Returns the words that pass over `symbols` symbols without a code."""
    words = []
    while symbols:
        share = PART_BITS if symbols > 1 << RUN_BITS else 0
        run = min(1 << RUN_BITS, symbols >> share)
        words.append(table_word(0, run, share))
        symbols -= run << share
    return words
