"""The serial bridge of small boards, by the protocol of `tilewright.isa.link.serial`."""

from __future__ import annotations

import contextlib
import os
import random
import struct
import termios
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.driver.errors import BoardReset, ProbeError, TransportError
from tilewright.driver.transport.base import Linked
from tilewright.isa.link import serial as protocol
from tilewright.isa.link.serial import (
    BOARD_REGISTER,
    BOARD_REGISTERS,
    FLAG,
    MAX_WORDS,
    Command,
    FrameError,
    Request,
    Response,
    Status,
)

DEFAULT_BAUD = 3_000_000
#: Times a request is sent before the link is given up; and the first request, before the board counts as silent.
TRIES, FIRST_TRIES = 8, 4
#: Growth of the wait from one try to the next.
PATIENCE_GROWTH = 1.5
_WHY = {
    Status.COMMAND: "the bridge does not know this request",
    Status.ADDRESS: "the address is outside the board",
    Status.BUS: "the bus of the NPU answered with an error",
    Status.TIMEOUT: "registers or memory of the board did not answer the bridge",
}


class SerialTransport(Linked):
    """Registers and memory over a UART. See `tilewright.driver.transport.base.Transport`.

    Lost, doubled and damaged bytes are found by CRC and sequence numbers and mended by sending again.

    Args:
        port: device file.
        baud: baud rate of the bitstream.
        seconds: time the answer to a request may take beyond the transfer time of its bytes.
        words: payload of a frame at most, in 32-bit words; short frames get through a bad line more often.

    Attributes:
        repeats: requests that had to be sent again.
    """

    def __init__(
        self, port: str | Path, *, baud: int = DEFAULT_BAUD, seconds: float = 0.25, words: int = MAX_WORDS
    ) -> None:
        self.name = f"serial:{port}"
        self.base = self.size = 0
        self.details: dict[str, str] = {}
        self.repeats = 0
        if not 1 <= words <= MAX_WORDS:
            raise TransportError(f"{self.name}: words must be 1..{MAX_WORDS}, not {words}")
        self._port, self._baud, self._seconds, self._words = str(port), baud, seconds, words
        self._sequence = 0
        self._received = bytearray()
        self._serial = self._open()

    def _open(self) -> Any:
        """Opens the port, a `serial.Serial`. Raises `TransportError`."""
        import serial

        try:
            port = serial.Serial(self._port, self._baud, timeout=self._seconds, write_timeout=60)
        except (OSError, ValueError) as error:
            reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
            raise TransportError(f"{self.name}: cannot open at {self._baud} baud: {reason}") from None
        with contextlib.suppress(OSError, ValueError, AttributeError):  # no such thing as latency on this adapter
            port.set_low_latency_mode(True)
        return port

    def lock_file(self) -> int:
        return int(self._serial.fileno())

    def connect(self) -> None:
        """Opens a session; bytes that an earlier process left on the line are dropped."""
        with self._port_works():
            self._serial.reset_output_buffer()
            self._serial.write(bytes([FLAG]))  # ends a frame that was cut
            time.sleep(0.01)
            self._serial.reset_input_buffer()
        self._received.clear()
        nonce = random.getrandbits(32)
        self._sequence = random.randrange(256)
        what = "no serial bridge answers"
        self._exchange(Command.HELLO, nonce, 1, what=what, tries=FIRST_TRIES, echo=struct.pack("<I", nonce))
        count = len([r for r in BOARD_REGISTERS if r.access == "R"])
        words = struct.unpack(f"<{count}I", self._exchange(Command.READ_BOARD, 0, count))
        values = {r.name: words[r.offset >> 2] for r in BOARD_REGISTERS if r.access == "R"}
        if values["BRIDGE_IDENTITY"] != protocol.IDENTITY:
            raise ProbeError(f"{self.name}: no serial bridge answers: 0x{values['BRIDGE_IDENTITY']:08x}")
        if values["BRIDGE_VERSION"] != protocol.VERSION:
            raise ProbeError(
                f"{self.name}: its bridge speaks version {values['BRIDGE_VERSION']}, this driver {protocol.VERSION}; "
                "load a bitstream of this release"
            )
        self.size = values["MEMORY_BYTES"]
        board = struct.pack("<I", values["BOARD_ID"]).decode("ascii", "replace").rstrip("\0")
        self.details = {
            "board": board,
            "clock": f"{values['CLOCK_HZ'] / 1e6:g} MHz",
            "bad frames": str(values["BAD_FRAMES"]),
        }

    # The protocol.

    def _exchange(
        self,
        command: Command,
        address: int,
        words: int,
        payload: bytes = b"",
        strobes: tuple[int, int] = (15, 15),
        what: str = "the board stopped answering",
        tries: int = TRIES,
        echo: bytes | None = None,
    ) -> bytes:
        """Sends a request until it is answered; returns the words read. With `echo`, only an answer with these bytes
        counts: that of an earlier session may still be on its way.
        """
        self._sequence = (self._sequence + 1) % 256
        line = Request(command, self._sequence, address, words, payload, *strobes).to_bytes()
        # 10 bits a byte, everything escaped at worst, there and back.
        patience = self._seconds + 10 * 2 * (len(line) + 4 * words + 16) / self._baud
        for attempt in range(tries):
            self.repeats += attempt > 0
            with self._port_works():
                self._serial.write(line)
                response = self._response(time.monotonic() + patience * PATIENCE_GROWTH**attempt)
            if response is not None and echo in (None, response.payload):
                return self._checked(response, command, address)
        raise TransportError(f"{self.name}: {what} ({tries} requests at {self._baud} baud)")

    @contextlib.contextmanager
    def _port_works(self) -> Iterator[None]:
        """Turns errors of an unplugged adapter within the block into a `TransportError`."""
        try:
            yield
        except OSError as error:
            raise TransportError(f"{self.name}: the port failed: {error.strerror or error}") from None
        except termios.error as error:  # not an OSError; from `reset_input_buffer`
            raise TransportError(f"{self.name}: the port failed: {error.args[-1]}") from None

    def _response(self, deadline: float) -> Response | None:
        """The response with the present sequence number, None when time is up."""
        while True:
            *frames, rest = self._received.split(bytes([FLAG]))
            self._received = bytearray(rest)
            for position, body in enumerate(frames):
                with contextlib.suppress(FrameError):
                    response = Response.from_bytes(bytes(body))
                    if response.sequence == self._sequence:
                        self._received = bytearray(bytes([FLAG]).join([*frames[position + 1 :], rest]))
                        return response
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            self._serial.timeout = left
            self._received += self._serial.read(max(1, self._serial.in_waiting))

    def _checked(self, response: Response, command: Command, address: int) -> bytes:
        if response.status == Status.OK:
            return response.payload
        if response.status == Status.NO_SESSION:
            raise BoardReset(f"{self.name}: the board was reset or its bitstream loaded anew; open it again")
        try:
            why = _WHY[Status(response.status)]
        except (ValueError, KeyError):
            why = f"status {response.status}"
        raise TransportError(f"{self.name}: {command.name} at 0x{address:x}: {why}")

    # The transport.

    def read_registers(self, offset: int, count: int) -> list[int]:
        values: list[int] = []
        while len(values) < count:
            part = min(self._words, count - len(values))
            words = self._exchange(Command.READ_NPU, offset + 4 * len(values), part)
            values += struct.unpack(f"<{part}I", words)
        return values

    def write_registers(self, offset: int, values: Sequence[int]) -> None:
        for start in range(0, len(values), self._words):
            part = values[start : start + self._words]
            self._exchange(Command.WRITE_NPU, offset + 4 * start, len(part), struct.pack(f"<{len(part)}I", *part))

    def read(self, address: int, nbytes: int) -> np.ndarray:
        first, end = address // 4 * 4, -(-(address + nbytes) // 4) * 4
        data = bytearray()
        for start in range(first, end, 4 * self._words):
            data += self._exchange(Command.READ_MEMORY, start, min(self._words, (end - start) // 4))
        return np.frombuffer(bytes(data), np.uint8)[address - first :][:nbytes].copy()

    def write(self, address: int, data: np.ndarray) -> None:
        first = address // 4 * 4
        end = -(-(address + data.size) // 4) * 4
        padded = bytes(address - first) + data.tobytes() + bytes(end - address - data.size)
        for start in range(first, end, 4 * self._words):
            part = padded[start - first :][: 4 * self._words]
            low = 15 << max(0, address - start) & 15
            high = 15 >> max(0, start + len(part) - address - data.size)
            self._exchange(Command.WRITE_MEMORY, start, len(part) // 4, part, (low, high))

    def wait(self, seconds: float) -> bool:
        """Sleeps a short pause: the line has no interrupt, and polling STATUS costs a millisecond or two."""
        time.sleep(min(seconds, 0.002))
        return True

    def hard_reset(self) -> bool:
        register = BOARD_REGISTER["RESET"]
        self._exchange(Command.WRITE_BOARD, register.offset, 1, struct.pack("<I", 1 << register.bit("NPU").low))
        return True

    def close(self) -> None:
        self._serial.close()
