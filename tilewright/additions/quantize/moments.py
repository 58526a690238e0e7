"""Gathers the operand rows of a product: the values under its kernel at some places, and their second moments."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from tilewright.quantize.layers import Layer, attributes_of

_ROWS = 256
"""Rows of moments per block of work."""


@dataclass(frozen=True)
class Product:
    """A product with constant weights as a matrix product per group: y[group] = weights[group] @ rows[group].

    Attributes:
        groups, outputs, inputs: sizes of the matrices.
        layer: of kind PRODUCT.
    """

    layer: Layer
    shape: tuple[int, ...]
    groups: int
    outputs: int
    inputs: int

    @classmethod
    def of(cls, layer: Layer, weights: np.ndarray) -> Product | None:
        """None for products whose places read different weights: ConvTranspose, and MatMul with a stack of weights."""
        node = layer.nodes[0]
        attributes = attributes_of(node)
        if layer.op == "Conv":
            groups = int(attributes.get("group", 1))  # type: ignore[call-overload]
            auto = attributes.get("auto_pad", b"NOTSET")
            if auto not in (b"NOTSET", b"VALID") or weights.shape[0] % groups:
                return None
            return cls(layer, weights.shape, groups, weights.shape[0] // groups, int(np.prod(weights.shape[1:])))
        if layer.op in ("Gemm", "MatMul") and weights.ndim == 2:
            outputs = weights.shape[layer.axis]
            return cls(layer, weights.shape, 1, outputs, weights.size // max(outputs, 1))
        return None

    def matrix(self, weights: np.ndarray) -> np.ndarray:
        """Weights as [groups, outputs, inputs]."""
        if self.layer.op == "Conv":
            return np.asarray(weights.reshape(self.groups, self.outputs, self.inputs))
        return np.asarray((weights if self.layer.axis == 0 else weights.T)[None])

    def tensor(self, matrix: np.ndarray) -> np.ndarray:
        """Converts a weight matrix back to the shape of the tensor: the inverse of `matrix`."""
        if self.layer.op == "Conv":
            return np.asarray(matrix.reshape(self.shape))
        return np.ascontiguousarray(matrix[0] if self.layer.axis == 0 else matrix[0].T)

    def results(self, x: np.ndarray) -> int:
        """Returns the number of output places for an input."""
        return int(np.prod(self._result(x)))

    def places(self, x: np.ndarray, limit: int, random: np.random.Generator) -> np.ndarray:
        """Numbers of at most `limit` results, for `rows`."""
        count = self.results(x)
        return np.sort(random.choice(count, limit, replace=False)) if count > limit else np.arange(count)

    def rows(self, x: np.ndarray, places: np.ndarray) -> np.ndarray:
        """The operand rows of the results at some places: float32[groups, places, inputs], a copy."""
        if self.layer.op != "Conv":
            return np.asarray(x.reshape(-1, self.inputs)[places][None])
        rank = x.ndim - 2
        kernel, strides, dilations, pads = self._window
        if any(pads):
            x = np.pad(x, [(0, 0), (0, 0), *((pads[i], pads[rank + i]) for i in range(rank))])
        at = np.unravel_index(places, self._result_of(x))
        steps = np.indices(kernel).reshape(rank, -1)
        index = [at[1 + i][:, None] * strides[i] + steps[i][None] * dilations[i] for i in range(rank)]
        if x.shape[0] == 1:  # of one picture channels come first, so that nothing is written twice
            flat = np.ravel_multi_index(tuple(index), x.shape[2:])
            found = np.take(x.reshape(x.shape[1], -1), flat.reshape(-1), axis=1).reshape(self.groups, -1, *flat.shape)
            found = found.transpose(0, 2, 1, 3)  # [groups, places, channels, kernel]
            return np.asarray(found.reshape(self.groups, len(places), self.inputs))
        found = x[(at[0][:, None], slice(None), *index)]  # [places, kernel, channels]
        found = found.transpose(0, 2, 1).reshape(len(places), self.groups, self.inputs)
        return np.ascontiguousarray(found.transpose(1, 0, 2))

    @functools.cached_property
    def _window(self) -> tuple[list[int], list[int], list[int], list[int]]:
        """Sizes of the kernel, strides, dilations and pads."""
        attributes, rank = attributes_of(self.layer.nodes[0]), len(self.shape) - 2

        def numbers(name: str, default: list[int]) -> list[int]:
            found = attributes.get(name)
            return [int(v) for v in found] if isinstance(found, list) else default

        pads = numbers("pads", [0] * 2 * rank)
        return list(self.shape[2:]), numbers("strides", [1] * rank), numbers("dilations", [1] * rank), pads

    def _result(self, x: np.ndarray) -> tuple[int, ...]:
        """Shape of the result without its channels."""
        if self.layer.op != "Conv":
            return (x.size // self.inputs,)
        rank = x.ndim - 2
        pads = self._window[3]
        padded = [x.shape[2 + i] + pads[i] + pads[rank + i] for i in range(rank)]
        return self._places((x.shape[0], *padded))

    def _result_of(self, padded: np.ndarray) -> tuple[int, ...]:
        return self._places((padded.shape[0], *padded.shape[2:]))

    def _places(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """Batch size and number of kernel positions per axis of a padded picture."""
        rank = len(sizes) - 1
        kernel, strides, dilations, _ = self._window
        spans = [(kernel[i] - 1) * dilations[i] + 1 for i in range(rank)]
        return (sizes[0], *((sizes[1 + i] - spans[i]) // strides[i] + 1 for i in range(rank)))


class Moments:
    """First and second moments of what a product reads in the float model (f) and in the quantised one (q).

    Sums are float32, of values without their mean: as exact as the rows are, and half the memory of float64.

    Args:
        weights: of the product in the float model, float32[groups, outputs, inputs].
        whole: False keeps of the second moments only the diagonal, for `power`.

    Attributes:
        count: rows seen.
        f, q: means, float64[groups, inputs].
    """

    def __init__(self, product: Product, weights: np.ndarray, whole: bool = True) -> None:
        self.count = 0
        self._whole = whole
        self._weights = weights
        self._early = product.outputs < product.inputs  # W (f - q) of each row is smaller than (f - q) q'
        self._offset: np.ndarray | None = None  # near the mean
        self._f = np.zeros((product.groups, product.inputs))
        self._q = np.zeros_like(self._f)
        self._squares = np.zeros_like(self._f)
        self._qq = np.zeros((product.groups, product.inputs, product.inputs if whole else 0), np.float32)
        if not whole:
            return
        self._rest = np.zeros_like(weights) if self._early else np.zeros_like(self._qq)

    def add(self, f: np.ndarray, q: np.ndarray) -> None:
        """Rows of both models at the same places. [groups, places, inputs]; both are changed."""
        ones = np.ones((1, f.shape[1]), np.float32)
        if self._offset is None:
            self._offset = ones @ f / np.float32(f.shape[1])
        f -= self._offset
        q -= self._offset
        self.count += f.shape[1]
        self._f += (ones @ f)[:, 0]
        self._q += (ones @ q)[:, 0]
        if not self._whole:
            self._squares += np.einsum("gpi,gpi->gi", q, q)
            return
        self._qq += q.transpose(0, 2, 1) @ q
        lost = np.subtract(f, q, out=f)
        if self._early:
            lost = lost @ self._weights.transpose(0, 2, 1)
        self._rest += lost.transpose(0, 2, 1) @ q

    @property
    def f(self) -> np.ndarray:
        return self._f / self.count + self._shift

    @property
    def q(self) -> np.ndarray:
        return self._q / self.count + self._shift

    def power(self) -> np.ndarray:
        """E[q^2] of each input, where the other moments are not kept. float64[groups, inputs]."""
        spread = self._squares / self.count - np.square(self._q / self.count)
        return np.asarray(np.maximum(spread, 0.0) + np.square(self.q))

    def of_inputs(self, central: bool = True) -> np.ndarray:
        """E[q q'], without q q' of the means if `central`. float32[groups, inputs, inputs]; to be called once, because
        it is in the memory of the sums."""
        q = (self._q / self.count).astype(np.float32)
        whole = self.q.astype(np.float32)
        found = self._qq
        found /= np.float32(self.count)
        for start in range(0, found.shape[1], _ROWS):
            rows = slice(start, start + _ROWS)
            found[:, rows] -= q[:, rows, None] * q[:, None, :]
            if not central:
                found[:, rows] += whole[:, rows, None] * whole[:, None, :]
        return found

    def of_loss(self, central: bool = True) -> np.ndarray:
        """E[W (f - q) q'], without the means' part if `central`. float32[groups, outputs, inputs]; to be called once,
        because it is in the memory of the sums where that has the shape."""
        q = (self._q / self.count).astype(np.float32)
        whole = self.q.astype(np.float32)
        mean = (self._weights @ (self.f - self.q)[:, :, None].astype(np.float32))[:, :, 0]
        found = self._rest
        found /= np.float32(self.count)
        if not self._early:
            found = self._weights @ found
        for start in range(0, found.shape[1], _ROWS):
            rows = slice(start, start + _ROWS)
            found[:, rows] -= mean[:, rows, None] * q[:, None, :]
            if not central:
                found[:, rows] += mean[:, rows, None] * whole[:, None, :]
        return found

    @property
    def _shift(self) -> np.ndarray | float:
        return 0.0 if self._offset is None else self._offset[:, 0].astype(np.float64)
