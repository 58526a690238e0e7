"""What a product reads: the values under its kernel at some places, as rows of a matrix, and their second moments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.quantize.layers import Layer, attributes_of


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
        """The inverse of `matrix`."""
        if self.layer.op == "Conv":
            return np.asarray(matrix.reshape(self.shape))
        return np.ascontiguousarray(matrix[0] if self.layer.axis == 0 else matrix[0].T)

    def places(self, x: np.ndarray, limit: int, random: np.random.Generator) -> np.ndarray:
        """Numbers of at most `limit` results, for `rows`."""
        count = int(np.prod(self._result(x)))
        return np.sort(random.choice(count, limit, replace=False)) if count > limit else np.arange(count)

    def rows(self, x: np.ndarray, places: np.ndarray) -> np.ndarray:
        """What the results at some places are products with: float32[groups, places, inputs]."""
        if self.layer.op != "Conv":
            return np.asarray(x.reshape(-1, self.inputs)[places][None])
        rank = x.ndim - 2
        kernel, strides, dilations, pads = self._window(rank)
        padded = np.pad(x, [(0, 0), (0, 0), *((pads[i], pads[rank + i]) for i in range(rank))])
        at = np.unravel_index(places, self._result(x))
        steps = np.indices(kernel).reshape(rank, -1)
        index = [at[1 + i][:, None] * strides[i] + steps[i][None] * dilations[i] for i in range(rank)]
        found = padded[(at[0][:, None], slice(None), *index)]  # [places, kernel, channels]
        found = found.transpose(0, 2, 1).reshape(len(places), self.groups, self.inputs)
        return np.ascontiguousarray(found.transpose(1, 0, 2))

    def _window(self, rank: int) -> tuple[list[int], list[int], list[int], list[int]]:
        attributes = attributes_of(self.layer.nodes[0])

        def numbers(name: str, default: list[int]) -> list[int]:
            found = attributes.get(name)
            return [int(v) for v in found] if isinstance(found, list) else default

        pads = numbers("pads", [0] * 2 * rank)
        return list(self.shape[2:]), numbers("strides", [1] * rank), numbers("dilations", [1] * rank), pads

    def _result(self, x: np.ndarray) -> tuple[int, ...]:
        """Sizes of the result without its channels."""
        if self.layer.op != "Conv":
            return (x.size // self.inputs,)
        rank = x.ndim - 2
        kernel, strides, dilations, pads = self._window(rank)
        spans = [(kernel[i] - 1) * dilations[i] + 1 for i in range(rank)]
        return (x.shape[0], *(
            (x.shape[2 + i] + pads[i] + pads[rank + i] - spans[i]) // strides[i] + 1 for i in range(rank)
        ))  # fmt: skip


class Moments:
    """First and second moments of what a product reads in the float model (f) and in the quantised one (q).

    Attributes:
        count: rows seen.
        f, q: means, float64[groups, inputs].
        qq: E[q q'] - q q', float64[groups, inputs, inputs].
        fq: E[f q'] - f q'.
    """

    def __init__(self, product: Product) -> None:
        self.count = 0
        self._offset: np.ndarray | None = None  # near the mean, so that float32 products lose nothing
        self._f = np.zeros((product.groups, product.inputs))
        self._q = np.zeros_like(self._f)
        self._qq = np.zeros((product.groups, product.inputs, product.inputs))
        self._fq = np.zeros_like(self._qq)

    def add(self, f: np.ndarray, q: np.ndarray) -> None:
        """Rows of both models at the same places. [groups, places, inputs]."""
        if self._offset is None:
            self._offset = f.mean(axis=1, keepdims=True)
        f, q = f - self._offset, q - self._offset
        self.count += f.shape[1]
        self._f += f.sum(axis=1, dtype=np.float64)
        self._q += q.sum(axis=1, dtype=np.float64)
        self._qq += q.transpose(0, 2, 1) @ q
        self._fq += f.transpose(0, 2, 1) @ q

    @property
    def f(self) -> np.ndarray:
        return self._f / self.count + self._shift

    @property
    def q(self) -> np.ndarray:
        return self._q / self.count + self._shift

    @property
    def qq(self) -> np.ndarray:
        q = self._q / self.count
        return np.asarray(self._qq / self.count - q[:, :, None] * q[:, None, :])

    @property
    def fq(self) -> np.ndarray:
        f, q = self._f / self.count, self._q / self.count
        return np.asarray(self._fq / self.count - f[:, :, None] * q[:, None, :])

    @property
    def _shift(self) -> np.ndarray | float:
        return 0.0 if self._offset is None else self._offset[:, 0].astype(np.float64)
