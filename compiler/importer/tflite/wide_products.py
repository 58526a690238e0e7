"""Convolutions and products of 16-bit activations by 8-bit weights ("16x8"), by LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np

from tilewright.compiler.graph.ops.wide import LOWEST, MAX_PRODUCTS, QConv16, QMatMul16
from tilewright.compiler.importer.tflite.builder import PLANES
from tilewright.compiler.importer.tflite.byte_products import byte_weights
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
        data, factors = self._weights(window.axis)
        data = data.transpose(window.order)
        found = [wide_numerics.wide_multiplier(float(f)) for f in factors]
        low, high = b.clamp()
        conv = QConv16(
            kernel=tuple(window.kernel), **window.sliding,
            multipliers=tuple(m for m, _ in found), shifts=tuple(s for _, s in found), low=low, high=high,
        )  # fmt: skip
        if min(conv.shifts) < 8:
            raise b.refuse(f"scales that are {float(np.max(factors)):g} of that of the result; below 128 is accepted")
        inputs = [b.value(0, PLANES), self._constant(data), *self._bias(2, len(data))]
        self._check_sums(data, np.ldexp(np.array(conv.multipliers, np.float64), -np.array(conv.shifts)))
        b.quantized(conv, inputs, b.result(window.out, PLANES))

    def product(self, rows: int, out: tuple[int, ...]) -> None:
        b, (n, k) = self.b, self.b.shape(1)
        data, factors = self._weights(0)
        low, high = b.clamp()
        product = QMatMul16(factors=tuple(float(f) for f in factors), low=low, high=high)
        inputs = [self._rows(rows, k), self._constant(data.T), *self._bias(2, n)]
        self._check_sums(data, factors)
        self._made(product, inputs, rows, out)

    def _weights(self, channel_axis: int) -> tuple[np.ndarray, np.ndarray]:
        """The int8 values of constant weights and the factor of each channel's sums."""
        b, t = self.b, self.b.source(1)
        data, scale, zero = byte_weights(b, channel_axis)
        if t.dtype != np.int8 or np.any(zero):
            raise b.refuse(f"weights {t.name!r} must be int8 with the zero point 0 beside 16-bit activations")
        channels = data.shape[channel_axis]
        if data.size // channels > MAX_PRODUCTS:
            raise b.refuse(f"a sum of {data.size // channels} products; up to {MAX_PRODUCTS} are accepted")
        scale = np.broadcast_to(scale, (channels,))
        return data, wide_numerics.wide_factor(b.wide_scale(b.source(0)), scale, b.wide_scale(b.target()))

    def _check_sums(self, data: np.ndarray, factors: np.ndarray) -> None:
        """Raises UnsupportedError where sums of weights [channel, ...] leave LiteRT's 48 bits, or results its 32."""
        b = self.b
        sums = -LOWEST * np.abs(data.astype(np.int64)).reshape(len(data), -1).sum(axis=1).astype(np.float64)
        if b.has(2):
            sums += np.abs(b.const(2, "bias").reshape(-1).astype(np.float64))
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
