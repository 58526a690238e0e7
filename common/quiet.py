"""Libraries that talk, silenced: their advice and warnings are about themselves, not about what the user did."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def quiet(level: int = logging.ERROR, *, printing: bool = False) -> Iterator[None]:
    """Without Python warnings and log records.

    Args:
        level: records up to this one are dropped.
        printing: what is written to the standard streams is dropped, too: progress bars of libraries.
    """
    before = logging.root.manager.disable
    with warnings.catch_warnings(), contextlib.ExitStack() as stack:
        warnings.simplefilter("ignore")
        if printing:
            silent = io.StringIO()
            stack.enter_context(contextlib.redirect_stdout(silent))
            stack.enter_context(contextlib.redirect_stderr(silent))
        logging.disable(level)
        try:
            yield
        finally:
            logging.disable(before)
