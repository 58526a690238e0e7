"""Names of what depends on a whole row: Softmax and norms, as isa.numerics and isa.row_norm define them in integers.

A sum of table words is the sum of a new element for each word, so it has one name for any order of the row.
"""

from __future__ import annotations

import hashlib

import numpy as np

from tilewright.prove.checker.cells import VALUE
from tilewright.prove.checker.fields import PRIMES, Array
from tilewright.prove.checker.names import Names


def _digest(*tables: Array) -> str:
    return hashlib.blake2b(b"".join(np.asarray(t, np.int64).tobytes() for t in tables), digest_size=16).hexdigest()


def summed(elements: Array, counts: Array | None = None) -> Array:
    """Sums of elements [..., n, FIELDS] over n, of those that count."""
    wide = elements.astype(np.int64) if counts is None else np.where(counts[..., None], elements, 0).astype(np.int64)
    return np.asarray(wide.sum(axis=-2) % PRIMES, np.uint32)


def exponentials(names: Names, words: Array, cells: Array, maxima: Array) -> Array:
    """Elements of `words[(byte - maximum) & 255]`, [..., n, FIELDS], of cells [..., n, CELL] and maxima [..., CELL]."""
    names.count("exponential")
    least = np.broadcast_to(maxima[..., None, VALUE], cells[..., VALUE].shape)
    return names.mix(("exponential", _digest(words)), cells[..., VALUE], least)


def row_scales(names: Names, total: Array, number: int, exponent: int) -> Array:
    """Elements of `isa.numerics.row_scale` of sums [..., FIELDS]."""
    return names.mix(("row_scale", number, exponent), total)


def probabilities(names: Names, exponent: Array, scales: Array, zero_point: int, low: int, high: int) -> Array:
    """Cells of `isa.numerics.requantize` of exponentials by scales, both [..., FIELDS]."""
    return names.clamp(names.cells(names.mix(("probability", int(zero_point)), exponent, scales)), low, high)


def moments(names: Names, squares: Array, values: Array, cells: Array) -> Array:
    """Elements of the pair `squares[byte], values[byte]`, which is added over a row."""
    names.count("moment")
    return names.mix(("moment", _digest(squares, values)), cells[..., VALUE])


def row_norms(names: Names, total: Array, count: int, epsilon: int, centred: bool) -> Array:
    """Elements of `isa.row_norm.row_norm` of sums of `moments`."""
    return names.mix(("row_norm", int(count), int(epsilon), bool(centred)), total)


def normalised(
    names: Names, cells: Array, norms: Array, bias: Array, scale: Array, zero_point: int, low: int, high: int
) -> Array:
    """Cells of `isa.row_norm.normalise` of cells [..., CELL], norms [..., FIELDS], int32 biases and scale patterns."""
    shape = cells.shape[:-1]
    words = [np.broadcast_to(x.astype(np.int64).astype(np.uint64), shape) for x in (bias, scale)]
    lifted = np.broadcast_to(norms, (*shape, norms.shape[-1]))
    return names.clamp(
        names.cells(names.mix(("normalise", int(zero_point)), cells[..., VALUE], lifted, *words)), low, high
    )
