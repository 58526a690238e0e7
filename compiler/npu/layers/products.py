"""Lower bounds on the array's steps for the products of a layer, whatever their place and order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.compiler.npu.layers.rest import Rest
from tilewright.isa.config import NpuConfig

_PAIR_BYTES = 8  # a bias and a scale


@dataclass(frozen=True, eq=False)
class Products:
    """The products whose sums are a layer's results.

    Attributes:
        rows, columns: for every row and every column of the output, the number of kernel taps inside the input. Taps in
            the padding add a constant, which needs no products.
        depth: products of a tap.
        outputs: sums at each position, of all images: one for each byte of a result.
    """

    rows: np.ndarray
    columns: np.ndarray
    depth: int
    outputs: int

    def steps(self, config: NpuConfig, rows: np.ndarray, columns: np.ndarray) -> int:
        """Returns the least number of steps of the array for the chosen rows and columns.

        A step adds to at most block_out results, and to each at most block_in products.

        Args:
            config: the machine.
            rows, columns: chosen rows and columns of the output, bool.
        """
        down, across = (Counter(taps[chosen].tolist()) for taps, chosen in ((self.rows, rows), (self.columns, columns)))
        parts: int = sum(
            n * m * -(-a * b * self.depth // config.block_in) for a, n in down.items() for b, m in across.items()
        )
        return -(-parts * self.outputs // config.block_out)


def taps_inside(outputs: int, inputs: int, kernel: int, stride: int, dilation: int, pad: int) -> np.ndarray:
    """Returns the number of taps inside the input for every output of a convolution along one axis, int64 [outputs]."""
    at = np.arange(outputs)[:, None] * stride - pad + np.arange(kernel) * dilation
    return np.asarray(((at >= 0) & (at < inputs)).sum(1))


def transposed_taps(outputs: int, inputs: int, kernel: int, stride: int, dilation: int, pad: int) -> np.ndarray:
    """Returns the number of taps for every output of a transposed convolution along one axis, int64 [outputs].

    Input i times tap k is added to output i * stride + k * dilation - pad.
    """
    at = (np.arange(inputs)[:, None] * stride + np.arange(kernel) * dilation - pad).reshape(-1)
    return np.bincount(at[(at >= 0) & (at < outputs)], minlength=outputs)


def minimum_constants(
    weights: Sequence[np.ndarray],
    rests: Sequence[Rest | None],
    bias: np.ndarray,
    scale: np.ndarray,
    packed: bool = False,
) -> tuple[Hashable, int]:
    """Returns a key that is equal for equal constants of layers, and the least number of bytes to load for them.

    Zeros among the weights need no bytes, nor do biases and scales equal to another channel's.

    Args:
        weights: int8 weights.
        rests: rests of weights, None for none.
        bias: int32 [channels], or [phases, channels].
        scale: float32 [channels].
        packed: True if two weights take a byte.
    """
    values = [*weights, *(rest.values for rest in rests if rest is not None)]
    pairs = set(zip(bias.reshape(-1, scale.size)[0].tolist(), scale.tolist()))
    key = (*(hash(v.tobytes()) for v in values), hash(bias.tobytes()), hash(scale.tobytes()))
    return key, sum(int(np.count_nonzero(v)) for v in values) // (2 if packed else 1) + _PAIR_BYTES * len(pairs)
