"""A Dask preload: ends this process as soon as the command that started it is gone, however it ended.

The command keeps the writing end of a pipe on standard input open and never writes: the end of file is its death.
"""

from __future__ import annotations

import os
import sys
import threading


def dask_setup(*_: object) -> None:
    """Called by Dask when the process is up."""
    threading.Thread(target=_wait, daemon=True, name="lifeline").start()


def _wait() -> None:
    os.read(sys.stdin.fileno(), 1)
    os._exit(0)
