"""Offsets for buffers, so that those alive at the same time do not overlap."""

from __future__ import annotations

from msgspec import Struct

from tilewright.compiler.errors import CompileError

_ALIGN = 64  # bytes


class _Life(Struct, frozen=True):
    """A buffer's size in bytes, and the first and last position in the order of work at which it is needed."""

    nbytes: int
    first: int
    last: int

    def overlaps(self, other: _Life) -> bool:
        return self.first <= other.last and other.first <= self.last


class MemoryPlan:
    """Places of the buffers of one memory: the largest are placed first, each as low as it fits.

    Attributes:
        offsets: by name, bytes from the start of the memory.
        size: of the memory, bytes.
    """

    def __init__(self) -> None:
        self._lives: dict[str, _Life] = {}
        self.offsets: dict[str, int] = {}
        self.size = 0
        self._first: list[str] = []

    def need(self, name: str, nbytes: int, first: int, last: int) -> None:
        """`name` is needed from position `first` to `last`; calling again widens its life."""
        life = self._lives.get(name)
        if life is not None:
            first, last = min(first, life.first), max(last, life.last)
        self._lives[name] = _Life(-(-max(nbytes, 1) // _ALIGN) * _ALIGN, first, last)

    def begin_with(self, name: str) -> None:
        """Places `name`, which is needed to the end, before all others and behind what was named before: every program
        with such buffers has them at the same offsets."""
        self._first.append(name)

    def place(self) -> None:
        """Gives every buffer its offset."""
        placed: list[tuple[int, int, _Life]] = []  # offset, end, life
        for name in self._first:
            life = self._lives[name]
            self.offsets[name] = self.size
            self.size += life.nbytes
            placed.append((self.offsets[name], self.size, life))
        others = [(name, life) for name, life in self._lives.items() if name not in self.offsets]
        for name, life in sorted(others, key=lambda item: (-item[1].nbytes, item[1].first)):
            at = 0
            for start, end, _ in sorted((p for p in placed if p[2].overlaps(life)), key=lambda p: p[:2]):
                if at + life.nbytes <= start:
                    break
                at = max(at, end)
            placed.append((at, at + life.nbytes, life))
            self.offsets[name] = at
            self.size = max(self.size, at + life.nbytes)

    def share(self, name: str, home: str) -> None:
        """`name` lies where `home` does, which was placed, by agreement of all that use them."""
        self._lives[name], self.offsets[name] = self._lives[home], self.offsets[home]

    def nbytes(self, name: str) -> int:
        return self._lives[name].nbytes

    @property
    def total(self) -> int:
        """Bytes that separate places would take."""
        return sum(life.nbytes for life in self._lives.values())

    def verify(self, memory: str) -> None:
        """Raises `CompileError` if two buffers overlap while both are needed. `memory` is its name, for the message."""
        by_offset = sorted(self.offsets, key=self.offsets.__getitem__)
        open_: list[str] = []  # buffers that reach beyond the one looked at
        for name in by_offset:
            at, life = self.offsets[name], self._lives[name]
            open_ = [other for other in open_ if self.offsets[other] + self._lives[other].nbytes > at]
            for other in open_:
                if life.overlaps(self._lives[other]):
                    raise CompileError(f"{memory} broken: {name!r} and {other!r} share bytes while both are needed")
            if at < 0 or at + life.nbytes > self.size:
                raise CompileError(f"{memory} broken: {name!r} lies outside its {self.size} bytes")
            open_.append(name)
