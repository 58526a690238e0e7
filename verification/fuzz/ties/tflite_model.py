"""A builder of TFLite files whose scales, zero points and values tie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.common.tflite_models import Model, Op, T
from verification.fuzz.ties.parameters import Cases


class TyingFile(Cases):
    """Tensors, operators, inputs and outputs of a file; several cases may be built into one, each with its own seed.

    Args:
        dtype: "int8", "uint8" or "int16", that of activations.
    """

    def __init__(self, dtype: str = "int8") -> None:
        self.dtype = dtype
        self.tensors: list[T] = []
        self.ops: list[Op] = []
        self.inputs: list[str] = []
        self.outputs: list[str] = []
        self.feed: dict[str, np.ndarray] = {}
        self.begin((0,))

    def scale(self) -> float:
        self.last_scale = self.draws.related(self.last_scale)
        return self.last_scale

    def zero(self) -> int:
        """Returns a zero point of activations; those of 16 bits have none."""
        return 0 if self.dtype == "int16" else self.draws.zero(np.dtype(self.dtype))

    def tensor(
        self, shape: Sequence[int], scale: Any = None, zero: int | None = None, dtype: str | None = None,
        data: np.ndarray | None = None, axis: int = 0,
    ) -> T:  # fmt: skip
        """Any tensor; drawn scale and zero point where none are given (`scale=0` for none)."""
        dtype = dtype or self.dtype
        if scale is None:
            scale = self.scale()
        zero = self.zero() if zero is None else zero
        no_scale = np.ndim(scale) == 0 and scale == 0
        t = T(f"t{len(self.tensors)}", tuple(shape), dtype, None if no_scale else scale, zero, axis, data)
        self.tensors.append(t)
        return t

    def input(self, shape: Sequence[int], scale: float | None = None, zero: int | None = None) -> T:
        """Returns a graph input that holds all codes."""
        t = self.tensor(shape, scale, zero)
        self.inputs.append(t.name)
        self.feed[t.name] = self.draws.codes(tuple(shape), np.dtype(t.dtype))
        return t

    def constant(self, data: Any, dtype: str = "int32") -> T:
        """Returns a constant without a scale."""
        array = np.asarray(data, dtype)
        return self.tensor(array.shape, 0, 0, dtype, array)

    def op(self, name: str, inputs: Sequence[T | None], y: T, kind: str = "", version: int = 1, **fields: Any) -> T:
        options = (kind, fields) if kind else None
        self.ops.append(Op(name, [t.name if t is not None else "" for t in inputs], [y.name], options, version))
        return y

    def output(self, t: T) -> None:
        self.outputs.append(t.name)

    def build(self) -> bytes:
        return Model(self.tensors, self.ops, self.inputs, self.outputs).build()

    def feeds(self) -> dict[str, np.ndarray]:
        return dict(self.feed)
