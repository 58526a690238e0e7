"""Convolutions and products of floats as ONNX ops; weights may be float16 or int8."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.compiler.importer.tflite.builder import PLANES
from tilewright.compiler.importer.tflite.products import Products
from tilewright.compiler.importer.tflite.windows import Window


class RealProducts(Products):
    """Products of floats, and of quantised activations by way of floats."""

    def convolution(self, window: Window) -> None:
        self._convolved("Conv", window, window.sliding)

    def transposed(self, window: Window) -> None:
        sliding = {**window.sliding, "output_padding": window.extra}
        self._convolved("ConvTranspose", window, sliding)

    def _convolved(self, op: str, window: Window, sliding: Mapping[str, Any]) -> None:
        b = self.b
        b.quantize_into(self._sums(op, window, sliding, b.real(window.x, PLANES)), PLANES)

    def convolution_3d(self, window: Window) -> None:
        """Makes the convolution of input 0, [N,D,H,W,C]."""
        b = self.b
        planes = b.onnx("Transpose", [b.real(0)], {"perm": [0, 4, 1, 2, 3]})
        made = self._sums("Conv", window, window.sliding, planes)
        b.quantize_into(b.onnx("Transpose", [made], {"perm": [0, 2, 3, 4, 1]}))

    def _sums(self, op: str, window: Window, sliding: Mapping[str, Any], x: str) -> str:
        """The convolution of planes `x` with its fused activation."""
        b, data = self.b, np.ascontiguousarray(self._weights().transpose(window.order))
        inputs = [x, b.constant("weights", data), *self._bias(window.bias, window.out[1])]
        return b.activated(b.onnx(op, inputs, {"kernel_shape": window.kernel, **sliding}))

    def product(self, rows: int, out: tuple[int, ...]) -> None:
        b, (n, k) = self.b, self.b.shape(1)
        if b.source(1).data is None and b.source(1).dtype == np.float32:
            weights = b.onnx("Transpose", [b.real(1)], {"perm": [1, 0]})
        else:
            weights = b.constant("weights", np.ascontiguousarray(self._weights().T))
        made = b.onnx("MatMul", [b.reshaped(b.real(0), [rows, k]), weights])
        if b.has(2):
            bias = self._bias(2, n) if b.source(2).data is not None else [b.real(2)]
            made = b.onnx("Add", [made, *bias])
        made = b.activated(made)
        b.quantize_into(b.reshaped(made, out) if b.op.option("KeepNumDims", False) else made)

    def _weights(self) -> np.ndarray:
        """Constant weights as float32. Raises UnsupportedError for others."""
        b, t = self.b, self.b.source(1)
        b.const(1, "weights")
        data = b.graph.const(b.real(1))
        if data is None or data.dtype.kind != "f":
            raise b.refuse(f"weights {t.name!r} are {t.type_name}{list(t.shape)}; floats are accepted")
        return data.astype(np.float32)

    def _bias(self, k: int, channels: int) -> list[str]:
        """The bias as float32; an integer bias counts in steps of the input scale times the weight scale."""
        b = self.b
        if not b.has(k):
            return []
        t, data = b.source(k), b.const(k, "bias")
        if data.size != channels:
            raise b.damaged(f"bias {t.name!r} is {t.type_name}{list(t.shape)}, {channels} values are needed")
        data = data.reshape(-1)
        if data.dtype.kind == "i":
            if t.quant is None:
                raise b.refuse(f"bias {t.name!r} has no scale")
            data = data.astype(np.float64) * t.quant.scale
        return [b.constant(t.name, data, np.float32)]
