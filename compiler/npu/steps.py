"""Order of work and memory: items grouped into steps, buffers placed by lifetime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from compiler.npu.partition import Item

_ALIGN = 64


@dataclass
class Step:
    """Items that run together: all on the NPU or all on the CPU."""

    on_npu: bool
    items: list[Item]


def group_steps(items: list[Item], available: Iterable[str]) -> list[Step]:
    """Orders items so that as few changes between NPU and CPU as possible remain, keeping their order otherwise."""
    ready = set(available)
    # Several layers may write parts of one buffer: it is there when the last one has written.
    writers = Counter(name for item in items for name in item.writes())
    steps: list[Step] = []
    left = items
    on_npu = False
    while left:
        step = Step(on_npu, [])
        while True:
            later = []
            moved = False
            for item in left:
                if item.on_npu == on_npu and all(name in ready for name in item.reads()):
                    step.items.append(item)
                    moved = True
                    writers.subtract(item.writes())
                    ready.update(n for n in item.writes() if not writers[n])
                else:
                    later.append(item)
            left = later
            if not moved or not left:
                break
        if step.items:
            steps.append(step)
        elif steps and steps[-1].on_npu != on_npu and not any(i.on_npu == on_npu for i in left):
            raise AssertionError("no item can run")
        on_npu = not on_npu
    return steps


def split_at_borders(steps: list[Step], inexact: Collection[str] = ()) -> list[Step]:
    """Ends a step after every QuantizeLinear of the CPU and every node that makes one of `inexact`, so that the result
    can be replaced before anything reads it."""
    split: list[Step] = []
    for step in steps:
        part: list[Item] = []
        for item in step.items:
            part.append(item)
            if _ends_step(item, inexact):
                split.append(Step(step.on_npu, part))
                part = []
        if part:
            split.append(Step(step.on_npu, part))
    return split


def _ends_step(item: Item, inexact: Collection[str]) -> bool:
    if item.layer is not None:
        return item.layer.source in inexact
    return item.node is not None and (item.node.op == "QuantizeLinear" or item.node.outputs[0] in inexact)


class Arena:
    """Places buffers at offsets so that those alive at the same time do not overlap (largest first, lowest fit)."""

    def __init__(self) -> None:
        self._wanted: dict[str, tuple[int, int, int]] = {}
        self.offsets: dict[str, int] = {}
        self.size = 0

    def want(self, name: str, nbytes: int, first: int, last: int) -> None:
        """`name` is alive from position `first` to `last`; calling again widens its life."""
        if name in self._wanted:
            _, f, e = self._wanted[name]
            first, last = min(first, f), max(last, e)
        self._wanted[name] = (-(-max(nbytes, 1) // _ALIGN) * _ALIGN, first, last)

    def place(self) -> None:
        placed: list[tuple[int, int, int, int]] = []  # offset, end, first, last
        for name, (size, first, last) in sorted(self._wanted.items(), key=lambda w: (-w[1][0], w[1][1])):
            at = 0
            for start, end, f, e in sorted(p for p in placed if p[2] <= last and p[3] >= first):
                if at + size <= start:
                    break
                at = max(at, end)
                _ = f, e
            placed.append((at, at + size, first, last))
            self.offsets[name] = at
            self.size = max(self.size, at + size)

    def nbytes(self, name: str) -> int:
        return self._wanted[name][0]

    @property
    def total(self) -> int:
        """What separate places would take."""
        return sum(size for size, _, _ in self._wanted.values())
