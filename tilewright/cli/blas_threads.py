"""Threads of numpy's matrix products: starting one per processor takes a tenth of a second that most commands do not
need."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

#: Variables by which a user sets the number; the first is the one that numpy's library reads first.
_VARIABLES = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Gives numpy one thread if it is imported within the block, unless the environment says how many.

    Programs that this process starts later are not affected.
    """
    if any(name in os.environ for name in _VARIABLES):
        yield
        return
    os.environ[_VARIABLES[0]] = "1"
    try:
        yield
    finally:
        os.environ.pop(_VARIABLES[0], None)
