"""Convolutions and products of 16-bit activations by 8-bit weights ("16x8"), by LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np

from tilewright.compiler.graph.ops.wide import LOWEST, MAX_PRODUCTS, QConv16, QMatMul16
from tilewright.compiler.importer.tflite.builder import PLANES
from tilewright.compiler.importer.tflite.builtin import as_convolution
from tilewright.compiler.importer.tflite.byte_products import byte_weights
from tilewright.compiler.importer.tflite.fixed_point import Integers
from tilewright.compiler.importer.tflite.products import Products
from tilewright.compiler.importer.tflite.windows import Window
from tilewright.isa import wide_numerics


class WideProducts(Products):
    """Products of int16 activations by int8 weights, with a bias of 64 bits."""

    bias_type: np.dtype = np.dtype(np.int64)

    def convolution(self, window: Window) -> None:
        b = self.b
        if b.op.name == "CONV_2D" and not b.has(2):
            raise b.refuse("there is no bias; LiteRT asks for one of int64 beside 16-bit activations")
        data, factors = self._weights(window.axis, 0)
        self._convolved(window, b.value(0, PLANES), data.transpose(window.order), factors)

    def transposed(self, window: Window) -> None:
        data, factors = self._weights(0, window.x)
        self._convolved(*as_convolution(self.b, window, data), factors)

    def _convolved(self, window: Window, x: str, data: np.ndarray, factors: np.ndarray) -> None:
        """Makes the convolution of planes `x` by weights `data` [O,C/group,kh,kw]."""
        b, found = self.b, [wide_numerics.wide_multiplier(float(f)) for f in factors]
        low, high = b.clamp()
        conv = QConv16(
            kernel=tuple(window.kernel), **window.sliding,
            multipliers=tuple(m for m, _ in found), shifts=tuple(s for _, s in found), low=low, high=high,
        )  # fmt: skip
        if min(conv.shifts) < 8:
            raise b.refuse(f"scales that are {float(np.max(factors)):g} of that of the result; below 128 is accepted")
        bias = self._bias(window.bias, len(data))
        self._check_sums(data, np.ldexp(np.array(conv.multipliers, np.float64), -np.array(conv.shifts)), window.bias)
        b.quantized(conv, [x, self._constant(data), *bias], b.result(window.out, PLANES))

    def product(self, rows: int, out: tuple[int, ...]) -> None:
        b, (n, k) = self.b, self.b.shape(1)
        data, factors = self._weights(0, 0)
        low, high = b.clamp()
        product = QMatMul16(factors=tuple(float(f) for f in factors), low=low, high=high)
        inputs = [self._rows(rows, k), self._constant(data.T), *self._bias(2, n)]
        self._check_sums(data, factors, 2)
        self._made(product, inputs, rows, out)

    def batch(self, names: list[str]) -> None:
        """Makes the product of two activations, [...,M,K] by [...,K,N].

        The sums of up to 2^17 products of 30 bits are exact in float64.
        """
        b, ints, k = self.b, Integers(self.b), self.b.graph.tensor(names[0]).shape[-1]
        sx, sw, sy = (b.wide_scale(t) for t in (b.source(0), b.source(1), b.target()))
        factor, most = float(sx * sw) / float(sy), float(k << 30)
        if most > 2.0**47 or most * factor >= 2.0**31:
            raise b.refuse(
                f"sums of {k} products, times {factor:g}; {1 << 17} products and results below 2^31 are accepted"
            )
        multiplier, shift = wide_numerics.wide_multiplier(factor)
        sums = ints.of(b.onnx("MatMul", [b.cast(name, np.float64) for name in names]))
        ints.finish(ints.right(ints.add(ints.mul(sums, multiplier), 1 << shift - 1), shift))

    def _weights(self, channel_axis: int, x: int) -> tuple[np.ndarray, np.ndarray]:
        """The int8 values of constant weights and the factor of each channel's sums with input `x`."""
        b, t = self.b, self.b.source(1)
        data, scale, zero = byte_weights(b, channel_axis)
        if t.dtype != np.int8 or np.any(zero):
            raise b.refuse(f"weights {t.name!r} must be int8 with the zero point 0 beside 16-bit activations")
        channels = data.shape[channel_axis]
        if data.size // channels > MAX_PRODUCTS:
            raise b.refuse(f"a sum of {data.size // channels} products; up to {MAX_PRODUCTS} are accepted")
        scale = np.broadcast_to(scale, (channels,))
        return data, wide_numerics.wide_factor(b.wide_scale(b.source(x)), scale, b.wide_scale(b.target()))

    def _check_sums(self, data: np.ndarray, factors: np.ndarray, bias: int) -> None:
        """Raises UnsupportedError where sums of weights [channel, ...] leave LiteRT's 48 bits, or results its 32."""
        b = self.b
        sums = -LOWEST * np.abs(data.astype(np.int64)).reshape(len(data), -1).sum(axis=1).astype(np.float64)
        if b.has(bias):
            sums += np.abs(b.const(bias, "bias").reshape(-1).astype(np.float64))
        for what, values, bits in (
            ("sums", sums, 47),
            ("results before the limits of 16 bits", sums * factors + 0.5, 31),
        ):
            if np.any(values >= 2.0**bits):
                channel = int(np.argmax(values))
                raise b.refuse(
                    f"{what} of channel {channel} may reach {float(values[channel]):g}, by its weights and bias and "
                    f"the scales; below 2^{bits} is accepted"
                )
