"""A TOSA program as records: what the importer reads, whatever parsed it. Values are numbered across the program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from msgspec import Struct, field

#: Types of elements, by MLIR's name. A 48-bit integer is held in 64 bits, and one of 4 bits in 8.
Shapes = Mapping[str, Sequence[int]]

DTYPES: dict[str, np.dtype[Any]] = {
    "i1": np.dtype(np.bool_), "i4": np.dtype(np.int8), "i8": np.dtype(np.int8), "ui8": np.dtype(np.uint8),
    "i16": np.dtype(np.int16), "ui16": np.dtype(np.uint16), "i32": np.dtype(np.int32), "i48": np.dtype(np.int64),
    "i64": np.dtype(np.int64), "index": np.dtype(np.int64), "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16), "f64": np.dtype(np.float64), "bf16": np.dtype(ml_dtypes.bfloat16),
}  # fmt: skip


class TypeOf(Struct, frozen=True):
    """The type of a value.

    Attributes:
        element: MLIR's name of the element's type; "shape" for `!tosa.shape`.
        shape: sizes; -1 where they are left open.
    """

    element: str
    shape: tuple[int, ...]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy type of the elements."""
        return DTYPES[self.element]

    def __str__(self) -> str:
        sizes = "x".join("?" if n < 0 else str(n) for n in self.shape)
        return f"tensor<{sizes}{'x' if sizes else ''}{self.element}>"


class TosaOp(Struct):
    """An operation.

    Attributes:
        name: without the dialect: "conv2d".
        operands, results: numbers of values.
        attrs: attributes as Python values: numbers, strings, booleans, lists of integers, arrays.
        blocks: one block per region.
        line: line of the text, from 1; 0 where it is not known.
    """

    name: str
    operands: list[int]
    results: list[int]
    attrs: dict[str, Any]
    blocks: list[Block] = field(default_factory=list)
    line: int = 0

    @property
    def label(self) -> str:
        """The op and its place, for messages."""
        return f"line {self.line}: tosa.{self.name}"


class Block(Struct):
    """Operations in order.

    Attributes:
        arguments, returns: numbers of values.
    """

    arguments: list[int]
    ops: list[TosaOp]
    returns: list[int]

    def all_ops(self) -> Iterator[TosaOp]:
        """The operations, those of blocks inside included."""
        for op in self.ops:
            yield op
            for block in op.blocks:
                yield from block.all_ops()


class TosaModule(Struct):
    """A program of one function.

    Attributes:
        name: name of the function.
        body: its operations.
        types: type by number of the value.
        constants: value by number, where it is known.
        inputs, outputs: names of arguments and results.
        open: whether the text leaves the batch open.
    """

    name: str
    body: Block
    types: list[TypeOf]
    constants: dict[int, np.ndarray]
    inputs: list[str]
    outputs: list[str]
    open: bool = False


class Run(Struct):
    """Operations without control flow among them, as a node of an ONNX model holds them.

    Attributes:
        ops: the operations.
        types: type by number of the value.
        reads, makes: numbers of the values from outside, and of those that others read.
        wanted: zero points with which 8-bit values are read, by number.
    """

    ops: list[TosaOp]
    types: dict[int, TypeOf]
    reads: list[int]
    makes: list[int]
    wanted: dict[int, int]
