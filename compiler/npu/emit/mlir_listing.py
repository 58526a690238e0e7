"""Tile programs as MLIR text in its generic form: a function per NPU step, an operation of the dialect per operation.

Fields are those of `tilewright.compiler.npu.emit.tile_program`, under their names there. A level of a loop nest is an
array: how often, then the stride of each operand; levels are innermost first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from tilewright.common.text import one_line
from tilewright.compiler.mlir.attributes import dictionary, quoted
from tilewright.compiler.npu.emit.tile_program import ADD_FIELDS, Operation, PostFields
from tilewright.isa.codes import CodeMode
from tilewright.isa.instructions import Memory, Rounding, RowFunction, Source, WideByte
from tilewright.isa.program import ARENA_REGION, CONSTANT_REGION

_REGIONS = {CONSTANT_REGION: "constants", ARENA_REGION: "arena"}
#: Fields in front of what has a length of its own.
_LOAD = ("region", "offset", "memory", "row", "count")
_FIELDS = {
    Operation.LOAD: _LOAD,
    Operation.LOAD_PACKED: _LOAD,
    Operation.LOAD_CODED: ("region", "offset", "mode", "row", "count", "beats"),
    Operation.FILL: ("row", "run", "value"),
    Operation.STORE: ("region", "offset", "row", "count"),
    Operation.GEMM: ("act", "wgt", "acc", "accumulate"),
    Operation.DEPTHWISE: (
        "act", "wgt", "acc", "start_along", "step_along", "start_across", "step_across", "slice", "delay", "accumulate",
    ),
    Operation.VECTOR: ("source", "a", "b", "dst", "prm", "add", "table", "rounding"),
    Operation.VECTOR_WIDE: ("byte", "a", "dst", "prm", "low", "high"),
    Operation.ROW: ("function", "a", "prm", "table", "dst", "tail", "number", "exponent"),
    Operation.RUN: ("engine", "low", "high", "movable", "work", "reads", "writes"),
}  # fmt: skip
#: Number of operands that a nest has strides of.
_OPERANDS = {Operation.GEMM: 3, Operation.DEPTHWISE: 3, Operation.VECTOR: 4, Operation.VECTOR_WIDE: 4, Operation.ROW: 4}
_CHOICES: dict[str, Any] = {
    "memory": Memory, "mode": CodeMode, "source": Source, "rounding": Rounding, "byte": WideByte,
    "function": RowFunction,
}  # fmt: skip
_FLAGS = ("accumulate", "add", "movable")


class TileWriter:
    """Writes the steps of one program; their functions are numbered."""

    def __init__(self) -> None:
        self._steps = 0

    def lines(self, tape: Sequence[int], marks: Sequence[tuple[int, str]] = ()) -> Iterator[str]:
        """Yields the lines of the function of a step.

        Args:
            tape: numbers of the tile program.
            marks: (number of an operation, text), in order; they become comments.
        """
        yield '"func.func"() ({'
        numbers, waiting = iter(tape), list(reversed(marks))
        for count, kind in enumerate(numbers):
            while waiting and waiting[-1][0] <= count:
                yield f"  // {one_line(waiting.pop()[1])}"
            operation = Operation(kind)
            entries = dictionary(_entries(operation, numbers))
            yield f'  "tilewright.{operation.name.lower()}"() {entries} : () -> ()'
        yield '  "func.return"() : () -> ()'
        yield f"}}) {{sym_name = {quoted(f'step_{self._steps}')}, function_type = () -> ()}} : () -> ()"
        self._steps += 1


def _entries(operation: Operation, numbers: Iterator[int]) -> dict[str, Any]:
    """The fields of an operation behind its number, by name."""
    names = _FIELDS[operation]
    found: dict[str, Any] = dict(zip(names, _read(numbers, len(names)), strict=True))
    if operation in (Operation.LOAD, Operation.LOAD_PACKED, Operation.STORE):
        found["levels"] = [tuple(_read(numbers, 3)) for _ in range(2)]
    if operation in (Operation.LOAD, Operation.LOAD_PACKED):
        *found["pad"], found["pad_value"] = _read(numbers, 5)
        found["pad"] = tuple(found["pad"])
    if operation is Operation.FILL:
        found["levels"] = [tuple(_read(numbers, 2)) for _ in range(*_read(numbers, 1))]
    if operation is Operation.RUN:
        found["reads"], found["writes"] = ([tuple(_read(numbers, 5)) for _ in range(found[k])] for k in names[-2:])
    if operation in (Operation.VECTOR, Operation.ROW):
        for name, fields in (("post", PostFields._fields), ("constants", ADD_FIELDS)):
            if next(numbers):
                found[name] = dict(zip(fields, _read(numbers, len(fields)), strict=True))
    if operation in _OPERANDS:
        counts = _read(numbers, 2)
        for name, count in zip(("sum", "over"), counts, strict=True):
            found[name] = [tuple(_read(numbers, 1 + _OPERANDS[operation])) for _ in range(count)]
    return {name: _named(name, value) for name, value in found.items()}


def _named(name: str, value: Any) -> Any:
    """The value of a field: its name where it is one of several, true or false where it says whether."""
    if name in _CHOICES:
        return _CHOICES[name](value).name.lower()
    if name == "region":
        return _REGIONS.get(value, value)
    return bool(value) if name in _FLAGS else value


def _read(numbers: Iterator[int], count: int) -> list[int]:
    """Returns the next `count` numbers of a tile program."""
    return [int(number) for number in islice(numbers, count)]
