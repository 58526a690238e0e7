"""The line of progress on a terminal: drawn for long work alone, with what is shown at the time."""

import io
import sys

import pytest

from tests.common.waiting import wait_until
from tilewright.cli import progress_line
from tilewright.cli.progress_line import ProgressLine
from tilewright.cli.terminal import Working


class Terminal(io.StringIO):
    """Standard error that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def terminal_for(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Replaces standard error for the rest of a test; a fixture could not, since pytest sets it anew for each phase."""
    found = Terminal()
    monkeypatch.setattr(sys, "stderr", found)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    return found


def test_short_work_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_for(monkeypatch)
    monkeypatch.setattr(progress_line, "AFTER_SECONDS", 1e6)
    with Working("reading") as working:
        working.fraction("half", 0.5)
    assert terminal.getvalue() == ""


def test_long_work_shows_text_and_fraction(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_for(monkeypatch)
    monkeypatch.setattr(progress_line, "AFTER_SECONDS", 0.0)
    with Working("reading") as working:
        wait_until(lambda: "reading" in terminal.getvalue(), "the first text")
        working.update("layer 3 of 4", 3, 4)
        wait_until(lambda: "layer 3 of 4" in terminal.getvalue(), "the next text")
        assert "━" in terminal.getvalue()  # the bar


def test_what_was_shown_before_the_line_is_drawn_is_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_for(monkeypatch)
    line = ProgressLine("reading")
    line.show("writing", 1, 2)
    line._draw()
    with line:
        wait_until(lambda: "writing" in terminal.getvalue(), "the text")
    assert "reading" not in terminal.getvalue()
