"""Results of 16 bits: what VECTOR_WIDE makes of the sums of high and of low bytes, by isa.wide_numerics.

The name of a value of 16 bits is an element. Its high byte is a new element H, and its low one less 128 is what 256 H
leaves of it, so that both together are the value again. Sums of high and of low bytes stay apart in the name of a
result: each is below 2**31 for up to 65,536 products, so it does not matter that ACC wraps.
"""

from __future__ import annotations

import numpy as np

from tilewright.isa import wide_numerics
from tilewright.prove.checker.cells import CELL, VALUE
from tilewright.prove.checker.fields import PRIMES, Array, as_integers, residues
from tilewright.prove.checker.names import Names
from tilewright.prove.checker.products import convolved
from tilewright.prove.checker.rules import Node, padded, rule, taps, unknown


def split(names: Names, values: Array) -> tuple[Array, Array]:
    """Elements of the high bytes, and of the low ones less 128, of elements of 16 bits."""
    known, constant = as_integers(values)
    high = np.where(known[..., None], residues(constant >> 8), names.mix(("high byte",), values))
    return high, np.asarray((values + PRIMES * 256 - high.astype(np.int64) * 256 - 128) % PRIMES, np.uint32)


def join(high: Array, low: Array) -> Array:
    """Elements of 16 bits of those of their bytes."""
    return np.asarray((high.astype(np.int64) * 256 + low + 128) % PRIMES, np.uint32)


def results(names: Names, high: Array, low: Array, bias: Array, scale: Array, least: int, most: int) -> Array:
    """Elements of `isa.wide_numerics.requantize_wide_bits` of sums of both bytes [..., FIELDS].

    Args:
        bias, scale: int32 and uint32 words of PRM, broadcast.
    """
    words = bias.astype(np.uint64), scale.astype(np.uint64)
    found = names.mix(("result of 16 bits", least, most), high, low, *words)
    (known_high, sums), (known_low, below) = as_integers(high), as_integers(low)
    known = known_high & known_low
    total = wide_numerics.wrap48((sums << 8) + below + bias)
    fixed = wide_numerics.requantize_wide_bits(total, np.broadcast_to(scale, total.shape), least, most)
    return np.where(known[..., None], residues(fixed), found)


@rule("QConv16")
def convolution(node: Node) -> Array:
    w, names, shape = node.constant(1).astype(np.int64), node.names, node.type().shape
    whole = w.sum(axis=(*range(1, w.ndim),))
    bias = node.bias() + 128 * whole
    if np.abs(bias).max() > wide_numerics.WIDE_BIAS_MOST:  # the CPU's alone
        return unknown(node)[0]
    bias, scale = wide_numerics.wide_parameters(bias, node["multipliers"], node["shifts"])
    high, low = split(names, node.cells()[..., VALUE])
    low = np.asarray((low.astype(np.int64) + 128) % PRIMES, np.uint32)  # 0 where there is padding
    places, w = taps(node, shape, w.shape[2:]), w.reshape(*w.shape[:2], -1)
    high, low = (
        convolved(names, padded(names.cells(part), names.bytes[0]), places, w, node["group"]) for part in (high, low)
    )
    low = np.asarray((low + 128 * (-whole[:, None] % PRIMES)) % PRIMES, np.uint32)
    found = results(names, high, low, bias, scale, node["low"], node["high"])
    return names.cells(np.moveaxis(found, 3, 1)).reshape(*node.result.shape, CELL)


@rule("SplitBytes")
def split_bytes(node: Node) -> Array:
    """Cells [2, ...] of both bytes, with zeros around the tensor."""
    names, begin, shape = node.names, node["begin"], node.result.shape
    values = np.zeros((*shape[1:], node.cells()[..., VALUE].shape[-1]), np.uint32)
    values[tuple(slice(b, b + n) for b, n in zip(begin, node.type().shape, strict=True))] = node.cells()[..., VALUE]
    return names.cells(np.stack(split(names, values)))


@rule("JoinBytes")
def join_bytes(node: Node) -> Array:
    return node.names.cells(join(*node.cells()[..., VALUE]))
