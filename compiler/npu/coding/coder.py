"""The weight coder: chooses the weights of a program that are coded, and their code tables.

The instructions are made twice. The first pass only collects the tiles of each load, in order; then tables and streams
are made; in the second pass every load asks for its part of the stream.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from msgspec import Struct, field

from tilewright.compiler.npu.coding.stream import encode_stream
from tilewright.compiler.npu.coding.table import CodeTable, make_table
from tilewright.isa.codes import SLOTS, START_ROUNDS, WORD_BITS
from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import BY_NAME
from tilewright.isa.timing import DEFAULT_MEMORY, MemoryTiming

#: Estimated words of a table; ratio of the size of coded weights to their entropy.
_TABLE_WORDS, _ENTROPY_OVERHEAD = 25, 1.02
#: Coding is worth it below these ratios of coded to plain cost, in bytes and in time: work that waits for the
#: first weights waits for the table too.
_MAX_BYTES_RATIO, _MAX_TIME_RATIO = 0.99, 0.94


class CodedLoad(Struct, frozen=True):
    """The stream of one LOAD_CODED.

    Attributes:
        offset: first byte in the stream of the step.
        beats: bus beats.
    """

    offset: int
    beats: int


class CodedWeights(Struct, frozen=True):
    """The LOAD_CODEDs that replace a load of weights.

    Attributes:
        table: the load of a table before it, None where the table before stays.
        weights: the load of the weights.
    """

    table: CodedLoad | None
    weights: CodedLoad


class _Step(Struct):
    """The loads of weights of one NPU step, which has a stream of its own.

    Attributes:
        keys: the layer of each load.
        tiles: the weights of each load, int8 [count, block_out, block_in].
        chosen: the coded form of each load, None where it stays as it is.
        stream: the bytes of all coded loads.
    """

    keys: list[Hashable] = field(default_factory=list)
    tiles: list[np.ndarray] = field(default_factory=list)
    chosen: list[CodedWeights | None] = field(default_factory=list)
    stream: bytes = b""


class WeightCoder(Struct):
    """Chooses and counts the coded weights of a program.

    Attributes:
        config: the machine.
        by_bytes: True to code weights where that saves bytes; False where it makes LOAD finish sooner.
        memory: timing of the memory that the program will run with.
        plain, coded: bytes of the weights that are coded, before and after, tables included.
        tables: number of code tables.
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
        """Returns one line about the coded weights for reports, empty where none are coded."""
        if not self.plain:
            return ""
        rest = f"; {self.all_plain - self.plain:,} bytes are not" if self.all_plain > self.plain else ""
        return (
            f"{self.plain:,} bytes of weights are coded in {self.coded:,} ({self.coded / self.plain:.3f}), with "
            f"{self.tables} table{'s' * (self.tables != 1)}{rest}"
        )

    @property
    def collects(self) -> bool:
        """True in the first pass, which only collects the loads."""
        return not self._planned

    def collect(self, layer: Hashable, tiles: np.ndarray) -> None:
        """Adds a load of a layer's weights, int8 [count, block_out, block_in], in the first pass."""
        step = self._steps[-1]
        step.keys.append(layer)
        step.tiles.append(tiles)

    def end_step(self) -> None:
        """Ends an NPU step: the next load belongs to another one."""
        if self.collects:
            self._steps.append(_Step())
        else:
            self._at = self._at[0] + 1, 0

    def plan(self) -> None:
        """Chooses the loads to code and makes their tables and streams, after the first pass.

        Raises:
            BuildError: there is no C++ compiler.
        """
        for step in self._steps:
            self._plan_step(step)
            self.all_plain += sum(t.size for t in step.tiles)
            step.tiles = []
        self._planned = True

    def next(self) -> tuple[CodedWeights | None, bytes]:
        """Returns the coded form of the next load in the second pass, None if it stays plain, and its step's stream."""
        at, number = self._at
        self._at = at, number + 1
        step = self._steps[at]
        return step.chosen[number], step.stream

    def _plan_step(self, step: _Step) -> None:
        """Chooses the coded loads of one step, and makes its stream."""
        step.chosen = [None] * len(step.tiles)
        runs = _loads_by_layer(step.keys)
        fits = [max(step.tiles[i].size for i in run) <= self._max_weights_per_load for run in runs]
        histograms = [
            np.bincount(np.concatenate([step.tiles[i].reshape(-1) for i in run]).view(np.uint8), minlength=256)
            for run in runs
        ]
        costs = [self._cost(_entropy(h[None]) * _ENTROPY_OVERHEAD, h.sum())[0] for h in histograms]
        kept = [n for n, (cost, h) in enumerate(zip(costs, histograms)) if cost < self._cost_limit(h) and fits[n]]
        loads: list[CodeTable | np.ndarray] = []
        numbers: list[int] = []  # numbers of the loads that are coded
        first: set[int] = set()  # numbers of the loads with a table before them
        for part in self._split_by_table(np.array([histograms[n] for n in kept]).reshape(-1, 256)):
            members = [kept[i] for i in part]
            histogram = np.sum([histograms[n] for n in members], axis=0)
            table = make_table(histogram)
            coded = self._cost(np.array([table.cost(histogram)]), histogram.sum())[0]
            if coded + self._table_cost >= self._cost_limit(histogram):
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
            step.chosen[i] = CodedWeights(table_load, load())
        step.stream = stream.data
        self.plain += sum(step.tiles[i].size for i in numbers)
        self.coded += len(stream.data)
        self.tables += len(first)

    @property
    def _max_weights_per_load(self) -> int:
        """The number of weights that always fit one LOAD_CODED: none takes more than a word."""
        return BY_NAME["LOAD_CODED"].by_name["beats"].maximum * self.config.bus_bytes * 8 // WORD_BITS

    @property
    def _memory_bytes_per_cycle(self) -> float:
        """The bytes that the memory delivers in a cycle."""
        return self.config.bus_bytes / self.memory.read_interval

    def _cost_limit(self, histogram: np.ndarray) -> float:
        """Returns the cost that coded weights with their table must stay below to be worth it.

        Args:
            histogram: number of weights, [256] by byte.
        """
        count = float(histogram.sum())
        return _MAX_BYTES_RATIO * count if self.by_bytes else _MAX_TIME_RATIO * count / self._memory_bytes_per_cycle

    def _cost(self, coded: np.ndarray, count: np.ndarray) -> np.ndarray:
        """Returns the cost of weights without their table: bytes, or cycles of the slower of bus and decoder.

        Args:
            coded: bytes of the coded weights.
            count: number of weights.
        """
        if self.by_bytes:
            return coded
        return np.maximum(coded / self._memory_bytes_per_cycle, count / self.config.weight_codes)

    @property
    def _table_cost(self) -> int:
        """The cost of a table: bytes of its words and of the lanes' first words, or a decoder cycle for each slot."""
        words = _TABLE_WORDS + START_ROUNDS * self.config.weight_codes
        return words * WORD_BITS // 8 if self.by_bytes else SLOTS

    def _split_by_table(self, histograms: np.ndarray) -> list[range]:
        """Returns the parts of a sequence that share a table each, so that the total cost is least.

        Args:
            histograms: numbers of weights, [n, 256] by byte.
        """
        count = len(histograms)
        sums = np.concatenate([np.zeros((1, 256)), histograms.cumsum(0)])
        best, previous = np.zeros(count + 1), np.zeros(count + 1, int)
        for end in range(1, count + 1):
            shared = sums[end] - sums[:end]
            totals = best[:end] + self._cost(_entropy(shared) * _ENTROPY_OVERHEAD, shared.sum(1)) + self._table_cost
            previous[end] = int(totals.argmin())
            best[end] = totals[previous[end]]
        parts: list[range] = []
        end = count
        while end:
            parts.append(range(int(previous[end]), end))
            end = int(previous[end])
        return parts[::-1]


def _loads_by_layer(keys: list[Hashable]) -> list[list[int]]:
    """Returns the numbers of the loads, in lists of consecutive loads of one layer."""
    runs: list[list[int]] = []
    for i, key in enumerate(keys):
        if i and keys[i - 1] == key:
            runs[-1].append(i)
        else:
            runs.append([i])
    return runs


def _entropy(histograms: np.ndarray) -> np.ndarray:
    """Returns the entropy in bytes of each histogram of [n, 256]. No symbol costs more than a quarter slot's bits."""
    total = histograms.sum(1, keepdims=True)
    share = np.maximum(histograms / np.maximum(total, 1), 1 / (4 * SLOTS))
    bits: np.ndarray = -(histograms * np.log2(share)).sum(1)
    return bits / 8
