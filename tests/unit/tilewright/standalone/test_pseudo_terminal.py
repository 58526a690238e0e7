"""A board behind a pseudo-terminal: what it says and is told goes through, for one program after another."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from tilewright.errors import UsageError
from tilewright.standalone.ask import SerialLine, SimulationLine
from tilewright.standalone.client import Client
from tilewright.standalone.pseudo_terminal import serve, start

BOOTS = b"m-init-done\r\nm-ready\r\n"


class Board:
    """Answers a command a byte at a time, as a simulation does, after some runs without a word."""

    def __init__(self) -> None:
        self.line, self.told, self.left, self.runs = self, b"", b"", 0

    def send(self, data: bytes) -> None:
        self.told += data
        *commands, self.told = self.told.split(b"%")
        for command in commands:
            self.left += b"m-name-dut-[x]\r\nm-ready\r\n" if command == b"name" else b"e-[?]\r\nm-ready\r\n"

    def run(self, cycles: int) -> bytes:
        self.runs += 1
        if self.runs % 3 or not self.left:
            return b""
        said, self.left = self.left[:1], self.left[1:]
        return said

    def receive(self) -> bytes:
        said, self.left = self.left, b""
        if not said:
            raise UsageError("the simulated board says nothing for 9 cycles")
        return said


@contextmanager
def served(board: Board) -> Iterator[str]:
    names: queue.Queue[str] = queue.Queue()
    ended = threading.Event()
    tell: Callable[[str], None] = names.put
    thread = threading.Thread(target=serve, args=(cast(Any, board), tell, ended.is_set))
    thread.start()
    try:
        yield names.get(timeout=60)
    finally:
        ended.set()
        thread.join()


def test_commands_and_answers() -> None:
    pytest.importorskip("serial")
    board = Board()
    board.left = BOOTS
    start(cast(SimulationLine, board))
    assert not board.left
    with served(board) as name:
        for _ in range(2):  # programs come and go
            line = SerialLine(name, 115_200)
            client = Client(line)
            assert client.command("name") == ["m-name-dut-[x]"]
            with pytest.raises(UsageError, match=r"the board says e-\[\?\]"):
                client.command("other")
            line.close()
        at_rest = board.runs
        threading.Event().wait(0.3)
        assert board.runs == at_rest  # the clock of a board that waits stands still


def test_a_board_that_never_is_ready() -> None:
    board = Board()
    board.left = b"m-init-done\r\n"
    with pytest.raises(UsageError, match="says nothing for 9 cycles"):
        start(cast(SimulationLine, board))
