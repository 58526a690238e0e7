"""Python warnings: silenced where libraries are busy with themselves, and one line each where they reach a user."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from typing import Any


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


def line_of(message: Warning | str, *place: Any, **more: Any) -> str:
    """A Python warning as standard error gets it, for `warnings.formatwarning`: its message, without place and code."""
    return f"warning: {' '.join(str(message).split())}\n"


@contextlib.contextmanager
def warnings_in_a_line() -> Iterator[None]:
    """While this lasts, Python warnings are written as `line_of` has them."""
    before, warnings.formatwarning = warnings.formatwarning, line_of
    try:
        yield
    finally:
        warnings.formatwarning = before
