"""`AxiBoard`: the Verilated NPU and a memory behind a Unix socket, like an AXI board seen by its host."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from pathlib import Path

import numpy as np

from tilewright.hw.sim.build import BuildError, build
from tilewright.hw.sim.device import load_library
from tilewright.isa.config import NpuConfig
from tilewright.isa.host import mask
from tilewright.isa.link.socket import INFO, MAX_BYTES, REQUEST, RESPONSE, Operation, Status
from tilewright.isa.registers import REGISTER, REGISTER_SPACE
from tilewright.isa.timing import DEFAULT_MEMORY

#: Cycles between two looks at the socket while the NPU runs.
SLICE = 500
#: The window starts above zero, as a reserved piece of a board's DRAM does.
DEFAULT_BASE = 1 << 20


class AxiBoard:
    """Serves the registers and the memory of one simulated NPU to any number of connections, by
    `tilewright.isa.link.socket`.

    The NPU goes on whether anybody is connected or not. A memory access outside the window is answered with SLVERR.

    Args:
        config: configuration of the NPU.
        path: path of the socket; must not exist.
        base, size: window of memory in bytes.
        memory_file: holds the memory, byte N of it address N; made if missing.

    Attributes:
        path: as given.

    Raises:
        BuildError: the simulation cannot be built.
    """

    def __init__(
        self,
        config: NpuConfig,
        path: str | Path,
        *,
        base: int = DEFAULT_BASE,
        size: int = 1 << 24,
        memory_file: Path | None = None,
    ) -> None:
        self.config, self.base, self.size = config, base, size
        self._library = load_library(build(config))
        self._handle = self._library.tw_rtl_create()
        self._memory = np.zeros(base + size, np.uint8) if memory_file is None else _mapped(memory_file, base + size)
        self._library.tw_rtl_memory(self._handle, self._memory.ctypes.data, self._memory.size)
        t = DEFAULT_MEMORY
        self._library.tw_rtl_timing(self._handle, t.read_latency, t.write_latency, t.read_interval, t.write_interval)
        self._running = self._irq = self._closed = False
        self._waiting: dict[socket.socket, float] = {}  # connections that wait for the interrupt, and until when
        self._inboxes: dict[socket.socket, bytearray] = {}
        self._tasks: list[tuple[str, int]] = []
        self._selector = selectors.DefaultSelector()
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._server.bind(str(path))
        except OSError as error:
            raise BuildError(f"cannot make the socket {path}: {error.strerror}") from None
        self._server.listen()
        self.path = Path(path)
        self._selector.register(self._server, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> AxiBoard:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def start(self) -> None:
        """Starts the server in a thread of its own."""
        self._thread.start()

    def close(self) -> None:
        """Ends the thread and the simulation, and takes the socket away."""
        if self._closed:
            return
        self._closed = True
        self._thread.join()
        for connection in [*self._inboxes]:
            self._drop(connection)
        self._server.close()
        self._selector.close()
        self.path.unlink(missing_ok=True)
        self._library.tw_rtl_destroy(self._handle)

    # Faults of a board, applied by the serving thread.

    def stick(self, stuck: bool = True) -> None:
        """Makes the memory stop answering the NPU, or answer again."""
        self._tasks.append(("stuck", int(stuck)))

    def reset(self) -> None:
        """Presses the reset button."""
        self._tasks.append(("reset", 0))

    # Serving.

    def _serve(self) -> None:
        while not self._closed:
            while self._tasks:
                self._apply_fault(*self._tasks.pop(0))
            for key, _ in self._selector.select(0 if self._running else 0.002):
                if key.fileobj is self._server:
                    connection, _ = self._server.accept()
                    self._inboxes[connection] = bytearray()
                    self._selector.register(connection, selectors.EVENT_READ)
                else:
                    self._receive(key.fileobj)  # type: ignore[arg-type]
            if self._running:
                self._irq = bool(self._library.tw_rtl_tick(self._handle, SLICE))
                self._running = not self._irq and self._busy()
            now = time.monotonic()
            for connection, until in [*self._waiting.items()]:
                if self._irq or now >= until:
                    del self._waiting[connection]
                    self._answer(connection, bytes([self._irq]))

    def _apply_fault(self, task: str, value: int) -> None:
        if task == "stuck":
            self._library.tw_rtl_stuck(self._handle, value)
        else:
            self._library.tw_rtl_reset(self._handle)
            self._library.tw_rtl_memory(self._handle, self._memory.ctypes.data, self._memory.size)
            self._running = self._irq = False

    def _busy(self) -> bool:
        status = self._library.tw_rtl_read(self._handle, REGISTER["STATUS"].offset)
        return bool(status & mask("STATUS", "BUSY", "RESETTING"))

    def _drop(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        self._inboxes.pop(connection, None)
        self._waiting.pop(connection, None)
        connection.close()

    def _receive(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            self._drop(connection)
            return
        inbox = self._inboxes[connection]
        inbox += data
        while len(inbox) >= REQUEST.size:
            operation, length, address = REQUEST.unpack_from(inbox)
            writes = operation in (Operation.WRITE_REGISTERS, Operation.WRITE_MEMORY)
            end = REQUEST.size + length * writes
            if length > MAX_BYTES:
                self._drop(connection)
                return
            if len(inbox) < end:
                return
            payload = bytes(inbox[REQUEST.size : end])
            del inbox[:end]
            self._execute(connection, operation, address, length, payload)

    def _answer(self, connection: socket.socket, payload: bytes = b"", status: Status = Status.OK) -> None:
        try:
            connection.setblocking(True)
            connection.sendall(RESPONSE.pack(status, len(payload)) + payload)
        except OSError:
            self._drop(connection)

    def _execute(self, connection: socket.socket, operation: int, address: int, length: int, payload: bytes) -> None:
        on_registers = operation in (Operation.READ_REGISTERS, Operation.WRITE_REGISTERS)
        on_memory = operation in (Operation.READ_MEMORY, Operation.WRITE_MEMORY)
        low, high = (0, REGISTER_SPACE) if on_registers else (self.base, self.base + self.size)
        if (on_registers or on_memory) and not (low <= address and address + length <= high):
            self._answer(connection, status=Status.ADDRESS)
        elif operation == Operation.INFO:
            self._answer(connection, INFO.pack(self.base, self.size))
        elif operation == Operation.READ_REGISTERS:
            values = [self._library.tw_rtl_read(self._handle, address + i) for i in range(0, length, 4)]
            self._answer(connection, np.array(values, "<u4").tobytes())
        elif operation == Operation.WRITE_REGISTERS:
            for i, value in enumerate(np.frombuffer(payload, "<u4")):
                self._library.tw_rtl_write(self._handle, address + 4 * i, int(value))
            self._irq = bool(self._library.tw_rtl_tick(self._handle, 1))
            self._running = not self._irq and self._busy()
            self._answer(connection)
        elif operation == Operation.READ_MEMORY:
            self._answer(connection, self._memory[address : address + length].tobytes())
        elif operation == Operation.WRITE_MEMORY:
            self._memory[address : address + length] = np.frombuffer(payload, np.uint8)
            self._answer(connection)
        elif operation == Operation.WAIT:
            self._waiting[connection] = time.monotonic() + length / 1000
        else:
            self._drop(connection)

    @property
    def below(self) -> np.ndarray:
        """The memory below the window, which nothing may access, as uint8."""
        return self._memory[: self.base]


def _mapped(path: Path, size: int) -> np.ndarray:
    with open(path, "ab") as file:
        file.truncate(size)
    return np.memmap(path, np.uint8, "r+")
