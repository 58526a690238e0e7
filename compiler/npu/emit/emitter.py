"""The emitter: layers write their loads, stores, products and VECTOR passes with it, as loop nests."""

from __future__ import annotations

import functools
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from tilewright.compiler.npu.emit import assembler, listing, structs
from tilewright.compiler.npu.emit.spaces import sizes
from tilewright.compiler.npu.emit.tile_program import ADD_FIELDS, ONCE, Level, Loop, Operation, Place, PostFields
from tilewright.isa.codes import CodeMode
from tilewright.isa.config import NpuConfig
from tilewright.isa.fields import INSTRUCTION_BYTES
from tilewright.isa.instructions import Engine, Memory, Rounding, RowFunction, Source, WideByte
from tilewright.isa.timing import DEFAULT_MEMORY, MemoryTiming


class Emitter:
    """Writes one model's instructions, step by step.

    Args:
        config: the machine.
        arena_bytes: size of the arena region in bytes, for hazards.
        dry: True to count work only and emit nothing.
        memory: timing of the memory that the program will run with.

    Attributes:
        image: all instructions so far, `INSTRUCTION_BYTES` each.
        read_bytes, write_bytes: bytes of memory that all loads and stores so far read and write, but for those that are
            counted more than once or were recorded.
        position: operations of this step so far.
        later: instructions of the steps without their loads of weights, for runs that find them in WGT; None where none
            are made.
        listing: a list to which complete steps append their tile programs as lines of text; None for no listing.
        lines: function that makes the lines of a step, `tilewright.compiler.npu.emit.listing.lines`.
    """

    def __init__(
        self, config: NpuConfig, arena_bytes: int, dry: bool = False, memory: MemoryTiming = DEFAULT_MEMORY
    ) -> None:
        self.config, self.arena_bytes, self.memory = config, arena_bytes, memory
        self.dry = dry
        self.image = bytearray()
        self.later: bytearray | None = None
        self.read_bytes = self.write_bytes = self.position = 0
        self.listing: list[str] | None = None
        self.lines = listing.lines
        self._marks: list[tuple[int, str]] = []
        self._parts: list[np.ndarray] = []  # the tape up to `_tape`
        self._tape: list[int] = []
        self._work = dict.fromkeys(Engine, 0)
        self._row_bytes = [memory.row_bytes(config) for memory in Memory]

    @functools.cached_property
    def machine(self) -> structs.Assembler:
        """The machine as the assembler's C++ reads it."""
        return structs.assembler(self.config, sizes(self.config, self.arena_bytes), self.memory)

    @property
    def tape(self) -> np.ndarray:
        """The tile program of this step so far, int64 [numbers]."""
        return np.concatenate([*self._parts, _as_array(self._tape)])

    @property
    def numbers(self) -> int:
        """The length of the tile program of this step so far."""
        return sum(map(len, self._parts)) + len(self._tape)

    @property
    def length(self) -> int:
        """The number of instructions of all complete steps."""
        return len(self.image) // INSTRUCTION_BYTES

    @property
    def work(self) -> dict[Engine, int]:
        """The work of this step by engine, in steps or bus cycles; if work is only counted, since `forget_work`."""
        if not self.dry:
            return assembler.count_work(self.machine, array("q", self.tape.tobytes()))
        if self._tape:
            for engine, work in assembler.count_work(self.machine, array("q", self._tape)).items():
                self._work[engine] += work
            self._tape.clear()
        return self._work

    def forget_work(self) -> None:
        """Sets the counted work to 0."""
        self._tape.clear()
        self._work = dict.fromkeys(Engine, 0)

    def append(self, tape: np.ndarray, operations: int) -> None:
        """Appends `operations` operations of a tile program, int64 [numbers], whose bytes are not counted."""
        self._parts += [_as_array(self._tape), tape]
        self._tape.clear()
        self.position += operations

    def mark(self, text: str) -> None:
        """Adds a line of text to the listing, before the next operation, in place of one that is there already."""
        if self.listing is not None:
            if self._marks and self._marks[-1][0] == self.position:
                self._marks.pop()
            if self._marks and self._marks[-1][1] == text:
                return
            self._marks.append((self.position, text))

    def end_step(self) -> list[int]:
        """Assembles an NPU step, and closes it with END.

        Returns:
            The number of the first instruction of each operation in the image, and of END. Instructions that the
                assembler moved ahead count as before an operation. Empty if work is only counted.

        Raises:
            AssemblyError: the assembler cannot encode the tile program.
        """
        self.position = 0
        if self.dry:
            return []
        first = self.length
        tape = self.tape
        image, begins = assembler.assemble(self.machine, tape)
        if self.later is not None:
            machine = structs.assembler(self.config, sizes(self.config, self.arena_bytes), self.memory)
            machine.weights_stay = 1
            self.later += assembler.assemble(machine, tape)[0]
        if self.listing is not None:
            self.listing += self.lines(tape.tolist(), self._marks)
        self._marks.clear()
        self._tape.clear()
        self._parts.clear()
        self.image += image
        return [first + begin for begin in (*begins, len(image) // INSTRUCTION_BYTES - 1)]

    @contextmanager
    def repeated(self, times: int) -> Iterator[None]:
        """Counts the work inside `times` times; for an emitter that only counts."""
        assert self.dry
        work = dict(self.work)
        yield
        now = self.work
        for engine in now:
            now[engine] += (times - 1) * (now[engine] - work[engine])

    # Transfers.

    def load(
        self,
        place: Place,
        target: Memory,
        row: int,
        count: int,
        *,
        y: Level = ONCE,
        z: Level = ONCE,
        pad: tuple[int, int, int, int] = (0, 0, 0, 0),
        fill: int = 0,
        packed: bool = False,
    ) -> None:
        """Writes a LOAD of rows that are contiguous in memory, repeated along `y` and `z`.

        Args:
            place: first byte in external memory.
            target, row: scratchpad and its first row.
            count: rows of a run.
            y, z: outer levels of the transfer.
            pad: rows to fill to the left and right of every run, and runs of them above and below.
            fill: value of padding.
            packed: True if the rows are tiles of weights that lie in memory two a byte.
        """
        self.position += 1
        self.read_bytes += count * y[0] * z[0] * self._row_bytes[target] // (2 if packed else 1)
        self._tape += (
            Operation.LOAD_PACKED if packed else Operation.LOAD,
            *place,
            target,
            row,
            count,
            *y,
            *z,
            *pad,
            fill,
        )

    def load_coded(self, place: Place, mode: CodeMode, row: int, count: int, beats: int) -> None:
        """Writes a LOAD_CODED of `beats` bus beats: `count` tiles from `row` of WGT on, or a table."""
        self.position += 1
        self.read_bytes += beats * self.config.bus_bytes
        self._tape += (Operation.LOAD_CODED, *place, mode, row, count, beats)

    def fill(self, row: int, dims: Sequence[tuple[int, int]], run: int, value: int) -> None:
        """Writes a fill of ACT rows with `value`: `run` rows at every index of up to two (count, stride) dims."""
        self.position += 1
        self._tape += (Operation.FILL, row, run, value, len(dims))
        for dim in dims:
            self._tape += dim

    def store(self, place: Place, row: int, count: int, *, y: Level = ONCE, z: Level = ONCE) -> None:
        """Writes a STORE from ACT of `count` rows that are contiguous in memory, repeated along `y` and `z`."""
        self.position += 1
        self.write_bytes += count * y[0] * z[0] * self.config.block_in
        self._tape += (Operation.STORE, *place, row, count, *y, *z)

    # Products.

    def gemm(
        self,
        act: int,
        wgt: int,
        acc: int,
        reduce: Sequence[Loop],
        outer: Sequence[Loop],
        *,
        accumulate: bool = False,
    ) -> None:
        """Writes a GEMM nest, which becomes several instructions if it has too many levels.

        Args:
            act, wgt, acc: first rows of ACT, WGT and ACC.
            reduce, outer: loops (count, act, wgt, acc) of a sum, and around it.
            accumulate: True to add to the contents of ACC.
        """
        self._tape += (Operation.GEMM, act, wgt, acc, accumulate)
        self._nest(reduce, outer)

    def depthwise(
        self,
        act: int,
        wgt: int,
        acc: int,
        loops: Sequence[Loop],
        *,
        start: tuple[int, int],
        step: tuple[int, int],
        lanes_slice: int,
        delay: int,
        accumulate: bool,
    ) -> None:
        """Writes a DEPTHWISE nest.

        Args:
            act, wgt, acc: first row of ACT and WGT, and first vector of `dw_lanes` sums in ACC.
            loops: levels (count, act, wgt, acc); the first two, pushes of a line and lines, are never folded.
            start, step: pushes before the first output, and from one output to the next, along and across the lines.
            lanes_slice: slice of the input lanes.
            delay: pushes that a delay line delays by.
            accumulate: True to add to the contents of ACC.
        """
        self._tape += (
            Operation.DEPTHWISE, act, wgt, acc, start[0], step[0], start[1], step[1], lanes_slice, delay, accumulate
        )  # fmt: skip
        self._nest((), loops)

    # Vectors.

    def vector(
        self,
        source: Source,
        a: int,
        dst: int,
        loops: Sequence[Loop],
        *,
        b: int = 0,
        prm: int = 0,
        reduce: Sequence[Loop] = (),
        add: bool = False,
        lut: int | None = None,
        rounding: Rounding = Rounding.EVEN,
        post: PostFields | None = None,
        constants: Mapping[str, int] | None = None,
    ) -> None:
        """Writes a VECTOR nest. Loops are (count, a, b, dst, prm).

        Args:
            source: the source of values and their reduction.
            a, b, dst, prm: first rows of both operands, the result and the parameters.
            loops, reduce: loops over results, and over the values of one result.
            add: True to add operand b by VECTOR_ADD.
            lut: number of the table, None for no table.
            rounding: rounding of the requantiser.
            post, constants: fields of VECTOR_POST and VECTOR_ADD; None leaves the registers as they are.
        """
        table = -1 if lut is None else lut
        self._tape += (Operation.VECTOR, source, a, b, dst, prm, add, table, rounding)
        self._registers(post, constants)
        self._nest(reduce, loops)

    def vector_wide(
        self,
        byte: WideByte,
        a: int,
        dst: int,
        loops: Sequence[Loop],
        *,
        prm: int,
        reduce: Sequence[Loop],
        low: int,
        high: int,
    ) -> None:
        """Writes a VECTOR_WIDE nest for one byte of 16-bit results. Loops are (count, a, b, dst, prm); b is not used.

        Args:
            byte: the byte of the results.
            a, dst, prm: first rows of the sums, the result and the parameters.
            loops: loops over results.
            reduce: the sums of the values' bytes, the high one first.
            low, high: limits of the 16-bit results.
        """
        self._tape += (Operation.VECTOR_WIDE, byte, a, dst, prm, low, high)
        self._nest(reduce, loops)

    def row(
        self,
        function: RowFunction,
        a: int,
        loops: Sequence[Loop],
        *,
        prm: int,
        table: int | None = None,
        dst: int = 0,
        reduce: Sequence[Loop] = (),
        tail: int = 0,
        number: int = 0,
        exponent: int = 0,
        post: PostFields | None = None,
        constants: Mapping[str, int] | None = None,
    ) -> None:
        """Writes a ROW nest. Loops are those of `vector`, as many as the machine has; their second stride is for STAT.

        Args:
            function: the function of ROW.
            table: number of the first of the tables that hold words, for functions that read them.
            reduce: the vectors of a row.
            constants: fields of VECTOR_ADD. The other arguments are fields of ROW and VECTOR_POST.
        """
        number_of_table = -1 if table is None else table
        self._tape += (Operation.ROW, function, a, prm, number_of_table, dst, tail, number, exponent)
        self._registers(post, constants)
        self._nest(reduce, loops)

    def _registers(self, post: PostFields | None, constants: Mapping[str, int] | None) -> None:
        """Writes the fields of VECTOR_POST and VECTOR_ADD where they are given."""
        self._tape += (False,) if post is None else (True, *post)
        self._tape += (False,) if constants is None else (True, *(constants.get(name, 0) for name in ADD_FIELDS))

    def _nest(self, reduce: Sequence[Loop], outer: Sequence[Loop]) -> None:
        """Writes the levels of a nest, and ends the operation."""
        tape = self._tape
        tape += (len(reduce), len(outer))
        for loop in reduce:
            tape += loop
        for loop in outer:
            tape += loop
        self.position += 1


def _as_array(tape: list[int]) -> np.ndarray:
    """Returns a tape as int64 [numbers]; this is faster than `np.array`."""
    return np.frombuffer(array("q", tape), np.int64)
