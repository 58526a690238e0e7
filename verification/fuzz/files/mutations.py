"""Changes to files, drawn from a seeded generator."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from typing import Any

#: Numbers at the edges of what types, sizes and loops can hold.
INTEGERS = (
    0, 1, 2, 3, 7, 8, 127, 128, 255, 256, 65535, 65536, 1 << 20, 1 << 24, (1 << 31) - 1, 1 << 31, (1 << 32) - 1,
    1 << 32, 1 << 40, 1 << 60, (1 << 63) - 1, -1, -2, -128, -(1 << 31), -(1 << 63),
)  # fmt: skip
FLOATS = (0.0, -0.0, 1e-45, 1e-38, 1.0, -1.0, 0.5, 255.0, 3e38, -3e38, float("inf"), float("-inf"), float("nan"))
TEXTS = ("", "a", "x" * 300, "../../etc/passwd", "a\nb", "$(shell true)", "\x00", "é", "\U0001f600", "a/b", "%s{}")


def mutate_bytes(rng: random.Random, data: bytes, most: int = 8) -> bytes:
    """Returns a few changes anywhere, most often small ones."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, most))):
        rng.choice(_CHANGES)(rng, found)
    return bytes(found)


def _flip(rng: random.Random, data: bytearray) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _set(rng: random.Random, data: bytearray) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))


def _number(rng: random.Random, data: bytearray) -> None:
    size, form = rng.choice(((2, "H"), (4, "I"), (8, "Q")))
    if len(data) < size:
        return
    at = rng.randrange(len(data) - size + 1)
    at -= at % size if rng.random() < 0.7 else 0
    value = rng.choice(INTEGERS) & ((1 << 8 * size) - 1)
    struct.pack_into(rng.choice("<>") + form, data, at, value)


def _real(rng: random.Random, data: bytearray) -> None:
    if len(data) >= 4:
        struct.pack_into("<f", data, rng.randrange(len(data) - 3) & ~3, rng.choice(FLOATS))


def _cut(rng: random.Random, data: bytearray) -> None:
    del data[rng.randrange(len(data) + 1) :]


def _remove(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data) + 1)
    del data[at : at + rng.randrange(1, 40)]


def _repeat(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data) + 1)
    piece = data[at : at + rng.randrange(1, 60)]
    data[at:at] = piece * rng.choice((1, 1, 2, 20))


def _insert(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data) + 1)
    data[at:at] = rng.randbytes(rng.randrange(1, 16))


_CHANGES = (_flip, _flip, _set, _set, _number, _number, _number, _real, _cut, _remove, _repeat, _insert)


def mutate_tree(rng: random.Random, value: Any, depth: int = 0) -> Any:
    """Returns a JSON value with one thing in it changed."""
    if isinstance(value, dict) and value and rng.random() < 0.93:
        key = rng.choice(list(value))
        found = dict(value)
        kind = rng.random()
        if kind < 0.06:
            del found[key]
        elif kind < 0.1:
            found[rng.choice(TEXTS)] = found[key]
        else:
            found[key] = mutate_tree(rng, value[key], depth + 1)
        return found
    if isinstance(value, list) and value and rng.random() < 0.9:
        at, items = rng.randrange(len(value)), list(value)
        kind = rng.random()
        if kind < 0.06:
            del items[at]
        elif kind < 0.12:
            items.insert(at, items[rng.randrange(len(items))])
        else:
            items[at] = mutate_tree(rng, value[at], depth + 1)
        return items
    return another(rng, value)


def another(rng: random.Random, value: Any) -> Any:
    """Returns a value in place of a leaf: mostly of its type."""
    if rng.random() < 0.15:
        return rng.choice((None, True, [], {}, [[]], "text", 1, -1, 0.5, 1 << 70, nested(rng.choice((3, 40, 400)))))
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice((value + 1, value - 1, -value, value * 2, rng.choice(INTEGERS), rng.choice(INTEGERS)))
    if isinstance(value, float):
        return rng.choice(FLOATS)
    return rng.choice(TEXTS)


def nested(depth: int) -> Any:
    """Returns a list in a list."""
    found: Any = []
    for _ in range(depth):
        found = [found]
    return found


def weighted(rng: random.Random, changes: Sequence[tuple[float, Callable[[], bytes]]]) -> bytes:
    """Returns the result of one of the changes, by weight."""
    weights, functions = zip(*changes)
    return rng.choices(functions, weights)[0]()  # type: ignore[no-any-return]
