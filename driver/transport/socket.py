"""A board behind a stream socket, by the protocol of `tilewright.isa.link.socket`: the simulated AXI boards of
`tilewright.fpga.sim`."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tilewright.driver.errors import TransportError
from tilewright.driver.transport.base import Linked
from tilewright.isa.link.socket import INFO, MAX_BYTES, REQUEST, RESPONSE, Operation, Status


class SocketTransport(Linked):
    """Registers and memory over a Unix socket. See `tilewright.driver.transport.base.Transport`.

    Args:
        path: path of the socket.
        seconds: time an answer may take.
    """

    def __init__(self, path: str | Path, *, seconds: float = 10.0) -> None:
        self.name = f"socket:{path}"
        self.base = self.size = 0
        self.details: dict[str, str] = {}
        self._path, self._seconds = Path(path), seconds
        self._socket: socket.socket | None = None
        self._lock = -1

    def lock_file(self) -> int:
        if not self._path.exists():
            raise TransportError(f"{self.name}: there is no such socket")
        if self._lock < 0:
            self._lock = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT, 0o666)
        return self._lock

    def connect(self) -> None:
        self._disconnect()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(self._seconds)
        try:
            self._socket.connect(str(self._path))
        except OSError as error:
            raise TransportError(f"{self.name}: cannot connect: {error.strerror or error}") from None
        self.base, self.size = INFO.unpack(self._ask(Operation.INFO, 0, INFO.size))

    def _ask(self, operation: Operation, address: int, length: int, payload: bytes = b"", seconds: float = 0) -> bytes:
        if self._socket is None:
            raise TransportError(f"{self.name}: not connected")
        try:
            self._socket.settimeout(self._seconds + seconds)
            self._socket.sendall(REQUEST.pack(operation, length, address) + payload)
            status, length = RESPONSE.unpack(self._receive(RESPONSE.size))
            answer = self._receive(length)
        except TimeoutError:
            self._disconnect()  # an answer that comes late must not be taken for the next one
            raise TransportError(f"{self.name}: no answer within {self._seconds + seconds:g} s") from None
        except OSError as error:
            self._disconnect()
            raise TransportError(f"{self.name}: the connection broke: {error.strerror or error}") from None
        if status != Status.OK:
            raise TransportError(f"{self.name}: address 0x{address:x} is refused ({operation.name})")
        return answer

    def _receive(self, length: int) -> bytes:
        assert self._socket is not None
        data = bytearray()
        while len(data) < length:
            part = self._socket.recv(length - len(data))
            if not part:
                raise ConnectionError("closed by the other side")
            data += part
        return bytes(data)

    def read_registers(self, offset: int, count: int) -> list[int]:
        return list(struct.unpack(f"<{count}I", self._ask(Operation.READ_REGISTERS, offset, 4 * count)))

    def write_registers(self, offset: int, values: Sequence[int]) -> None:
        self._ask(Operation.WRITE_REGISTERS, offset, 4 * len(values), struct.pack(f"<{len(values)}I", *values))

    def read(self, address: int, nbytes: int) -> np.ndarray:
        parts = (
            self._ask(Operation.READ_MEMORY, address + start, min(MAX_BYTES, nbytes - start))
            for start in range(0, nbytes, MAX_BYTES)
        )
        return np.frombuffer(b"".join(parts), np.uint8).copy()

    def write(self, address: int, data: np.ndarray) -> None:
        for start in range(0, data.size, MAX_BYTES):
            part = data[start : start + MAX_BYTES].tobytes()
            self._ask(Operation.WRITE_MEMORY, address + start, len(part), part)

    def wait(self, seconds: float) -> bool:
        return bool(self._ask(Operation.WAIT, 0, round(1000 * seconds), seconds=seconds)[0])

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def close(self) -> None:
        self._disconnect()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
