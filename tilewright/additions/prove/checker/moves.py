"""Rules of data movement, exact for every type of element."""

from __future__ import annotations

import numpy as np

from tilewright.prove.checker.cells import CELL, VALUE
from tilewright.prove.checker.fields import PRIMES
from tilewright.prove.checker.findings import NoRule
from tilewright.prove.checker.rules import Array, Node, rule, unknown


@rule("Relayout")
def relayout(node: Node) -> Array:
    """A conversion between a plain tensor and blocks: see `tables` in its attributes."""
    block, x, shape = node["block"], node.cells(), tuple(node["shape"])
    plain = shape if not block else (shape[0], *shape[2:-1], shape[1] * block)
    if (node["xor"] != 0) != (node.type().dtype != node.result.dtype):
        raise NoRule("no rule for a Relayout that does not store uint8 less 128")
    inside = np.ones(plain, bool)
    index = []
    for axis, table in enumerate(node["tables"]):
        at = np.zeros((1,) * len(plain), np.int64)
        for along, values in table.items():
            wide = [1] * len(plain)
            wide[along] = -1
            at = at + np.asarray(values, np.int64).reshape(wide)
        inside = inside & (at >= 0) & (at < x.shape[axis])
        index.append(np.broadcast_to(np.clip(at, 0, x.shape[axis] - 1), plain))
    fill = node.names.bytes[((node["fill"] & 255) ^ 128) - 128]
    found = np.where(inside[..., None], x[tuple(index)] if index else x.reshape(-1)[:CELL], fill)
    if block:
        found = np.moveaxis(found.reshape(*plain[:-1], shape[1], block, CELL), -3, 1)
    return np.ascontiguousarray(found)


@rule("PackMatMulParams")
def biases(node: Node) -> Array:
    """Rows of PRM for a product of two activations: bytes of `k * za * zb - za * sum(b)` and of the scale."""
    b, names, lanes = node.cells()[..., VALUE].astype(np.int64), node.names, node["lanes"]
    za, zb, (*batch, k, n) = node["a_zero_point"], node["b_zero_point"], node.type().shape
    sums = (k * za * zb - b.sum(axis=-3) % PRIMES * za) % PRIMES
    found = np.empty((*batch, -(-n // lanes) * lanes, 8, CELL), np.uint32)
    found[:] = names.bytes[0]
    found[..., :n, :4, :] = names.bytes_of(sums.astype(np.uint32))
    scale = np.frombuffer(np.float32(node["scale"]).tobytes(), np.int8)
    found[..., :n, 4:, :] = names.bytes[scale]
    return found


def _moved(node: Node, places: Array) -> Array:
    """The first operand's elements of these numbers."""
    node.names.count("data movement")
    return np.asarray(node.cells().reshape(-1, CELL)[places.ravel()].reshape(*node.result.shape, CELL))


def _places(node: Node) -> Array:
    """Numbers of the first operand's elements, in its shape: what moves is applied to these."""
    return np.arange(int(np.prod(node.type().shape))).reshape(node.type().shape)


@rule("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity")
def reshape(node: Node) -> Array:
    return _moved(node, _places(node))


@rule("Transpose")
def transpose(node: Node) -> Array:
    rank = len(node.type().shape)
    return _moved(node, _places(node).transpose(node.attributes.get("perm") or range(rank)[::-1]))


@rule("Slice")
def slice_(node: Node) -> Array:
    starts, ends, axes, steps = (node.constant(i).ravel().tolist() for i in (1, 2, 3, 4))
    places = _places(node)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        places = np.take(places, range(*slice(start, end, step).indices(places.shape[axis])), axis=axis)
    return _moved(node, places)


@rule("Split")
def split(node: Node) -> list[Array]:
    axis, sizes = node["axis"], node.constant(1).ravel()
    return list(np.split(node.cells(), np.cumsum(sizes)[:-1], axis=axis % len(node.type().shape)))


@rule("Gather")
def gather(node: Node) -> Array:
    """Elements at constant places; any others are an unknown function."""
    if node.type(1).data is None:
        return unknown(node)[0]
    return _moved(node, np.take(_places(node), node.constant(1), axis=node.attributes.get("axis", 0)))


@rule("ScatterElements")
def scatter(node: Node) -> Array:
    """An element may be what it was, or any new one of its column: a function of its place along the axis, of itself,
    and of all places and new elements of its column, in their order."""
    if node.attributes.get("reduction", "none") != "none":
        return unknown(node)[0]
    axis = node.attributes.get("axis", 0) % len(node.type().shape)
    old, places, new = (np.moveaxis(node.cells(i)[..., VALUE], axis, 0) for i in range(3))
    if old.shape[1:] != new.shape[1:]:
        return unknown(node)[0]
    rows = np.arange(len(old)).reshape(-1, *(1,) * (old.ndim - 2))
    column = [part for pair in zip(node.names.modulo(places, len(old)), new, strict=True) for part in pair]
    return np.moveaxis(node.names.put(old, rows, *column), 0, axis)


@rule("Mod")
def modulo(node: Node) -> Array:
    """Integers modulo one positive constant; others are unknown."""
    divisor = node.type(1).data
    whole = divisor is not None and divisor.size == 1 and divisor.dtype.kind in "iu" and divisor.item() > 0
    if divisor is None or not whole or node.attributes.get("fmod", 0):
        return unknown(node)[0]
    found = node.names.modulo(node.cells()[..., VALUE], divisor.item())
    return np.broadcast_to(node.names.cells(found), (*node.result.shape, CELL))


@rule("Tile", "Expand")
def tile(node: Node) -> Array:
    before, after = node.type().shape, node.result.shape
    wide = (1,) * (len(after) - len(before)) + tuple(before)
    index = np.ix_(*(np.arange(n) % m for m, n in zip(wide, after, strict=True)))
    return _moved(node, _places(node).reshape(wide)[index])


@rule("Concat")
def joined(node: Node) -> Array:
    rank = len(node.result.shape)
    return np.concatenate([node.cells(i) for i in range(len(node.step.inputs))], axis=node["axis"] % rank)


@rule("Pad")
def pad(node: Node) -> Array:
    mode, shape = node["mode"], node.type().shape
    if len(node.types) > 3 and node.types[3] is not None:
        raise NoRule("no rule for Pad along some axes")
    amounts = node.constant(1).reshape(2, -1).T
    inner = tuple(slice(max(0, -int(b)), n - max(0, -int(e))) for n, (b, e) in zip(shape, amounts, strict=True))
    wide = [(max(0, int(b)), max(0, int(e))) for b, e in amounts]
    if mode != "constant":
        return _moved(node, np.pad(_places(node)[inner], wide, mode=mode))
    if len(node.types) < 3 or node.types[2] is None:
        raise NoRule("no rule for Pad without a value")
    places = np.pad(_places(node)[inner], wide, constant_values=-1).reshape(node.result.shape)
    return np.where(places[..., None] < 0, node.cells(2).reshape(CELL), _moved(node, np.maximum(places, 0)))
