"""Norms of rows and of planes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.compiler.graph.ops.quantized_op import Operands, QuantizedOp, shape_error
from tilewright.compiler.graph.tensor import Tensor


@dataclass(frozen=True, kw_only=True)
class QNorm(QuantizedOp):
    """LayerNormalization over the last axis, `(x - mean) / sqrt(variance + epsilon) * scale + bias` in float32, or
    RMSNormalization, `x / sqrt(mean of squares + epsilon) * scale`. Operands: x, scale and bias, float32 of the last
    axis.

    Attributes:
        centred: True if the mean is subtracted.
    """

    arity = (2, 3)

    epsilon: float = 1e-5
    centred: bool = True

    def check(self, operands: Operands, result: Tensor) -> str | None:
        error = super().check(operands, result)
        x = operands[0]
        if error is not None or x is None:
            return error
        return _parameters_error(operands, x.shape[-1:]) or shape_error(result, x.shape)


@dataclass(frozen=True, kw_only=True)
class QPlaneNorm(QuantizedOp):
    """InstanceNormalization or GroupNormalization, `(x - mean) / sqrt(variance + epsilon) * scale + bias` in float32,
    mean and variance over the planes of a group of neighbouring channels. Operands: x [N, C, ...], scale and bias,
    float32 [C].

    Attributes:
        groups: number of groups of channels; as many as there are channels for InstanceNormalization.
    """

    arity = (3, 3)

    epsilon: float = 1e-5
    groups: int

    def check(self, operands: Operands, result: Tensor) -> str | None:
        error = super().check(operands, result)
        x = operands[0]
        if error is not None or x is None:
            return error
        if len(x.shape) < 3 or self.groups < 1 or x.shape[1] % self.groups:
            return f"{self.groups} groups of {list(x.shape)}"
        return _parameters_error(operands, x.shape[1:2]) or shape_error(result, x.shape)


def _parameters_error(operands: Operands, shape: tuple[int, ...]) -> str | None:
    """The error in scale or bias, None if both are float32 of this shape."""
    wrong = (t for t in operands[1:] if t is not None and (t.dtype != np.float32 or t.shape != shape))
    return next((f"{t.name} is {t.dtype}{list(t.shape)}, not float32{list(shape)}" for t in wrong), None)
