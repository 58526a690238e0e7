"""A builder of ONNX models whose scales, zero points and values tie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.reference.quantized_models import Model
from verification.fuzz.ties.parameters import Cases


class TyingModel(Cases, Model):
    """`Model` with the draws of `Draws`; several cases may be built into one model, each with a seed of its own."""

    def __init__(self, dtype: Any = np.int8, opset: int = 21) -> None:
        super().__init__(dtype, 0, opset)
        self.feed: dict[str, np.ndarray] = {}
        self.begin((0,))

    def begin(self, seed: tuple[int, ...], extreme: bool = True) -> None:
        super().begin(seed, extreme)
        self.sums: tuple[float, float] | None = None

    def scale(self, low: float = 0.004, high: float = 0.1) -> float:
        if (low, high) == (0.3, 2) and self.sums is not None:  # of a sum of products
            return self.draws.for_sums(*self.sums)
        self.last_scale = self.draws.related(self.last_scale)
        return self.last_scale

    def zero(self, dtype: Any = None) -> int:
        return self.draws.zero(np.dtype(dtype or self.dtype))

    def input(self, shape: Sequence[int], scale: float | None = None, zero: int | None = None) -> str:
        """Returns a graph input that holds all codes, and its DequantizeLinear.

        One in four is of floats, a quarter of whose values lie half a step further, where QuantizeLinear ties.
        """
        if self.rng.random() < 3 / 4:
            return self.op("DequantizeLinear", *self.integers(shape, scale, zero))
        name = super().input(shape, scale, zero)
        node = next(n for n in reversed(self.nodes) if n.op_type == "QuantizeLinear")
        known = {i.name: numpy_helper.to_array(i) for i in self.initializers[-4:]}
        s, z = (known[i] for i in node.input[1:])
        codes = self.draws.codes(tuple(shape), self.dtype).astype(np.float32) - np.float32(z)
        codes += np.where(self.rng.random(codes.shape) < 1 / 4, np.float32(0.5), np.float32(0))
        self.feed[node.input[0]] = (codes * s).astype(np.float32)
        return name

    def output(self, x: str) -> None:
        """A graph output; three of four that would be dequantised are the integers."""
        last = self.nodes[-1]
        if last.op_type == "DequantizeLinear" and last.output[0] == x and self.rng.random() < 3 / 4:
            x = last.input[0]
            del self.nodes[-1]
        super().output(x)

    def integers(
        self, shape: Sequence[int], scale: float | None = None, zero: int | None = None
    ) -> tuple[str, str, str]:
        """Returns a graph input of the activations' type, its scale and its zero point."""
        name = self.name("x")
        self.inputs.append(
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(self.dtype), list(shape))
        )
        self.feed[name] = self.draws.codes(tuple(shape), self.dtype)
        s = self.const(self.scale() if scale is None else scale, np.float32)
        return name, s, self.const(self.zero() if zero is None else zero, self.dtype)

    def weights(self, shape: Sequence[int], dtype: Any = np.int8, axis: int | None = None, zero: int = 0) -> str:
        data = self.draws.small(tuple(shape), np.dtype(dtype))
        scale: Any = np.float32(self.draws.scale()) if axis is None else self.draws.channel_scales(shape[axis])
        terms = data.size // max(shape[0] if axis is None or not shape else shape[axis], 1) if shape else 1
        typical = float(np.median(scale[scale > 0])) if np.ndim(scale) else float(scale)
        self.sums = (self.last_scale * typical, 74 * float(np.abs(data.astype(float)).mean()) * max(terms, 1) ** 0.5)
        w, s = self.const(data, dtype), self.const(scale, np.float32)
        z = self.const(np.full(np.shape(scale), zero), dtype)
        attributes: dict[str, Any] = {} if axis is None else {"axis": axis}
        return self.op("DequantizeLinear", w, s, z, **attributes)

    def feeds(self, spread: float = 1.0) -> dict[str, np.ndarray]:
        return {v.name: self.feed[v.name] for v in self.inputs}

    def build(self, extra: Sequence[str] = ()) -> onnx.ModelProto:
        model = super().build(extra)
        for out in model.graph.output:  # onnx infers no type behind com.microsoft's ops
            if not any(out.name in n.output and n.domain == "com.microsoft" for n in self.nodes):
                continue
            out.CopyFrom(helper.make_tensor_value_info(out.name, helper.np_dtype_to_tensor_dtype(self.dtype), None))
        return model
