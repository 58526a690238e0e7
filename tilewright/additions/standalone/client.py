"""The other end of the serial line: speaks the protocol of MLPerf Tiny's performance mode, as EnergyRunner does."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tilewright.common.text import printable
from tilewright.errors import UsageError
from tilewright.isa.program import TensorInfo
from tilewright.runtime.layout import dtype_of

READY = "m-ready"
#: Characters of a line, and lines of an answer: more than any program of ours prints.
_LONGEST_LINE, _MOST_LINES = 1 << 16, 1 << 20
#: Bytes of input in a command: EnergyRunner's commands have at most 80 characters.
BYTES_PER_COMMAND = 32


class Line(Protocol):
    """A serial line: bytes both ways."""

    def send(self, data: bytes) -> None: ...

    def receive(self) -> bytes:
        """Bytes received since the last call. Raises `UsageError` when the line is closed."""


@dataclass(frozen=True)
class Timed:
    """Time of one inference in microseconds, by the board's clock, and its results as it printed them."""

    microseconds: int
    results: tuple[float, ...]


class Client:
    """Sends commands to a board, one after the other.

    Args:
        line: to the board.
        echo: called with every line, those sent with a `>` before them.
    """

    def __init__(self, line: Line, echo: Callable[[str], None] = lambda text: None) -> None:
        self._line, self._echo, self._left = line, echo, b""
        self._started = False  # it was ready before

    def wait(self) -> list[str]:
        """Returns the lines until the board is ready.

        Raises:
            UsageError: with the first that says an error, because a board that does not start is never ready; or what
                comes is no line, or does not end.
        """
        lines: list[str] = []
        while not lines or lines[-1] != READY:
            *whole, self._left = (self._left + self._line.receive()).split(b"\n")
            if max(map(len, (*whole, self._left))) > _LONGEST_LINE or len(lines) + len(whole) > _MOST_LINES:
                raise UsageError(f"the board sends more than {_LONGEST_LINE} bytes without a line end, or "
                                 f"more than {_MOST_LINES} lines without {READY}; is it another program?")  # fmt: skip
            for raw in whole:
                lines.append(printable(raw.decode("ascii", errors="replace").strip()))
                self._echo(lines[-1])
                if lines[-1].startswith("e-") and not self._started:
                    raise UsageError(f"the board says {lines[-1]}")
        self._started = True
        errors = [text for text in lines if text.startswith("e-")]
        if errors:
            raise UsageError(f"the board says {errors[0]}")
        return lines

    def command(self, text: str) -> list[str]:
        """Sends a command; returns the board's lines, without `m-ready`."""
        self._echo(f"> {text}%")
        self._line.send(f"{text}%".encode())
        return self.wait()[:-1]

    def load(self, data: bytes) -> None:
        """Gives the board its input."""
        self.command(f"db load {len(data)}")
        for at in range(0, len(data), BYTES_PER_COMMAND):
            answer = self.command(f"db {data[at : at + BYTES_PER_COMMAND].hex()}")
        if answer != ["m-load-done"]:
            raise UsageError(f"the board must say m-load-done after {len(data)} bytes, not {answer}")

    def infer(self, count: int = 1, warmups: int = 0) -> Timed:
        """Runs the network on what was loaded."""
        lines = self.command(f"infer {count} {warmups}")
        laps = [int(m[1]) for text in lines if (m := re.fullmatch(r"m-lap-us-([0-9]{1,10})", text, re.ASCII))]
        found = [m[1].split(",") for text in lines if (m := re.fullmatch(r"m-results-\[(.*)\]", text))]
        try:
            ((*values,),) = [tuple(map(float, numbers)) for numbers in found]
        except ValueError:  # none, several, or one that is no number
            values = []
        if len(laps) != 2 or not values:
            raise UsageError(
                f"the board's answer to infer must have two laps and one line of numbers, not {_excerpt(lines)}"
            )
        return Timed((laps[1] - laps[0]) % (1 << 32), tuple(values))

    def outputs(self, tensors: Sequence[TensorInfo]) -> Mapping[str, np.ndarray]:
        """The bytes of all outputs, in the program's order. Raises `UsageError` for an answer of other bytes."""
        lines = self.command("output")
        parts: list[bytearray] = []
        for text in lines:
            data = re.fullmatch(r"m-output-([0-9a-fA-F]{2}(?:-[0-9a-fA-F]{2})*)", text)
            if re.fullmatch(r"m-tensor-.*", text):
                parts.append(bytearray())
            elif data and parts:
                parts[-1] += bytes.fromhex(data[1].replace("-", ""))
            else:
                raise UsageError(
                    f"the board's answer to output must have lines m-tensor-... and m-output-..., not {text[:80]!r}"
                )
        arrays = [np.frombuffer(bytes(part), np.uint8) for part in parts]
        sizes = [math.prod(t.shape) * dtype_of(t).itemsize for t in tensors]
        if [array.size for array in arrays] != sizes:
            raise UsageError(f"the board's outputs must have {sizes} bytes, not {[array.size for array in arrays]}; "
                             "does it have another network?")  # fmt: skip
        return {t.name: a.view(dtype_of(t)).reshape(t.shape) for t, a in zip(tensors, arrays, strict=True)}


def _excerpt(lines: Sequence[str]) -> str:
    text = " | ".join(lines)
    return text if len(text) <= 200 else f"{text[:197]}..."
