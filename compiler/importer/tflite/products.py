"""Convolutions and products by weights in each number system: bytes, floats, 16 bits."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from tilewright.compiler.graph.graph import Quant
from tilewright.compiler.graph.ops import QuantizedOp
from tilewright.compiler.importer.tflite.builder import TfliteBuilder
from tilewright.compiler.importer.tflite.windows import Window


class Products(ABC):
    """Convolutions and products of activations by the weights of input 1, in one number system.

    The methods emit the op's nodes and make its output; shapes and windows have been checked before. They raise
    UnsupportedError for types and scales that are not accepted.

    Args:
        b: the graph's builder, at the op.

    Attributes:
        bias_type: type of the bias.
    """

    bias_type: np.dtype = np.dtype(np.int32)

    def __init__(self, b: TfliteBuilder) -> None:
        self.b = b

    @abstractmethod
    def convolution(self, window: Window) -> None:
        """Makes the convolution of input 0."""

    @abstractmethod
    def transposed(self, window: Window) -> None:
        """Makes the transposed convolution of input `window.x`."""

    @abstractmethod
    def product(self, rows: int, out: tuple[int, ...]) -> None:
        """Makes the product of input 0 as [rows,K] by the weights [N,K], and then of shape `out`."""

    def _rows(self, rows: int, k: int) -> str:
        """Input 0 as [rows,k]."""
        x = self.b.value(0)
        if self.b.shape(0) == (rows, k):
            return x
        return self.b.moved("Reshape", [x, self.b.constant("shape", [rows, k], np.int64)], {"allowzero": 1})

    def _made(self, op: QuantizedOp, inputs: list[str], rows: int, out: tuple[int, ...]) -> None:
        """Emits a product of rows as the result, reshaped where that has another shape."""
        b, y = self.b, self.b.result(out)
        shape = rows, b.shape(1)[0]
        flat = y if out == shape else b.graph.like(b.graph.tensor(y), y, shape)
        b.quantized(op, inputs, flat)
        if flat != y:
            b.reshaped(flat, out, y)

    def _constant(self, weights: np.ndarray, quant: Quant | None = None) -> str:
        return self.b.constant(self.b.source(1).name, np.ascontiguousarray(weights), None, quant)

    def _bias(self, k: int, channels: int) -> list[str]:
        """The constant bias as input `k`, or nothing where it is left out."""
        b = self.b
        if not b.has(k):
            return []
        t, data = b.source(k), b.const(k, "bias")
        if data.dtype != self.bias_type or data.size != channels:
            raise b.refuse(f"bias {t.name!r} is {t.type_name}{list(t.shape)}; {self.bias_type}[{channels}] is accepted")
        return [b.constant(t.name, data.reshape(-1))]
