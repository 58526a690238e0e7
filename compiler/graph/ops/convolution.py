"""Convolutions with constant weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.compiler.graph.ops.quantized_op import Clamped, Operands, Weighted, Windowed, shape_error, weights_error
from tilewright.compiler.graph.tensor import Tensor


def kernel_error(x: Tensor, w: Tensor, kernel: tuple[int, ...], group: int) -> str | None:
    """The error in x [N,C,spatial] and w [O,C/group,kernel] of a convolution, None if there is none."""
    if w.shape[2:] != kernel or w.shape[1] * group != x.shape[1]:
        return f"weights {list(w.shape)} for {list(x.shape)} in {group} groups, kernel {list(kernel)}"
    return None


def products(operands: Operands, result: Tensor) -> int:
    """The number of products of a convolution."""
    w = operands[1]
    assert w is not None
    return result.size * int(np.prod(w.shape[1:]))


@dataclass(frozen=True, kw_only=True)
class QConv(Weighted, Windowed, Clamped):
    """Convolution: x [N,C,spatial], w constant [O,C/group,kernel], optional bias int32 [O].

    The int32 sum of (x - zx) * (w - zw) and the bias, times `sx * sw / sy` in float32, rounded to even, plus zy.

    Attributes:
        moves: the weights are 0 and 1 and only move elements, or add them up: they are no products of the model.
    """

    group: int = 1
    moves: bool = False

    def check_product(self, x: Tensor, w: Tensor, bias: Tensor | None, result: Tensor) -> str | None:
        return (
            kernel_error(x, w, self.kernel, self.group)
            or weights_error(w, bias, w.shape[0])
            or shape_error(result, (x.shape[0], w.shape[0], *self.positions(x.shape[2:])))
        )

    def macs(self, operands: Operands, result: Tensor) -> int:
        return 0 if self.moves else products(operands, result)


@dataclass(frozen=True, kw_only=True)
class QConvTranspose(Weighted, Windowed, Clamped):
    """Transposed convolution: x [N,C,spatial], w constant [C,O/group,kernel], optional bias int32 [O].

    The arithmetic is QConv's.

    Attributes:
        moves: as in QConv.
    """

    group: int = 1
    output_padding: tuple[int, ...] = ()
    moves: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        extra = self.output_padding or (0,) * len(self.kernel)
        object.__setattr__(self, "output_padding", tuple(int(v) for v in extra))

    def check_product(self, x: Tensor, w: Tensor, bias: Tensor | None, result: Tensor) -> str | None:
        if w.shape[2:] != self.kernel or w.shape[0] != x.shape[1]:
            return f"weights {list(w.shape)} for {list(x.shape)}, kernel {list(self.kernel)}"
        channels = w.shape[1] * self.group
        return weights_error(w, bias, channels) or shape_error(result, (x.shape[0], channels, *self._reach(x)))

    def _reach(self, x: Tensor) -> list[int]:
        """The spatial shape of the result."""
        rank = len(self.kernel)
        return [
            (n - 1) * self.strides[i] + (self.kernel[i] - 1) * self.dilations[i] + 1
            + self.output_padding[i] - self.pads[i] - self.pads[rank + i]
            for i, n in enumerate(x.shape[2:])
        ]  # fmt: skip

    def macs(self, operands: Operands, result: Tensor) -> int:
        x, w = operands[0], operands[1]
        assert x is not None and w is not None
        return 0 if self.moves else x.size * int(np.prod(w.shape[1:]))
