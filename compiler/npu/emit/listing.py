"""Tile programs as text, one operation a line: the output of `--print-after tiles`.

Operations and fields are called as kernels call them (`tilewright.kernel.Chip`), where a kernel has a word for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from tilewright.compiler.npu.emit.tile_program import ADD_FIELDS, Operation, PostFields
from tilewright.isa.codes import CodeMode
from tilewright.isa.instructions import Memory, Rounding, RowFunction, Source, WideByte
from tilewright.isa.program import ARENA_REGION, CONSTANT_REGION

_REGIONS = {CONSTANT_REGION: "constants", ARENA_REGION: "arena"}
_OPERANDS = {
    Operation.GEMM: ("act", "wgt", "acc"),
    Operation.DEPTHWISE: ("act", "wgt", "acc"),
    Operation.VECTOR: ("a", "b", "dst", "prm"),
    Operation.VECTOR_WIDE: ("a", "b", "dst", "prm"),
    Operation.ROW: ("a", "stat", "dst", "prm"),
}
#: Kernels' words for operations, for VECTOR by its source, and for fields.
_NAMES = {Operation.GEMM: "matmul"}
_VECTORS = {
    Source.ACC: "requantise", Source.ACT: "apply", Source.MUL: "multiply", Source.MAX: "maximum", Source.SUM: "total",
}  # fmt: skip
_FIELDS = {"zp": "zero_point", "lo": "low", "hi": "high", "add_lo": "add_low", "add_hi": "add_high"}


def lines(tape: Sequence[int], marks: Sequence[tuple[int, str]] = ()) -> Iterator[str]:
    """Yields a line for each operation of a tile program, and one for each mark before its operation.

    Args:
        tape: numbers of the tile program.
        marks: (number of an operation, text), in order.
    """
    numbers, waiting = iter(tape), list(reversed(marks))
    for count, kind in enumerate(numbers):
        while waiting and waiting[-1][0] <= count:
            yield f"# {waiting.pop()[1]}"
        operation = Operation(kind)
        text = _FORMATTERS[operation](numbers)
        if operation is not Operation.VECTOR:
            text = f"{_NAMES.get(operation, operation.name.lower()):11} {text}"
        yield text


def _read(numbers: Iterator[int], count: int) -> list[int]:
    """Returns the next `count` numbers of a tile program."""
    return [int(number) for number in islice(numbers, count)]


def _load(numbers: Iterator[int]) -> str:
    region, offset, target, row, count = _read(numbers, 5)
    levels, pad = _levels(numbers), _read(numbers, 5)
    text = f"{Memory(target).name.lower()}={row} {count} rows from {_place(region, offset)}{levels}"
    return text + (" pad {} {} {} {} with {}".format(*pad) if any(pad[:4]) else "")


def _load_coded(numbers: Iterator[int]) -> str:
    region, offset, mode, row, count, beats = _read(numbers, 6)
    return f"{CodeMode(mode).name.lower()} wgt={row} {count} tiles from {_place(region, offset)}, {beats} beats"


def _fill(numbers: Iterator[int]) -> str:
    row, run, value, dims = _read(numbers, 4)
    pairs = [_read(numbers, 2) for _ in range(dims)]
    levels = "".join(f" {count} x (+{stride})" for count, stride in pairs if count != 1)
    return f"act={row} {run} rows{levels} with {value}"


def _store(numbers: Iterator[int]) -> str:
    region, offset, row, count = _read(numbers, 4)
    return f"act={row} {count} rows{_levels(numbers)} to {_place(region, offset)}"


def _gemm(numbers: Iterator[int]) -> str:
    act, wgt, acc, accumulate = _read(numbers, 4)
    more = " accumulate" if accumulate else ""
    return f"act={act} wgt={wgt} acc={acc}{more}{_nest(numbers, Operation.GEMM, 3)}"


def _depthwise(numbers: Iterator[int]) -> str:
    act, wgt, acc, *window, slices, delay, accumulate = _read(numbers, 10)
    more = " accumulate" if accumulate else ""
    shape = "start={0},{2} step={1},{3}".format(*window)
    text = f"act={act} wgt={wgt} acc={acc} {shape} slice={slices} delay={delay}{more}"
    return text + _nest(numbers, Operation.DEPTHWISE, 3)


def _vector(numbers: Iterator[int]) -> str:
    source, a, b, dst, prm, add, table, rounding = _read(numbers, 8)
    kind = Source(source)
    name = "add" if add and kind == Source.ACT else _VECTORS.get(kind, kind.name.lower())
    text = f"{name:11} a={a} b={b} dst={dst} prm={prm}"
    text += (" add" if add and name != "add" else "") + (f" table={table}" if table >= 0 else "")
    text += f" {Rounding(rounding).name.lower()}{_registers(numbers)}"
    return text + _nest(numbers, Operation.VECTOR, 4)


def _vector_wide(numbers: Iterator[int]) -> str:
    byte, a, dst, prm, low, high = _read(numbers, 6)
    text = f"{WideByte(byte).name.lower()} a={a} dst={dst} prm={prm} within {low}..{high}"
    return text + _nest(numbers, Operation.VECTOR_WIDE, 4)


def _row(numbers: Iterator[int]) -> str:
    function, a, prm, table, dst, tail, number, exponent = _read(numbers, 8)
    text = f"{RowFunction(function).name.lower()} a={a} dst={dst} prm={prm}"
    text += (f" table={table}" if table >= 0 else "") + f" tail={tail} number={number} exponent={exponent}"
    return text + _registers(numbers) + _nest(numbers, Operation.ROW, 4)


def _run(numbers: Iterator[int]) -> str:
    engine, low, high, _, work, reads, writes = _read(numbers, 7)
    _read(numbers, 5 * (reads + writes))
    return f"engine={engine} word={high & (1 << 64) - 1:016x}{low & (1 << 64) - 1:016x} work={work}"


def _place(region: int, offset: int) -> str:
    """Returns a place in external memory as text."""
    return f"{_REGIONS.get(region, f'region {region}')}+{offset:#x}"


def _levels(numbers: Iterator[int]) -> str:
    """Returns the two outer levels of a transfer as text, without those that run once."""
    levels = [_read(numbers, 3), _read(numbers, 3)]
    return "".join(f" {count} x (+{rows}, +{nbytes} B)" for count, rows, nbytes in levels if count != 1)


def _registers(numbers: Iterator[int]) -> str:
    """Returns the nonzero fields of VECTOR_POST and VECTOR_ADD as text, where they are set."""
    found = ""
    for name, fields in (("post", PostFields._fields), ("constants", ADD_FIELDS)):
        if next(numbers):
            values = zip(fields, _read(numbers, len(fields)), strict=True)
            pairs = ", ".join(f"{_FIELDS.get(field, field)}={value}" for field, value in values if value)
            found += f" {name}({pairs})"
    return found


def _nest(numbers: Iterator[int], operation: Operation, operands: int) -> str:
    """Returns the levels of a nest as text, innermost first: those of the sum, then the others."""
    counts, names = _read(numbers, 2), _OPERANDS[operation]
    found = ""
    for title, count in zip(("sum", "over"), counts, strict=True):
        levels = []
        for _ in range(count):
            times, *strides = _read(numbers, 1 + operands)
            if times != 1:
                steps = ", ".join(f"{name}+{step}" for name, step in zip(names, strides, strict=True) if step)
                levels.append(f"{times} x ({steps})")
        found += f" {title} {' '.join(levels)}" if levels else ""
    return found


#: Functions that read the fields of an operation behind its number, and return them as text.
_FORMATTERS: dict[Operation, Any] = {
    Operation.LOAD: _load, Operation.LOAD_PACKED: _load, Operation.LOAD_CODED: _load_coded, Operation.FILL: _fill,
    Operation.STORE: _store,
    Operation.GEMM: _gemm, Operation.DEPTHWISE: _depthwise, Operation.VECTOR: _vector,
    Operation.VECTOR_WIDE: _vector_wide, Operation.ROW: _row, Operation.RUN: _run,
}  # fmt: skip
