"""Loop nests of instructions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from tilewright.isa.encoding import Op


class Loop(Struct, frozen=True):
    """One level of a loop nest or box: iterations and strides by field name."""

    count: int
    strides: dict[str, int]

    def __getitem__(self, name: str) -> int:
        return self.strides.get(name, 0)


def walk(loops: Sequence[Loop]) -> Iterator[tuple[int, ...]]:
    """Index tuples of a loop nest, level 0 fastest."""
    if not loops:
        yield ()
        return
    for outer in walk(loops[1:]):
        for i in range(loops[0].count):
            yield (i, *outer)


def offset(loops: Sequence[Loop], index: Sequence[int], stride: str) -> int:
    """The sum of index times stride over the levels."""
    return sum(i * loop[stride] for i, loop in zip(index, loops))


def offsets(loops: Sequence[Loop], stride: str) -> np.ndarray:
    """int64 array of `offset` for every index of the nest, in the order of `walk`."""
    total = np.zeros(1, np.int64)
    for loop in loops:
        total = (np.arange(loop.count)[:, None] * loop[stride] + total).reshape(-1)
    return total


def loop_of(op: Op) -> Loop:
    """The level that an instruction configures."""
    return Loop(op["count"], {name: value for name, value in op.values.items() if name.endswith("_stride")})
