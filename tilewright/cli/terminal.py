"""Output of commands: tables and progress for people, JSON for programs."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click

from tilewright.cli.heartbeat import EVERY_SECONDS, Heartbeat
from tilewright.cli.progress_line import AFTER_SECONDS, ProgressLine
from tilewright.common.native import builds_told
from tilewright.errors import UsageError
from tilewright.store.files import check_writable, write_text

if TYPE_CHECKING:
    from rich.console import Console

_PIPED_WIDTH = 160  # columns


def table_console() -> Console:
    """Console for results, on standard output."""
    from rich.console import Console  # commands that print no table need not wait for it

    console = Console(highlight=False, markup=False, soft_wrap=False)
    return console if console.is_terminal else Console(highlight=False, markup=False, width=_PIPED_WIDTH)


class Working:
    """Progress on standard error. On a terminal it is a progress line if work takes longer than two seconds, else a
    line every 30 s (`Heartbeat`).

    Parameters:
        text: what is being done.
        log: where standard error is no terminal, also a line for each text with other words before its colon than the
            one before.
        every_seconds: time between two lines where standard error is no terminal.
    """

    def __init__(self, text: str, *, log: bool = False, every_seconds: float = EVERY_SECONDS) -> None:
        self._line = ProgressLine(text) if sys.stderr and sys.stderr.isatty() else Heartbeat(text, every_seconds)
        self._log = log
        self._stage = text
        self._start = time.monotonic()
        self._builds = builds_told(lambda title: self._line.show(f"building {title}, once"))

    def __enter__(self) -> Self:
        self._line.__enter__()
        self._builds.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._builds.__exit__(None, None, None)
        self._line.__exit__(*exception)

    @property
    def seconds(self) -> float:
        """Seconds since the start, above 0."""
        return max(time.monotonic() - self._start, 1e-9)

    def fraction(self, text: str, done: float) -> None:
        """Updates text and progress, as a fraction of 1."""
        self.update(text, done, 1.0)

    def estimate(self, text: str, done: float) -> None:
        """Updates text and fraction, with the time that is left at the speed so far."""
        passed = self.seconds
        if 0.1 < done < 1 and passed > AFTER_SECONDS:
            text = f"{text}, about {math.ceil(passed * (1 - done) / done)} s left"
        self.fraction(text, done)

    def update(self, text: str, done: float | None = None, total: float | None = None) -> None:
        """Shows the current text, and the fraction done."""
        stage, before = text.partition(":")[0], self._stage
        self._stage = stage
        self._line.show(text, done, total)
        if isinstance(self._line, Heartbeat) and self._log and stage != before:
            self._line.write_line()


class Notes:
    """A listener that shows what a device says while it waits on the progress line there is at the time."""

    def __init__(self) -> None:
        self.working: Working | None = None

    def __call__(self, text: str | None) -> None:
        if self.working is not None and text is not None:
            self.working.update(text)


@contextlib.contextmanager
def stdout_for_json(json_path: str | None) -> Iterator[None]:
    """Keeps standard output for JSON within its block: whatever else prints goes to standard error."""
    with contextlib.redirect_stdout(sys.stderr) if json_path == "-" else contextlib.nullcontext():
        yield


def prepare_output(path: str | Path) -> None:
    """Raises `UsageError` if the file could not be written later, or as `check_named_once`."""
    check_writable(path)
    check_named_once(path)


def check_named_once(path: str | Path) -> None:
    """Raises `UsageError` if two arguments of the command name a file that is to be written: what it reads, or writes
    besides, would be lost."""
    context = click.get_current_context(silent=True)
    named = [p for p in context.command.params if _names(context.params.get(p.name or ""), path)] if context else []
    if len(named) > 1:
        texts = (p.opts[-1] if isinstance(p, click.Option) else (p.name or "").upper() for p in named)
        raise UsageError(f"cannot write {path}: {' and '.join(texts)} name the same file")


def _names(value: Any, path: str | Path) -> bool:
    """Whether what an argument was given is this file: a path, text that looks like one, NAME=FILE, or several."""
    if isinstance(value, tuple | list):
        return any(_names(one, path) for one in value)
    if isinstance(value, str) and not os.path.splitext(value)[1]:
        return False  # a preset or a choice
    texts = [str(value), str(value).partition("=")[2]] if isinstance(value, str | Path) else []
    return any(text and os.path.realpath(text) == os.path.realpath(path) for text in texts)


def prepare_json(json_path: str | None) -> None:
    """`prepare_output` for the file of --json, if there is one."""
    if json_path not in (None, "-"):
        prepare_output(str(json_path))


def emit_json(json_path: str | None, value: Any) -> bool:
    """Writes a result where --json says. Returns True if it is to be shown to people, too: standard output is free."""
    if json_path is None:
        return True
    text = json.dumps(value, indent=2, allow_nan=False) + "\n"
    if json_path == "-":
        click.echo(text, nl=False)
    else:
        write_text(json_path, text)
    return json_path != "-"


def human(value: float, unit: str = "") -> str:
    """Formats a number with a prefix: 1234567 as 1.23 M."""
    for factor, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:.{max(0, 2 - int(math.log10(abs(value) / factor)))}f} {prefix}{unit}"
    return f"{value:g} {unit}".rstrip()
