"""One-line errors for the commands of area and clock, and for those that calibrate them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import click

from tilewright.common.errors import TilewrightError


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """Turns a `TilewrightError` into one line on standard error and exit code 1."""
    try:
        yield
    except TilewrightError as error:
        raise click.ClickException(str(error)) from None
