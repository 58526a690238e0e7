"""Convolutions and products of 8-bit activations, by XNNPACK's rules or those of `builtin`."""

from __future__ import annotations

import numpy as np

from tilewright.compiler.graph.graph import Quant
from tilewright.compiler.graph.ops.convolution import QConv, QConvTranspose
from tilewright.compiler.graph.ops.product import QMatMul
from tilewright.compiler.graph.ops.quantized_op import ROUNDS_TWICE
from tilewright.compiler.importer.tflite.builder import PLANES, TfliteBuilder
from tilewright.compiler.importer.tflite.builtin import BuiltinProduct, as_convolution, check_types, left_to_builtin
from tilewright.compiler.importer.tflite.products import Products
from tilewright.compiler.importer.tflite.windows import Window


def byte_weights(b: TfliteBuilder, channel_axis: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """int8 values, scales and zero points (of shape () or [channels]) of constant weights, input 1."""
    t = b.source(1)
    data = b.const(1, "weights")
    if t.dtype not in (np.dtype(np.int8), np.dtype(np.uint8)) or t.quant is None:
        raise b.refuse(f"weights {t.name!r} are {t.type_name}; int8 and uint8 with scales are accepted")
    if t.quant.axis not in (None, channel_axis):
        raise b.refuse(f"weights {t.name!r} are quantised along axis {t.quant.axis}, not {channel_axis}")
    zero = t.quant.zero_point
    info = np.iinfo(t.dtype)
    if np.any((zero < info.min) | (zero > info.max)):
        raise b.damaged(f"zero points of weights {t.name!r} are outside {t.dtype}")
    if t.dtype == np.uint8:
        data, zero = (data.astype(np.int16) - 128).astype(np.int8), zero - 128
    return data, t.quant.scale, zero


class ByteProducts(Products):
    """Products of int8 or uint8 activations by weights of the same type."""

    def convolution(self, window: Window) -> None:
        b = self.b
        data, scale, zero = self._weights(window.axis, 0)
        data = data.transpose(window.order)
        if left_to_builtin(b, b.source(0), b.source(1), scale):
            self._builtin(window, b.value(0, PLANES), data, scale, zero)
            return
        inputs = [b.value(0, PLANES), self._constant(data, Quant.of(scale, zero, 0)), *self._bias(2, len(data))]
        conv = QConv(kernel=tuple(window.kernel), **window.sliding).clamped(*b.clamp())
        b.quantized(conv, inputs, b.result(window.out, PLANES))

    def transposed(self, window: Window) -> None:
        b = self.b
        data, scale, zero = self._weights(0, window.x)
        if window.refused or left_to_builtin(b, b.source(window.x), b.source(1), scale):
            self._builtin(*as_convolution(b, window, data), scale, zero)
            return
        weights = self._constant(data.transpose(window.order), Quant.of(scale, zero, 1))
        inputs, reason = [b.value(window.x, PLANES), weights], ""
        if b.source(0).data is None:
            inputs.append(self._builtin_bias(window, scale))
            reason = f"the output shape is computed in the file: {ROUNDS_TWICE}"
        else:
            inputs += self._bias(window.bias, len(data))
        y = b.result(window.out, PLANES)
        conv = QConvTranspose(
            kernel=tuple(window.kernel), strides=tuple(window.strides), pads=tuple(window.pads),
            output_padding=tuple(window.extra), reason=reason,
        )  # fmt: skip
        b.quantized(conv.clamped(*b.clamp(builtin=bool(reason))), inputs, y)

    def product(self, rows: int, out: tuple[int, ...]) -> None:
        b, (n, k) = self.b, self.b.shape(1)
        data, scale, zero = self._weights(0, 0)
        x = self._rows(rows, k)
        whole = b.source(1).dtype == np.int8 and bool(np.any(zero))
        if whole or left_to_builtin(b, b.source(0), b.source(1), scale):
            made = BuiltinProduct(b, b.source(0), scale, n).product(x, data, zero, self._bias(2, n))
            b.reshaped(made, out, b.result(out))
            return
        w = self._constant(data.T, Quant.of(scale, zero, 1))
        self._made(QMatMul().clamped(*b.clamp()), [x, w, *self._bias(2, n)], rows, out)

    def _weights(self, channel_axis: int, x: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The weights as `byte_weights` has them. Raises UnsupportedError where input `x` is of another type."""
        found = byte_weights(self.b, channel_axis)
        self.b.byte_quant(self.b.source(x))
        check_types(self.b, self.b.source(x), self.b.source(1))
        return found

    def _builtin(self, window: Window, x: str, data: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> None:
        """Makes the convolution of planes `x` by weights `data` [O,C/group,kh,kw] as the built-in kernels do."""
        b, channels = self.b, window.out[1]
        product = BuiltinProduct(b, b.source(window.x), scale, channels)
        attrs = {"kernel_shape": window.kernel, **window.sliding}
        made = product.convolution(x, data, zero, self._bias(window.bias, channels), attrs)
        b.onnx("Identity", [made], output=b.result(window.out, PLANES))

    def _builtin_bias(self, window: Window, scale: np.ndarray) -> str:
        """The bias with which the machine's rule comes closest to LiteRT's rounding twice upwards, `floor(acc * f + 1/2
        + 2^(s-1))` with f = m * 2^s and 1/2 <= m < 1. The last term equals 1/(2m) more in acc, at least 1/2.
        """
        b, k, channels = self.b, window.bias, window.out[1]
        x, y = b.byte_quant(b.source(window.x)), b.byte_quant(b.target())
        factor = np.float64(x.scale) * np.broadcast_to(scale, (channels,)).astype(np.float64) / np.float64(y.scale)
        given = b.const(k, "bias").reshape(-1) if self._bias(k, channels) else np.zeros(channels, np.int32)
        return b.constant("bias", given + (factor < 0.5), np.int32)
