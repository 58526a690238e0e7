"""Freed memory back to the system."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable

SLACK = 128 << 20
"""Growth of the process, in bytes, after which free memory is returned."""

_PAGE = 4096

_trim: Callable[[int], object] | None = None
with contextlib.suppress(OSError, TypeError, AttributeError):  # other C libraries have no such function
    _trim = ctypes.CDLL(None).malloc_trim

_MMAP_THRESHOLD, _BLOCK = -3, 1 << 24  # of mallopt; smaller blocks would cost a page fault for each 4 KB


def separate_blocks() -> None:
    """Gives every block of 16 MB or more of this process pages of its own from now on, which go back to the system when
    it is freed. glibc begins so, too, but raises the limit to what was freed last: then large tensors lie between small
    things that stay.
    """
    with contextlib.suppress(OSError, TypeError, AttributeError):  # other C libraries have no such function
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _BLOCK)


_least = 0  # resident bytes, at least, since the last time


def resident() -> int:
    """Bytes of this process in memory; 0 where the system does not say."""
    try:
        file = os.open("/proc/self/statm", os.O_RDONLY)
    except OSError:
        return 0
    try:
        return int(os.read(file, 100).split()[1]) * _PAGE
    finally:
        os.close(file)


def trim_heap() -> None:
    """Returns freed memory to the system if the process has grown. Tensors of many sizes come and go here, and glibc
    keeps what lies between those that stay, which is more than what is in use. Call it where large tensors were
    dropped."""
    global _least
    if _trim is None:
        return
    now = resident()
    if now > _least + SLACK:
        _trim(0)
        _least = resident()
    _least = min(_least, now)
