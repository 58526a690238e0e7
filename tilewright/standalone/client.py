"""The other end of the serial line: speaks the protocol of MLPerf Tiny's performance mode, as EnergyRunner does."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from isa.program import TensorInfo
from tilewright.errors import UsageError

READY = "m-ready"
#: Bytes of input in a command: EnergyRunner's commands have at most 80 characters.
BYTES_PER_COMMAND = 32


class Line(Protocol):
    """Bytes both ways."""

    def send(self, data: bytes) -> None: ...

    def receive(self) -> bytes:
        """What came since the last call. Raises `UsageError` when nothing comes any more."""


@dataclass(frozen=True)
class Timed:
    """An inference: microseconds of all, by the board's clock, and its results as it printed them."""

    microseconds: int
    results: tuple[float, ...]


class Client:
    """Commands, one after the other.

    Args:
        line: to the board.
        echo: told every line, those sent with a `>` before them.
    """

    def __init__(self, line: Line, echo: Callable[[str], None] = lambda text: None) -> None:
        self._line, self._echo, self._left = line, echo, b""
        self._started = False  # it was ready before

    def wait(self) -> list[str]:
        """Lines until the board is ready.

        Raises:
            UsageError: with the first that says an error; a board that does not start is never ready.
        """
        lines: list[str] = []
        while not lines or lines[-1] != READY:
            *whole, self._left = (self._left + self._line.receive()).split(b"\n")
            for raw in whole:
                lines.append(raw.decode("ascii", errors="replace").strip())
                self._echo(lines[-1])
                if lines[-1].startswith("e-") and not self._started:
                    raise UsageError(f"the board says {lines[-1]}")
        self._started = True
        errors = [text for text in lines if text.startswith("e-")]
        if errors:
            raise UsageError(f"the board says {errors[0]}")
        return lines

    def command(self, text: str) -> list[str]:
        """What the board answers, without `m-ready`."""
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
        laps = [int(text.removeprefix("m-lap-us-")) for text in lines if text.startswith("m-lap-us-")]
        found = [re.fullmatch(r"m-results-\[(.*)\]", text) for text in lines]
        values = [m[1] for m in found if m]
        if len(laps) != 2 or len(values) != 1:
            raise UsageError(f"the board's answer to infer has two laps and one line of results, not {lines}")
        return Timed((laps[1] - laps[0]) % (1 << 32), tuple(map(float, values[0].split(","))))

    def outputs(self, tensors: Sequence[TensorInfo]) -> Mapping[str, np.ndarray]:
        """The bytes of all outputs, in the program's order."""
        parts: list[bytearray] = []
        for text in self.command("output"):
            if text.startswith("m-tensor-"):
                parts.append(bytearray())
            else:
                parts[-1] += bytes.fromhex(text.removeprefix("m-output-").replace("-", ""))
        return {t.name: np.frombuffer(bytes(p), t.dtype).reshape(t.shape) for t, p in zip(tensors, parts, strict=True)}
