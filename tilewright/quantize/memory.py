"""Freed memory back to the system."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable

_trim: Callable[[int], object] | None = None
with contextlib.suppress(OSError, TypeError, AttributeError):  # other C libraries have no such function
    _trim = ctypes.CDLL(None).malloc_trim


def give_back() -> None:
    """Hands freed memory back: tensors of many sizes come and go here, and glibc keeps what lies between those that
    stay, which is more than what is in use. It costs some milliseconds: call it where large tensors were dropped."""
    if _trim is not None:
        _trim(0)
