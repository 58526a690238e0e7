"""Inputs to a board without a host, and its answers, over a serial port or to a simulation."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw
from tilewright.errors import UsageError
from tilewright.fpga.sim.line import SimulatedLine
from tilewright.fpga.sim.standalone import standalone_line
from tilewright.fpga.standalone import record
from tilewright.isa.program import Program
from tilewright.standalone.client import Client, Line

#: A board that says nothing for so long is not there.
SECONDS = 20.0
#: Cycles of simulation between two looks, and those after which a board without a word is given up.
SLICE, QUIET = 2_000, 2_000_000_000


class SerialLine:
    """A serial port. Raises `UsageError` where it cannot be opened."""

    def __init__(self, port: str, baud: int) -> None:
        import serial

        try:
            self._serial = serial.Serial(port, baud, timeout=SECONDS)
        except (OSError, ValueError) as error:
            raise UsageError(f"cannot open {port}: {error}") from None

    def send(self, data: bytes) -> None:
        self._serial.write(data)

    def receive(self) -> bytes:
        got: bytes = self._serial.read(max(1, self._serial.in_waiting))
        if not got:
            raise UsageError(f"{self._serial.port}: the board says nothing for {SECONDS:g} s")
        return got

    def close(self) -> None:
        """Closes the port."""
        self._serial.close()


class SimulationLine:
    """A Verilated SoC with its serial line; `clock` counts cycles."""

    def __init__(self, line: SimulatedLine) -> None:
        self.line, self.clock = line, 0

    def send(self, data: bytes) -> None:
        self.line.send(data)

    def receive(self) -> bytes:
        start = self.clock
        while self.clock - start < QUIET:
            self.clock += SLICE
            if got := self.line.run(SLICE):
                return got
        raise UsageError(f"the simulated board says nothing for {QUIET} cycles")

    def close(self) -> None:
        """Ends the simulation."""
        self.line.close()


def program_in(folder: Path) -> Program:
    """The network of a build. Raises `FpgaError` or `ProgramError` where there is none."""
    record.board_of(folder)
    return tw.load(folder / record.PROGRAM)


def simulated(folder: Path) -> SimulationLine:
    """The SoC of a build with its image in the flash memory. Raises `FpgaError`, `BuildError`."""
    build = record.board_of(folder)
    line = standalone_line(build.board, build.config, build.point)
    line.set_flash(b"\xff" * build.board.alone.place.offset + build.image)
    return SimulationLine(line)


def input_bytes(folder: Path, program: Program, values: Mapping[str, np.ndarray]) -> bytes:
    """Inputs as the board with the build in a folder takes them."""
    form = record.board_of(folder).exchange.inputs
    parts = []
    for t in program.inputs:
        part = np.ascontiguousarray(values[t.name])
        if form == "unsigned" and part.dtype == np.int8:
            part = part.view(np.uint8) ^ 0x80
        elif form == "floats" and part.dtype != np.float32:
            zero, scale = np.float32(t.zero_point), np.float32(t.scale)  # type: ignore[arg-type]
            part = (part.astype(np.float32) - zero) * scale
        parts.append(part.tobytes())
    return b"".join(parts)


@contextlib.contextmanager
def line_of(folder: Path, port: str | None) -> Iterator[Line]:
    """The board at a serial port, or its simulation."""
    line: Any = simulated(folder) if port is None else SerialLine(port, record.board_of(folder).point.baud)
    with contextlib.closing(line):
        yield line


def ask(
    line: Line,
    program: Program,
    data: bytes,
    count: int,
    warmups: int,
    echo: Callable[[str], None],
) -> Mapping[str, np.ndarray]:
    """Loads inputs, infers, and returns the outputs; `echo` is called with every line."""
    client = Client(line, echo)
    if isinstance(line, SimulationLine):
        client.wait()  # it starts now; a board has started before
    client.command("name")
    client.command("profile")
    client.load(data)
    client.infer(count, warmups)
    found = client.outputs(program.outputs)
    client.command("cycles")
    return found
