"""One device for several clients: turns first come first served, contents by hash, arenas apart from each other."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tilewright.common.allocator import MemoryFull
from tilewright.common.errors import TilewrightError
from tilewright.isa.config import NpuConfig
from tilewright.isa.device import Counters, Device, DeviceError, Launch, Region
from tilewright.isa.encoding import EncodingError, check, from_bytes
from tilewright.isa.fields import INSTRUCTION_BYTES
from tilewright.isa.host import check_run
from tilewright.isa.instructions import REGIONS


class Refusal(TilewrightError):
    """A request that is refused; the connection goes on."""


class Turns:
    """A queue at the device."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()

    def enter(self) -> object:
        """Takes a ticket at the end of the queue."""
        ticket = object()
        with self._changed:
            self._waiting.append(ticket)
        return ticket

    def ahead(self, ticket: object) -> int:
        """Number of tickets before this one; 0 where it was left."""
        with self._changed:
            return self._waiting.index(ticket) if ticket in self._waiting else 0

    def wait(self, ticket: object, seconds: float | None = None) -> bool:
        """True as soon as the ticket is the first, False if it is not after so many seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: self._waiting[0] is ticket, seconds)

    @property
    def taken(self) -> bool:
        """True if a ticket has the turn."""
        with self._changed:
            return bool(self._waiting)

    def leave(self, ticket: object) -> None:
        with self._changed:
            self._waiting.remove(ticket)
            self._changed.notify_all()


#: Programs whose instructions are not looked at again.
_CHECKED = 4096
#: Bytes that something of a client (a write, an arena, contents) takes in this machine's memory besides its data.
OVERHEAD = 128


@dataclass(eq=False)
class Arena:
    """Memory of one client, read and written by its runs.

    Attributes:
        size: bytes.
        saved: its bytes while it is not on the device; None = all zeros.
        writes: (offset, bytes) from the client that are not on the device yet.
        waiting: bytes `writes` takes.
        lost: the device failed while it held this arena.
    """

    size: int
    saved: np.ndarray | None = None
    writes: list[tuple[int, bytes]] = field(default_factory=list)
    waiting: int = 0
    lost: bool = False

    def check(self, offset: int, size: int) -> None:
        """Raises `Refusal` unless these bytes lie in it."""
        if offset + size > self.size:
            raise Refusal(f"bytes {offset}..{offset + size} lie outside the {self.size} of the arena")

    def take(self, offset: int, data: bytes) -> None:
        """Keeps a write for the next run."""
        self.writes.append((offset, data))
        self.waiting += len(data) + OVERHEAD

    def written(self) -> None:
        """Notes that the writes are on the device."""
        self.writes.clear()
        self.waiting = 0


#: What a region of a run is: contents by hash, an arena, or nothing.
RegionSource = bytes | Arena | None


class Contents:
    """Bytes by SHA-256, in host memory; those not used for longest go when there are too many.

    Args:
        limit: bytes kept.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._kept: OrderedDict[bytes, bytes] = OrderedDict()
        self._bytes = 0

    def missing(self, hashes: Iterable[bytes]) -> list[bytes]:
        with self._lock:
            return [h for h in hashes if h not in self._kept]

    def get(self, sha256: bytes) -> bytes:
        """Raises `Refusal` if it is not there (any more)."""
        with self._lock:
            if sha256 not in self._kept:
                raise Refusal(f"contents {sha256.hex()[:16]} were not sent, or made room for others; send them again")
            self._kept.move_to_end(sha256)
            return self._kept[sha256]

    def put(self, sha256: bytes, data: bytes) -> None:
        """Raises `Refusal` if the bytes are damaged."""
        if hashlib.sha256(data).digest() != sha256:
            raise Refusal(f"contents {sha256.hex()[:16]} arrived damaged: their SHA-256 differs")
        with self._lock:
            if sha256 in self._kept:
                return
            self._kept[sha256] = data
            self._bytes += len(data)
            while self._bytes > self.limit and len(self._kept) > 1:
                self._bytes -= len(self._kept.popitem(last=False)[1])


class SharedDevice:
    """A device and what its clients keep on it. Everything but `turns` and `contents` needs the turn.

    Args:
        make: opens the device; called again after it failed.
        limit: bytes of contents kept in host memory.

    Raises:
        TilewrightError: the device cannot be opened.
    """

    def __init__(self, make: Callable[[], Device], limit: int) -> None:
        self._make = make
        self.device = make()
        self.turns, self.contents = Turns(), Contents(limit)
        self._placed: OrderedDict[bytes | Arena, int] = OrderedDict()  # addresses, those used longest ago first
        self._sizes: dict[bytes, int] = {}  # bytes of the contents among them
        self._checked: OrderedDict[tuple[bytes, int, int], None] = OrderedDict()

    @property
    def config(self) -> NpuConfig:
        return self.device.config

    def interrupt(self) -> None:
        """Ends the run under way, where the device can do that. Needs no turn."""
        interrupt = getattr(self.device, "interrupt", None)
        if interrupt is not None:
            interrupt()

    def close(self) -> None:
        close = getattr(self.device, "close", None)
        if close is not None:
            close()

    def check_program(self, sha256: bytes, offset: int, length: int) -> None:
        """Raises `Refusal` unless every instruction is one this device's decoder takes, and the last one ends."""
        if (sha256, offset, length) in self._checked:
            return
        image = self.contents.get(sha256)[offset : offset + length * INSTRUCTION_BYTES]
        if length < 1 or len(image) < length * INSTRUCTION_BYTES:
            raise Refusal(
                f"the program has {len(image)} bytes from offset {offset} on, too few for {length} instructions"
            )
        try:
            operations = from_bytes(image)
            for index, operation in enumerate(operations):
                try:
                    check(operation, self.config)
                except EncodingError as error:
                    raise EncodingError(f"instruction {index}: {error}") from None
        except EncodingError as error:
            raise Refusal(f"the program is not for this device: {error}") from None
        if operations[-1].name != "END":
            raise Refusal(f"the program does not end: its last instruction is {operations[-1].name}")
        self._checked[sha256, offset, length] = None
        if len(self._checked) > _CHECKED:
            self._checked.popitem(last=False)

    def run(
        self,
        parts: Sequence[RegionSource],
        spans: Sequence[tuple[int, int]],
        launch: Launch,
        longest: int,
    ) -> Counters:
        """Runs a launch, whose regions are `parts`, from the first byte of each span to its end, for `longest` cycles
        at most.

        Raises:
            Refusal: the program is damaged or for another device, or does not fit its memory.
            DeviceError: the machine stopped.
        """
        if len(parts) > REGIONS or not 0 <= launch.program_region < len(parts):
            raise Refusal(f"program region {launch.program_region} of {len(parts)} regions")
        check_run(self.config, launch)
        program = parts[launch.program_region]
        if not isinstance(program, bytes):
            raise Refusal("the program has to be sent as contents")
        self.check_program(program, launch.program_offset, launch.program_length)
        if any(isinstance(part, Arena) and part.lost for part in parts):
            raise Refusal("the device failed and lost what was in its memory; connect again")
        addresses = self._place([part for part in parts if part is not None])
        for part, (first, end) in zip(parts, spans, strict=True):  # a larger one would show what others have beside it
            if isinstance(part, bytes) and end != self._sizes[part]:
                raise Refusal(f"contents {part.hex()[:16]} have {self._sizes[part]} bytes, not {end}")
            if first > end or first % self.config.bus_bytes:
                raise Refusal(f"a region of {end} bytes begins at byte {first}, no beat of the bus in it")
        regions = [
            Region() if part is None else
            Region(addresses[part] + first, end - first, read=True, write=isinstance(part, Arena))
            for part, (first, end) in zip(parts, spans, strict=True)
        ]  # fmt: skip
        with _Failing(self):
            limit = min(launch.timeout or longest, longest)
            return replace(launch, regions=regions, timeout=limit).run_on(self.device)

    def read(self, arena: Arena, offset: int, size: int) -> bytes:
        """Bytes that lie in an arena. Raises `Refusal`."""
        if arena.lost:
            raise Refusal("the device failed and lost what was in its memory; connect again")
        address = self._place([arena])[arena]
        with _Failing(self):
            return self.device.read(address + offset, size).tobytes()

    def drop(self, arenas: Iterable[Arena]) -> None:
        """Gives the memory of arenas back."""
        for arena in arenas:
            if arena in self._placed:
                self._forget(arena)

    def _place(self, parts: Sequence[bytes | Arena]) -> dict[bytes | Arena, int]:
        """Addresses of these contents and arenas; others make room."""
        for part in parts:
            if part not in self._placed:
                self._put(part, set(parts))
            self._placed.move_to_end(part)
            if isinstance(part, Arena):
                with _Failing(self):
                    for offset, data in part.writes:
                        self.device.write(self._placed[part] + offset, data)
                part.written()
        return {part: self._placed[part] for part in parts}

    def _put(self, part: bytes | Arena, needed: set[bytes | Arena]) -> None:
        if isinstance(part, Arena):
            data, size = part.saved, part.size
        else:
            data = np.frombuffer(self.contents.get(part), np.uint8)
            size = data.size
        while True:
            try:
                with _Failing(self):
                    address = self.device.allocate(max(size, 1))
                break
            except MemoryFull as error:
                others = [other for other in self._placed if other not in needed]
                if not others:
                    raise Refusal(f"the program does not fit the device: {error}") from None
                self._forget(others[0], save=True)
        self._placed[part] = address
        if isinstance(part, bytes):
            self._sizes[part] = size
        with _Failing(self):
            if data is not None:
                self.device.write(address, data)
        if isinstance(part, Arena):
            part.saved = None

    def _forget(self, part: bytes | Arena, save: bool = False) -> None:
        address = self._placed.pop(part)
        with _Failing(self):
            if isinstance(part, Arena):
                part.saved = self.device.read(address, part.size) if save else None
            self.device.free(address)

    def _failed(self) -> None:
        """The device is closed: what it held is gone, the next run opens it again."""
        for part in self._placed:
            if isinstance(part, Arena):
                part.lost = True
        self._placed.clear()
        self.close()
        self.device = self._make()


class _Failing:
    """A context in which the device may be closed by a failure; the error then says that it was opened again."""

    def __init__(self, shared: SharedDevice) -> None:
        self.shared = shared

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if (
            error is None
            or isinstance(error, DeviceError | MemoryFull)
            or not getattr(self.shared.device, "closed", False)
        ):
            return
        self.shared._failed()
        raise Refusal(f"the device failed and was opened again: {error}") from None
