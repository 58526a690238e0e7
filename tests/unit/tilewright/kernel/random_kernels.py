"""Random kernels: a chain of random operations on random parts, with the numpy form of each made beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tilewright import kernel as tk
from tilewright.isa import numerics
from tilewright.isa.config import PRESETS, NpuConfig
from tilewright.isa.instructions import Rounding

ROUNDINGS = {"even": Rounding.EVEN, "inside": Rounding.EVEN_ZERO_POINT_INSIDE, "away": Rounding.HALF_AWAY}
#: Machines: presets, and some with rows of the array that are wider or narrower than vectors.
MACHINES: list[NpuConfig] = [
    *(PRESETS[name] for name in ("nano", "tiny", "small", "wide", "base", "large")),
    PRESETS["base"].with_(name="narrow", block_in=8, block_out=32, act_rows=4096),
    PRESETS["small"].with_(name="flat", block_in=16, block_out=4, acc_rows=2048),
    PRESETS["tiny"].with_(name="packed tiny", packed_weights=1),
    PRESETS["base"].with_(name="coded", weight_codes=32),
    PRESETS["base"].with_(name="packed and coded", packed_weights=1, weight_codes=16),
]


class Case:
    """A random kernel of one input [1, C, H, W], and what it computes.

    Attributes:
        config: the machine.
        shape: shape of the input.
        kernel: the kernel, without constants.
        loads: True if the machine has forms of LOAD for weights, which are worth it for many of them.
        reference: the same in numpy.
    """

    def __init__(self, seed: int) -> None:
        random = self._random = np.random.default_rng(seed)
        self.config = MACHINES[random.integers(len(MACHINES))]
        self.loads = bool(self.config.packed_weights or self.config.weight_codes)
        self.shape = (1, *(int(n) for n in random.integers((1, 3, 3), (120 if self.loads else 40, 12, 12))))
        self._steps: list[tuple[Callable[..., Any], Callable[..., Any], tuple[int, ...]]] = []
        shape = self.shape
        for _ in range(random.integers(1, 4)):
            make = [
                *[self._conv] * (7 if self.loads else 1), self._depthwise, self._pool, self._add, self._multiply,
                self._table, self._total,
            ]  # fmt: skip
            step, reference, shape = make[random.integers(len(make))](shape)
            self._steps.append((step, reference, shape))
        self.kernel = tk.Kernel(self._function())

    def reference(self, x: np.ndarray) -> np.ndarray:
        """The result for an int8 [1, C, H, W]."""
        value = x[0]
        for _, reference, _ in self._steps:
            value = reference(value)
        return value[None]

    def _function(self) -> Callable[..., Any]:
        def chain(k: tk.Chip, x: tk.Tensor) -> tk.Tensor:
            for step, _, shape in self._steps:
                y = k.tensor((1, *shape[1:]))
                step(k, x, y)
                x = y
            return x

        return chain

    # Helpers.

    def _int(self, low: int, high: int) -> int:
        return int(self._random.integers(low, high))

    def _int8(self, *shape: int) -> np.ndarray:
        return self._random.integers(-128, 128, shape, np.int8)

    def _weights(self, *shape: int) -> np.ndarray:
        """Weights of 8 bits, of 4, or mostly zeros, of which a decoder has least to read."""
        least = (128, 8, 1)[self._int(0, 3)]
        return self._random.integers(-least, least, shape, np.int8)

    def _params(self, channels: int) -> tuple[Any, Any]:
        if self._int(0, 3) == 0:
            return self._int(-500, 500), np.float32(self._random.uniform(2e-4, 3e-2))
        scales = self._random.uniform(2e-4, 3e-2, channels).astype(np.float32)
        return self._random.integers(-9000, 9000, channels, np.int32), scales

    def _post(self) -> dict[str, Any]:
        low = self._int(-128, 0)
        rounding = [*ROUNDINGS][self._int(0, 3)]
        return {"zero_point": self._int(-20, 20), "low": low, "high": self._int(low, 128), "rounding": rounding}

    def _requantised(self, sums: np.ndarray, bias: Any, scale: Any, post: dict[str, Any]) -> np.ndarray:
        column = lambda value: np.reshape(value, (-1, 1, 1)) if np.ndim(value) else value
        total = numerics.wrap32(sums.astype(np.int64) + column(bias))
        bits = numerics.scale_bits(column(scale))
        return numerics.requantize(
            total, bits, post["zero_point"], post["low"], post["high"], ROUNDINGS[post["rounding"]]
        )

    def _tiles(self, k: tk.Chip, y: tk.Tensor, step: Callable[[range, range, range], None]) -> None:
        """Calls a step for random parts of a result, which cover it."""
        blocks, rows, columns = self._sizes
        for some in tk.chunks(y.blocks, blocks):
            for part in tk.chunks(y.rows, rows):
                for beside in tk.chunks(y.columns, columns):
                    step(some, part, beside)

    @property
    def _sizes(self) -> tuple[int, int, int]:
        return self._chosen

    def _choose(self, wide: bool = False) -> tuple[int, int, int]:
        blocks = self._int(1, 4)
        if wide:
            blocks *= max(1, self.config.block_out // self.config.block_in)
        return blocks, self._int(1, 6), self._int(2, 9)

    def _finish(self, k: tk.Chip, into: tk.Part, result: Callable[..., tk.Tile], how: int) -> None:
        """Brings a result to DRAM: directly, by a store, or by a tile with buffers."""
        if how == 0:
            result(into=into)
        elif how == 1:
            k.store(result(), into)
        else:
            tile = k.tile(*into.size, buffers=how - 1)
            result(into=tile)
            k.store(tile, into)

    # Operations: each returns the step, its numpy form and the shape of the result.

    def _conv(self, shape: tuple[int, ...]) -> Any:
        _, c, h, w = shape
        kernel, stride, pad = (self._int(1, 4), self._int(1, 4)), self._int(1, 3), self._int(0, 2)
        kernel = (min(kernel[0], h), min(kernel[1], w))
        weights = self._weights(self._int(1, 120 if self.loads else 40), c, *kernel)
        packed = None if self._int(0, 2) else False
        (bias, scale), post, fill = self._params(len(weights)), self._post(), self._int(-128, 128)
        sizes, how, pieces = self._choose(wide=True), self._int(0, 4), self._int(0, 2)

        def step(k: tk.Chip, x: tk.Tensor, y: tk.Tensor) -> None:
            held, params = k.weights(weights, stride=stride, pad=pad, packed=packed), k.params(bias, scale)
            self._chosen = sizes

            def one(some: range, part: range, beside: range) -> None:
                own = held.at(outputs=some)
                wanted = {"rows": held.rows(part), "columns": held.columns(beside)}
                if pieces:
                    sums = None
                    for block in range(x.blocks):
                        tile = k.load(x.at(**wanted, blocks=block), pad=fill)
                        sums = k.matmul(tile, own.at(inputs=block), into=sums)
                else:
                    sums = k.matmul(k.load(x.at(**wanted), pad=fill), own)
                result = lambda **into: k.requantise(sums, params, **post, **into)
                self._finish(k, y.at(blocks=some, rows=part, columns=beside), result, how)

            self._tiles(k, y, one)

        def reference(x: np.ndarray) -> np.ndarray:
            padded = np.pad(x.astype(np.int64), ((0, 0), (pad, pad), (pad, pad)), constant_values=fill)
            windows = sliding_window_view(padded, kernel, (1, 2))[:, ::stride, ::stride]
            sums = np.tensordot(weights.astype(np.int64), windows, ((1, 2, 3), (0, 3, 4)))
            return self._requantised(sums, bias, scale, post)

        rows, columns = ((n + 2 * pad - taps) // stride + 1 for n, taps in zip((h, w), kernel, strict=True))
        return step, reference, (1, len(weights), rows, columns)

    def _depthwise(self, shape: tuple[int, ...]) -> Any:
        _, c, h, w = shape
        if not self.config.depthwise:
            return self._table(shape)
        kernel = (min(self._int(1, 6), h), min(self._int(1, 6), w))
        stride, pad = self._int(1, 3), self._int(0, 3)
        weights = self._int8(c, *kernel)
        (bias, scale), post, fill = self._params(c), self._post(), self._int(-128, 128)
        sizes, how = self._choose(), self._int(0, 4)

        def step(k: tk.Chip, x: tk.Tensor, y: tk.Tensor) -> None:
            held, params = k.window(weights, stride=stride, pad=pad), k.params(bias, scale)
            self._chosen = sizes

            def one(some: range, part: range, beside: range) -> None:
                wanted = x.at(held.rows(part), held.columns(beside), some)
                sums = k.depthwise(k.load(wanted, pad=fill), held.at(blocks=some))
                result = lambda **into: k.requantise(sums, params, **post, **into)
                self._finish(k, y.at(blocks=some, rows=part, columns=beside), result, how)

            self._tiles(k, y, one)

        def reference(x: np.ndarray) -> np.ndarray:
            padded = np.pad(x.astype(np.int64), ((0, 0), (pad, pad), (pad, pad)), constant_values=fill)
            windows = sliding_window_view(padded, kernel, (1, 2))[:, ::stride, ::stride]
            sums = np.einsum("chwij,cij->chw", windows, weights.astype(np.int64))
            return self._requantised(sums, bias, scale, post)

        rows, columns = ((n + 2 * pad - taps) // stride + 1 for n, taps in zip((h, w), kernel, strict=True))
        return step, reference, (1, c, rows, columns)

    def _pool(self, shape: tuple[int, ...]) -> Any:
        _, c, h, w = shape
        kernel, stride = (min(self._int(1, 4), h), min(self._int(1, 4), w)), self._int(1, 3)
        rows, columns = ((n - taps) // stride + 1 for n, taps in zip((h, w), kernel, strict=True))
        sizes, how = self._choose(), self._int(0, 4)

        def step(k: tk.Chip, x: tk.Tensor, y: tk.Tensor) -> None:
            self._chosen = sizes

            def one(some: range, part: range, beside: range) -> None:
                under = [
                    range(r.start * stride, (r.stop - 1) * stride + taps)
                    for r, taps in zip((part, beside), kernel, strict=True)
                ]
                tile = k.load(x.at(*under, some))
                result = lambda **into: k.maximum(tile, kernel, stride=stride, **into)
                self._finish(k, y.at(blocks=some, rows=part, columns=beside), result, how)

            self._tiles(k, y, one)

        reference = lambda x: sliding_window_view(x, kernel, (1, 2))[:, ::stride, ::stride].max((3, 4))
        return step, reference, (1, c, rows, columns)

    def _total(self, shape: tuple[int, ...]) -> Any:
        _, c, _h, _w = shape
        (bias, scale), post = self._params(c), self._post()

        def step(k: tk.Chip, x: tk.Tensor, y: tk.Tensor) -> None:
            k.total(k.load(x.at()), k.params(bias, scale), into=y.at(), **post)

        reference = lambda x: self._requantised(x.astype(np.int64).sum((1, 2), keepdims=True), bias, scale, post)
        return step, reference, (1, c, 1, 1)

    def _add(self, shape: tuple[int, ...]) -> Any:
        ma, mb, c, shift = self._int(-9000, 9000), self._int(-9000, 9000), self._int(-99999, 99999), self._int(0, 16)
        sizes, how, repeated = self._choose(), self._int(0, 4), self._int(0, 2)

        def step(k: tk.Chip, x: tk.Tensor, y: tk.Tensor) -> None:
            self._chosen = sizes

            def one(some: range, part: range, beside: range) -> None:
                a = k.load(x.at(part, beside, some))
                b = k.load(x.at(0, 0, some)) if repeated else a
                result = lambda **into: k.add(a, b, ma=ma, mb=mb, c=c, shift=shift, low=-100, **into)
                self._finish(k, y.at(blocks=some, rows=part, columns=beside), result, how)

            self._tiles(k, y, one)

        def reference(x: np.ndarray) -> np.ndarray:
            return numerics.add_integer(x, x[:, :1, :1] if repeated else x, ma, mb, c, shift, -100, 127)

        return step, reference, shape

    def _multiply(self, shape: tuple[int, ...]) -> Any:
        (bias, scale), post, za, zb = self._params(1), self._post(), self._int(-128, 128), self._int(-128, 128)
        bias, scale = (np.reshape(value, -1)[0] for value in (bias, scale))
        sizes, how = self._choose(), self._int(0, 4)

        def step(k: tk.Chip, x: tk.Tensor, y: tk.Tensor) -> None:
            self._chosen, params = sizes, k.params(bias, scale)

            def one(some: range, part: range, beside: range) -> None:
                a = k.load(x.at(part, beside, some))
                result = lambda **into: k.multiply(a, a, params, za=za, zb=zb, **post, **into)
                self._finish(k, y.at(blocks=some, rows=part, columns=beside), result, how)

            self._tiles(k, y, one)

        reference = lambda x: self._requantised(
            (x.astype(np.int64) - za) * (x.astype(np.int64) - zb), bias, scale, post
        )
        return step, reference, shape

    def _table(self, shape: tuple[int, ...]) -> Any:
        values, sizes, how, in_place = self._int8(256), self._choose(), self._int(0, 4), self._int(0, 2)

        def step(k: tk.Chip, x: tk.Tensor, y: tk.Tensor) -> None:
            self._chosen, table = sizes, k.table(values)

            def one(some: range, part: range, beside: range) -> None:
                into = y.at(blocks=some, rows=part, columns=beside)
                a = k.load(x.at(part, beside, some))
                if in_place:
                    k.store(k.apply(a, table, into=a), into)
                else:
                    self._finish(k, into, lambda **to: k.apply(a, table, **to), how)

            self._tiles(k, y, one)

        return step, lambda x: values[x.astype(np.int64) + 128], shape
