"""Coder: chooses the weights of a program that are coded, and their tables, before its instructions are written.

The instructions are made twice. The first time only says which tiles are loaded, in which order; then tables and
streams are made; the second time every load asks what became of it.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np

from tilewright.compiler.npu.coding.stream import encode_stream
from tilewright.compiler.npu.coding.table import Table, make_table
from tilewright.isa.codes import SLOTS, START_ROUNDS, WORD_BITS
from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import BY_NAME
from tilewright.isa.timing import DEFAULT_MEMORY, MemoryTiming

#: Words of a table, more or less; what coded weights take beyond their entropy.
_TABLE_WORDS, _LOSS = 25, 1.02
#: Coding is worth it if no more than this of what plain weights cost is left, in bytes and in time: what waits for the
#: first weights waits for the table too.
_WORTH_BYTES, _WORTH_TIME = 0.99, 0.94


@dataclass(frozen=True)
class CodedLoad:
    """A LOAD_CODED: where its beats are in the stream of the step, and how many."""

    offset: int
    beats: int


@dataclass(frozen=True)
class Chosen:
    """A load of weights that becomes a LOAD_CODED, with one for a table before it where that changes."""

    table: CodedLoad | None
    weights: CodedLoad


@dataclass
class _Step:
    """An NPU step, whose streams begin anew."""

    keys: list[Hashable] = field(default_factory=list)
    tiles: list[np.ndarray] = field(default_factory=list)
    chosen: list[Chosen | None] = field(default_factory=list)
    stream: bytes = b""


@dataclass
class WeightCoder:
    """The coded weights of a program.

    Attributes:
        by_bytes: weights are coded where that saves bytes; otherwise, where LOAD is done sooner.
        plain, coded: bytes of the weights that are coded, and what became of them, tables included.
        tables: how many.
        all_plain: bytes of all weights that are loaded.
    """

    config: NpuConfig
    by_bytes: bool = False
    memory: MemoryTiming = DEFAULT_MEMORY
    plain: int = 0
    coded: int = 0
    tables: int = 0
    all_plain: int = 0
    _steps: list[_Step] = field(default_factory=lambda: [_Step()])
    _at: tuple[int, int] = (0, 0)
    _planned: bool = False

    def describe(self) -> str:
        """One line for people, empty where nothing is coded."""
        if not self.plain:
            return ""
        rest = f"; {self.all_plain - self.plain:,} bytes are not" if self.all_plain > self.plain else ""
        return (
            f"{self.plain:,} bytes of weights are coded in {self.coded:,} ({self.coded / self.plain:.3f}), with "
            f"{self.tables} table{'s' * (self.tables != 1)}{rest}"
        )

    @property
    def collects(self) -> bool:
        """True while instructions are made the first time."""
        return not self._planned

    def collect(self, layer: Hashable, tiles: np.ndarray) -> None:
        """A load of a layer's weights, int8 [count, block_out, block_in]."""
        step = self._steps[-1]
        step.keys.append(layer)
        step.tiles.append(tiles)

    def end_step(self) -> None:
        """The next load is in another step."""
        if self.collects:
            self._steps.append(_Step())
        else:
            self._at = self._at[0] + 1, 0

    def plan(self) -> None:
        """Chooses, and makes the streams.

        Raises:
            BuildError: no C++ compiler.
        """
        for step in self._steps:
            self._plan_step(step)
            self.all_plain += sum(t.size for t in step.tiles)
            step.tiles = []
        self._planned = True

    def next(self) -> tuple[Chosen | None, bytes]:
        """Returns the choice for the next load, None if it stays as it is, and the stream of its step."""
        at, number = self._at
        self._at = at, number + 1
        step = self._steps[at]
        return step.chosen[number], step.stream

    def _plan_step(self, step: _Step) -> None:
        step.chosen = [None] * len(step.tiles)
        runs = _runs(step.keys)
        fits = [max(step.tiles[i].size for i in run) <= self._most for run in runs]
        histograms = [
            np.bincount(np.concatenate([step.tiles[i].reshape(-1) for i in run]).view(np.uint8), minlength=256)
            for run in runs
        ]
        prices = [self._price(_entropy(h[None]) * _LOSS, h.sum())[0] for h in histograms]
        kept = [n for n, (price, h) in enumerate(zip(prices, histograms)) if price < self._plain(h) and fits[n]]
        loads: list[Table | np.ndarray] = []
        numbers: list[int] = []  # of the loads that are coded
        first: set[int] = set()  # those with a table before them
        for part in self._share_tables(np.array([histograms[n] for n in kept]).reshape(-1, 256)):
            members = [kept[i] for i in part]
            histogram = np.sum([histograms[n] for n in members], axis=0)
            table = make_table(histogram)
            coded = self._price(np.array([table.cost(histogram)]), histogram.sum())[0]
            if coded + self._table_price >= self._plain(histogram):
                continue
            here = [i for n in members for i in runs[n]]
            first.add(here[0])
            loads += [table, *(step.tiles[i] for i in here)]
            numbers += here
        if not loads:
            return
        stream = encode_stream(self.config, loads)
        at, beats = 0, iter(stream.beats)

        def load() -> CodedLoad:
            nonlocal at
            found = CodedLoad(at, next(beats))
            at += found.beats * self.config.bus_bytes
            return found

        for i in numbers:
            table_load = load() if i in first else None
            step.chosen[i] = Chosen(table_load, load())
        step.stream = stream.data
        self.plain += sum(step.tiles[i].size for i in numbers)
        self.coded += len(stream.data)
        self.tables += len(first)

    @property
    def _most(self) -> int:
        """Weights an instruction may load whatever they are: none takes more than a word."""
        return BY_NAME["LOAD_CODED"].by_name["beats"].maximum * self.config.bus_bytes * 8 // WORD_BITS

    @property
    def _rate(self) -> float:
        """Bytes the memory gives in a cycle."""
        return self.config.bus_bytes / self.memory.read_interval

    def _plain(self, histogram: np.ndarray) -> float:
        """Returns the most that coded weights may cost, with their table, to be better than plain ones."""
        count = float(histogram.sum())
        return _WORTH_BYTES * count if self.by_bytes else _WORTH_TIME * count / self._rate

    def _price(self, coded: np.ndarray, count: np.ndarray) -> np.ndarray:
        """Returns the cost of `count` weights that take `coded` bytes: these, or the cycles of the bus or the
        decoder."""
        if self.by_bytes:
            return coded
        return np.maximum(coded / self._rate, count / self.config.weight_codes)

    @property
    def _table_price(self) -> int:
        """Returns the cost of a table: its words and those the lanes begin with, or a cycle a slot, longer than these
        take."""
        words = _TABLE_WORDS + START_ROUNDS * self.config.weight_codes
        return words * WORD_BITS // 8 if self.by_bytes else SLOTS

    def _share_tables(self, histograms: np.ndarray) -> list[range]:
        """Parts of a sequence of [n, 256] that share a table each, so that all costs least."""
        count = len(histograms)
        sums = np.concatenate([np.zeros((1, 256)), histograms.cumsum(0)])
        best, came = np.zeros(count + 1), np.zeros(count + 1, int)
        for end in range(1, count + 1):
            shared = sums[end] - sums[:end]
            totals = best[:end] + self._price(_entropy(shared) * _LOSS, shared.sum(1)) + self._table_price
            came[end] = int(totals.argmin())
            best[end] = totals[came[end]]
        parts: list[range] = []
        end = count
        while end:
            parts.append(range(int(came[end]), end))
            end = int(came[end])
        return parts[::-1]


def _runs(keys: list[Hashable]) -> list[list[int]]:
    """Loads of one layer that follow each other."""
    runs: list[list[int]] = []
    for i, key in enumerate(keys):
        if i and keys[i - 1] == key:
            runs[-1].append(i)
        else:
            runs.append([i])
    return runs


def _entropy(histograms: np.ndarray) -> np.ndarray:
    """Bytes by the entropy of each [n, 256], no symbol costing more than a slot in four tells."""
    total = histograms.sum(1, keepdims=True)
    share = np.maximum(histograms / np.maximum(total, 1), 1 / (4 * SLOTS))
    bits: np.ndarray = -(histograms * np.log2(share)).sum(1)
    return bits / 8
