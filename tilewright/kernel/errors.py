"""Errors of kernels, each at the line of the kernel that causes it."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tilewright.common.errors import TilewrightError
from tilewright.compiler.npu.emit.scratch import ScratchpadFull

F = TypeVar("F", bound=Callable[..., Any])
_OWN = str(Path(__file__).resolve().parent)


class Line(NamedTuple):
    """A line of a user's file."""

    file: str
    number: int

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.number}"  # pathlib takes five times as long


class KernelError(TilewrightError):
    """A kernel that cannot be right. The message begins with the user's line.

    Attributes:
        line: the line that causes it; None where no single one does.
        full: True if a scratchpad has no room.
    """

    def __init__(self, message: str, line: Line | None = None, full: bool = False) -> None:
        super().__init__(message if line is None else f"{line}: {message}")
        self.line, self.full = line, full
        self.text = message


def user_line() -> Line:
    """Returns the innermost line that is running outside this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_own(frame.f_code.co_filename):
        frame = frame.f_back
    return Line(frame.f_code.co_filename, frame.f_lineno)


def raising_line(error: BaseException) -> Line | None:
    """Returns the line that raised an error of the user's own code."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return None if trace is None else Line(trace.tb_frame.f_code.co_filename, trace.tb_lineno)


@functools.cache
def _is_own(file: str) -> bool:
    """Returns True for files of this package and of Python's own library, by which it is called back."""
    return file.startswith(_OWN) or file.endswith(("contextlib.py", "functools.py"))


@contextmanager
def at_user_line() -> Iterator[None]:
    """Gives errors inside the line of the user that is running."""
    try:
        yield
    except KernelError as error:
        if error.line is not None:
            raise
        raise KernelError(error.text, user_line(), error.full) from None
    except ScratchpadFull as error:
        raise KernelError(f"a scratchpad is too small: {error}", user_line(), full=True) from None


def call(function: F) -> F:
    """Makes a method give its errors the user's line."""

    @functools.wraps(function)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        with at_user_line():
            return function(*arguments, **options)

    return wrapped  # type: ignore[return-value]
