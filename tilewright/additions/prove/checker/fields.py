"""The fields of names: integers modulo four primes, side by side. Elements are uint32 [..., FIELDS]."""

from __future__ import annotations

import numpy as np

Array = np.ndarray

#: The four largest primes below 2**31: sums of products by small weights are exact in float64.
PRIMES = np.array([2147483647, 2147483629, 2147483587, 2147483579], np.int64)
FIELDS = len(PRIMES)


def residues(values: Array) -> Array:
    """Integers as elements: uint32 [..., FIELDS]."""
    return np.asarray(np.asarray(values, np.int64)[..., None] % PRIMES, np.uint32)


def as_integers(elements: Array) -> tuple[Array, Array]:
    """Marks the elements that are constants, and gives their values (0 elsewhere).

    An element is a constant if it is that of one integer of less than 2**30 in all fields; others are so by chance
    once in 2**93.
    """
    first = elements[..., 0].astype(np.int64)
    value = np.where(first > PRIMES[0] >> 1, first - PRIMES[0], first)
    known = np.abs(value) < 1 << 30
    for k in range(1, FIELDS):
        known &= value % PRIMES[k] == elements[..., k]
    return known, np.where(known, value, 0)


def matrix_product(a: Array, w: Array) -> Array:
    """Elements [..., N, FIELDS] times integers [N, O] of at most 9 bits: elements [..., O, FIELDS], uint32."""
    lead, n = a.shape[:-2], a.shape[-2]
    flat, weights = a.reshape(-1, n, FIELDS), w.astype(np.float64)
    found = np.empty((len(flat), w.shape[1], FIELDS), np.uint32)
    for k in range(FIELDS):
        total = np.zeros((len(flat), w.shape[1]), np.int64)
        for i in range(0, n, 1 << 13):  # 31 + 9 + 13 bits are exact
            part = np.ascontiguousarray(flat[:, i : i + (1 << 13), k], np.float64) @ weights[i : i + (1 << 13)]
            total += part.astype(np.int64) % PRIMES[k]
        found[..., k] = total % PRIMES[k]
    return found.reshape(*lead, w.shape[1], FIELDS)


def field_product(a: Array, b: Array) -> Array:
    """Elements [..., M, N, FIELDS] times elements [..., N, O, FIELDS]."""
    found = np.empty((*np.broadcast_shapes(a.shape[:-3], b.shape[:-3]), a.shape[-3], b.shape[-2], FIELDS), np.uint32)
    for k in range(FIELDS):
        halves = [[(x[..., k] >> s & 0xFFFF).astype(np.float64) for s in (0, 16)] for x in (a, b)]
        total = np.zeros(found.shape[:-1], np.int64)
        for i, left in enumerate(halves[0]):
            for j, right in enumerate(halves[1]):
                part = (left @ right).astype(np.int64) % PRIMES[k]
                total += part * ((1 << 16 * (i + j)) % int(PRIMES[k])) % PRIMES[k]
        found[..., k] = total % PRIMES[k]
    return found
