"""Temporary files and folders that are gone when the process ends, however it ends but by SIGKILL.

Python removes them when a block is left or an object forgotten. A process that a signal ends while native code runs
leaves no block: `tilewright.common.interrupts` then removes what is known here.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

_files: set[Path] = set()
_lock = threading.RLock()


class Folder(tempfile.TemporaryDirectory[str]):
    """As `tempfile.TemporaryDirectory`."""

    def __init__(self, prefix: str = "tilewright-", dir: str | Path | None = None, ignore_errors: bool = False) -> None:
        super().__init__(prefix=prefix, dir=dir, ignore_cleanup_errors=ignore_errors)
        with _lock:
            _folders.add(self)


_folders: weakref.WeakSet[Folder] = weakref.WeakSet()


def remember(path: Path) -> None:
    """A temporary file of this name may be there from now on."""
    with _lock:
        _files.add(path)


def forget(path: Path) -> None:
    """There is no such file any more."""
    with _lock:
        _files.discard(path)


@contextlib.contextmanager
def known(path: Path) -> Iterator[None]:
    """While a temporary file of this name may be there; what makes it removes it as a rule."""
    remember(path)
    try:
        yield
    finally:
        forget(path)


def remove_all() -> None:
    """Removes what is there. For a process that ends: what uses it fails."""
    if not _lock.acquire(timeout=1.0):
        return
    for folder in list(_folders):
        shutil.rmtree(folder.name, ignore_errors=True)
    for path in _files:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
