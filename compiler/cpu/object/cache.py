"""Caches object code by the hash of its source: in this process, and on disk for the next one.

The files live in $TILEWRIGHT_CACHE (else the user's cache folder) under `kernels/`. Each holds a digest of its
content, so that a damaged one is compiled again; without a place to write, nothing is kept.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections import OrderedDict
from pathlib import Path

from tilewright.common.store import cache_folder, find_sealed, keep_sealed, trim

DISK_BYTES = 128 << 20  # above this the entries not used for longest are deleted
MEMORY_BYTES = 32 << 20
_TOUCH_SECONDS = 3600  # how old a used entry's time may get
_STORES_PER_TRIM = 256


def directory() -> Path:
    """The folder of the object cache."""
    return cache_folder() / "kernels"


class ObjectCache:
    """Objects by key, a hex digest of everything they depend on.

    Args:
        memory_bytes: of the objects kept in memory, those used last.
    """

    def __init__(self, memory_bytes: int = MEMORY_BYTES) -> None:
        self._memory: OrderedDict[str, bytes] = OrderedDict()
        self._bytes, self._most = 0, memory_bytes

    def __len__(self) -> int:
        """Number of objects in memory."""
        return len(self._memory)

    def find(self, key: str) -> bytes | None:
        """The object for a key, None if it is not there."""
        found = self._memory.get(key)
        if found is not None:
            self._memory.move_to_end(key)
            return found
        found = _read(_path(key))
        if found is not None:
            self._remember(key, found)
        return found

    def keep(self, key: str, data: bytes) -> None:
        """Adds an object that was not there."""
        if secrets.randbelow(_STORES_PER_TRIM) == 0:  # a folder of many files takes seconds to look through
            trim(directory(), "*/*", DISK_BYTES)
        keep_sealed(_path(key), data)
        self._remember(key, data)

    def forget(self) -> None:
        """Empties the cache in memory."""
        self._memory.clear()
        self._bytes = 0

    def _remember(self, key: str, data: bytes) -> None:
        self._memory[key] = data
        self._bytes += len(data)
        while self._bytes > self._most and len(self._memory) > 1:
            self._bytes -= len(self._memory.popitem(last=False)[1])


def _path(key: str) -> Path:
    return directory() / key[:2] / f"{key[2:]}.o"


def _read(path: Path) -> bytes | None:
    """Reads an entry and renews its time, so that it is not deleted soon."""
    found = find_sealed(path)
    with contextlib.suppress(OSError):
        if found is not None and time.time() - path.stat().st_mtime > _TOUCH_SECONDS:
            os.utime(path)
    return found


objects = ObjectCache()
