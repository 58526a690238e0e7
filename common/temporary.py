"""Temporary files and folders that are removed when the process ends, by whatever but SIGKILL.

Python removes them when a block is left or an object forgotten. A process that a signal ends while native code runs
leaves no block: `tilewright.common.interrupts` then removes the files and folders registered here.
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
    """A temporary folder like `tempfile.TemporaryDirectory`, registered for removal."""

    def __init__(self, prefix: str = "tilewright-", dir: str | Path | None = None, ignore_errors: bool = False) -> None:
        super().__init__(prefix=prefix, dir=dir, ignore_cleanup_errors=ignore_errors)
        with _lock:
            _folders.add(self)


_folders: weakref.WeakSet[Folder] = weakref.WeakSet()


def remember(path: Path) -> None:
    """Registers a temporary file that may exist from now on."""
    with _lock:
        _files.add(path)


def forget(path: Path) -> None:
    """Unregisters a temporary file that no longer exists."""
    with _lock:
        _files.discard(path)


@contextlib.contextmanager
def known(path: Path) -> Iterator[None]:
    """Registers a temporary file within the block, whose code normally removes it."""
    remember(path)
    try:
        yield
    finally:
        forget(path)


def remove_all() -> None:
    """Removes all registered files and folders. Only for a process that ends, as their users fail."""
    if not _lock.acquire(timeout=1.0):
        return
    for folder in list(_folders):
        shutil.rmtree(folder.name, ignore_errors=True)
    for path in _files:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
