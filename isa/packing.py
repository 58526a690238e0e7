"""Weights of 4 bits, two a byte: the layout that LOAD_PACKED reads."""

from __future__ import annotations

import numpy as np

#: The values that weights of 4 bits have.
LEAST, MOST = -8, 7


def fits(weights: np.ndarray) -> bool:
    """Returns True if all int8 weights, of any shape, are values of 4 bits."""
    return not weights.size or bool(weights.min() >= LEAST and weights.max() <= MOST)


def packed(weights: np.ndarray) -> bytes:
    """Returns int8 weights of an even number two a byte, the first of each two in bits 0..3.

    Raises:
        ValueError: a weight is no value of 4 bits.
    """
    if not fits(weights):
        raise ValueError(f"weights of 4 bits must be {LEAST}..{MOST}, not {weights.min()}..{weights.max()}")
    nibbles = weights.reshape(-1, 2).view(np.uint8) & 15
    return (nibbles[:, 0] | nibbles[:, 1] << 4).tobytes()


def unpacked(data: np.ndarray) -> np.ndarray:
    """Returns the weights, uint8 [2 n] of two's complement, of uint8 [n] bytes with two weights each."""
    nibbles = np.stack([data & 15, data >> 4], axis=-1).reshape(-1)
    return ((nibbles ^ 8) - 8).astype(np.uint8)
