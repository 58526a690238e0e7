"""`Allocator`: first-fit allocation of addresses in device memory."""

from __future__ import annotations

from bisect import insort

from tilewright.common.errors import TilewrightError

#: Every place begins at a multiple of this many bytes.
ALIGNMENT = 64


class MemoryFull(TilewrightError):
    """The device memory has no room for an allocation. The message has the sizes in bytes."""


class Allocator:
    """Hands out the bytes from..to-1.

    Args:
        start: first address, rounded up to a multiple of ALIGNMENT.
        end: one past the last address; None = no end.

    Attributes:
        top: one past the highest address ever in use since the last `free_all`.
    """

    def __init__(self, start: int, end: int | None = None) -> None:
        self._start = self.top = _aligned(start)
        self._end = end
        self._used: list[tuple[int, int]] = []  # (address, size), sorted

    def allocate(self, nbytes: int) -> int:
        """Allocates `nbytes` bytes and returns their address. Raises `MemoryFull`."""
        size = _aligned(max(nbytes, 1))
        address = self._start
        for taken, length in self._used:
            if taken - address >= size:
                break
            address = taken + length
        if self._end is not None and address + size > self._end:
            free = self._end - self._start - sum(length for _, length in self._used)
            raise MemoryFull(
                f"device memory is full: {nbytes} bytes asked for, {max(free, 0)} of {self._end - self._start} free"
            )
        insort(self._used, (address, size))
        self.top = max(self.top, address + size)
        return address

    def free(self, address: int) -> int:
        """Frees the allocation at an address; returns its size in bytes.

        Raises:
            ValueError: nothing begins at this address.
        """
        for index, (taken, length) in enumerate(self._used):
            if taken == address:
                del self._used[index]
                return length
        raise ValueError(f"nothing was allocated at address 0x{address:x}")

    def free_all(self) -> None:
        """Frees every allocation."""
        self._used.clear()
        self.top = self._start


def _aligned(value: int) -> int:
    return -(-value // ALIGNMENT) * ALIGNMENT
