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
    """Silences Python warnings and log records within the block.

    Args:
        level: records up to this one are dropped.
        printing: drops the output to the standard streams too, such as progress bars of libraries.
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
    """A Python warning as one line, for `warnings.formatwarning`: its message, without place and code."""
    return f"warning: {' '.join(str(message).split())}\n"


@contextlib.contextmanager
def warnings_in_a_line() -> Iterator[None]:
    """Makes Python write warnings in the block as one line, by `line_of`."""
    before, warnings.formatwarning = warnings.formatwarning, line_of
    try:
        yield
    finally:
        warnings.formatwarning = before
