"""Products of 16-bit activations with 8-bit weights, by LiteRT's reference kernels ("16x8")."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.compiler.graph.ops.convolution import kernel_error, products
from tilewright.compiler.graph.ops.quantized_op import Operands, Weighted, Windowed, shape_error
from tilewright.compiler.graph.tensor import Tensor

LOWEST, HIGHEST = -(1 << 15), (1 << 15) - 1
#: Products in one sum: that of the low bytes, up to 255 * 128 each, stays within int32.
MAX_PRODUCTS = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Wide(Weighted, abstract=True):
    """A sum of products of int16 activations and int8 weights, whose zero points are 0, with a bias of 64 bits.

    Attributes:
        low, high: limits of the result: a fused activation.
    """

    low: int = LOWEST
    high: int = HIGHEST

    def activation_error(self, tensor: Tensor) -> str | None:
        return None if tensor.dtype == np.int16 else f"{tensor.name} is {tensor.dtype}, not int16"


@dataclass(frozen=True, kw_only=True)
class QConv16(Wide, Windowed):
    """Convolution: x int16 [N,C,spatial], w constant int8 [O,C/group,kernel], optional bias int64 [O].

    `sat((sum * m + 2^(t-1)) >> t)`, see `tilewright.isa.wide_numerics.requantize_wide`.

    Attributes:
        multipliers: m of each output channel, of 15 bits.
        shifts: t of each output channel.
    """

    multipliers: tuple[int, ...]
    shifts: tuple[int, ...]
    group: int = 1

    def check_product(self, x: Tensor, w: Tensor, bias: Tensor | None, result: Tensor) -> str | None:
        return (
            kernel_error(x, w, self.kernel, self.group)
            or _weights_error(w, bias, w.shape[0], w.size // w.shape[0])
            or _length_error(w.shape[0], multipliers=self.multipliers, shifts=self.shifts)
            or shape_error(result, (x.shape[0], w.shape[0], *self.positions(x.shape[2:])))
        )

    def macs(self, operands: Operands, result: Tensor) -> int:
        return products(operands, result)


@dataclass(frozen=True, kw_only=True)
class QMatMul16(Wide):
    """Matrix product: x int16 [M,K], w constant int8 [K,N], optional bias int64 [N].

    `sat(round(f64(sum) * factor))`, ties away from zero, see `tilewright.isa.wide_numerics.requantize_wide_product`.

    Attributes:
        factors: float64 `sx * sw / sy` of each column.
    """

    factors: tuple[float, ...]

    def check_product(self, x: Tensor, w: Tensor, bias: Tensor | None, result: Tensor) -> str | None:
        if len(x.shape) != 2 or len(w.shape) != 2 or x.shape[1] != w.shape[0]:
            return f"product of {list(x.shape)} and {list(w.shape)}"
        n = w.shape[1]
        return (
            _weights_error(w, bias, n, w.shape[0])
            or _length_error(n, factors=self.factors)
            or shape_error(result, (x.shape[0], n))
        )

    def macs(self, operands: Operands, result: Tensor) -> int:
        x = operands[0]
        assert x is not None
        return result.size * x.shape[-1]


def _weights_error(w: Tensor, bias: Tensor | None, channels: int, products: int) -> str | None:
    if w.dtype != np.int8 or w.data is None:
        return f"weights {w.name} are no int8 constant"
    if products > MAX_PRODUCTS:
        return f"{products} products in a sum; up to {MAX_PRODUCTS} are accepted"
    if bias is not None and (bias.dtype != np.int64 or bias.shape != (channels,)):
        return f"bias {bias.name} is {bias.dtype}{list(bias.shape)}, not int64[{channels}]"
    return None


def _length_error(channels: int, **values: tuple[float, ...]) -> str | None:
    wrong = [f"{len(v)} {name}" for name, v in values.items() if len(v) != channels]
    return f"{' and '.join(wrong)} for {channels} channels" if wrong else None
