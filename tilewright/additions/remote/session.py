"""`Session`: one client's stream, what it has on the server, and the answers to its requests."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict
from typing import Any, Protocol

from tilewright.common.errors import TilewrightError
from tilewright.common.version import tilewright_version
from tilewright.isa.device import Counters, DeviceError, Launch
from tilewright.isa.error_codes import ErrorCode
from tilewright.remote import remote_pb2 as pb
from tilewright.remote.gate import Connection
from tilewright.remote.protocol import PIECE_BYTES, PROTOCOL
from tilewright.remote.sessions import Pace, Sessions
from tilewright.remote.shared import OVERHEAD, Arena, Refusal, RegionSource, SharedDevice

#: Seconds between two words to a client that waits.
_WORD = 1.0
#: Seconds between two looks at a run, whether it is over, too long, or its client gone.
_LOOK = 0.1
#: Bytes of an arena that are read in one turn and kept until the client took them.
_READ_BYTES = 16 << 20
#: Bytes of an answer that the client has to take before its time is over.
_ANSWER_BYTES = PIECE_BYTES // 4
log = logging.getLogger("tilewright.serve")


class Server(Protocol):
    """The part of `tilewright.remote.server.Server` that a session needs."""

    shared: SharedDevice
    sessions: Sessions
    client_bytes: int
    total_bytes: int
    longest_run: int
    longest_seconds: float
    waiting: ThreadPoolExecutor
    runs: ThreadPoolExecutor


class Session:
    """The stream of a client, and what it has on the server.

    Attributes:
        host, peer: its address, without and with the port.
        arenas: by the client's numbers.
        pace: whose move it is.
    """

    def __init__(self, server: Server, context: Any, connection: Connection) -> None:
        self.server, self.shared, self._context = server, server.shared, context
        self.host, self.peer = connection.host, connection.name
        self.arenas: dict[int, Arena] = {}
        self._coming: dict[bytes, bytearray] = {}
        self._read_bytes = 0  # of an arena, on their way to the client
        self.pace = Pace()

    @property
    def held(self) -> int:
        """Bytes the client takes up, with answers it has yet to take, and those of keeping an arena or contents that
        are on their way."""
        arenas, coming = list(self.arenas.values()), list(self._coming.values())
        held = sum(a.size + a.waiting for a in arenas) + sum(map(len, coming))
        return held + self._read_bytes + OVERHEAD * (len(arenas) + len(coming))

    def _welcome(self) -> pb.Response:
        device = self.shared.device
        config = json.dumps(device.config.to_dict())
        found = pb.Welcome(version=tilewright_version(), device=device.name, config=config, protocol=PROTOCOL)
        return pb.Response(welcome=found)

    def end(self, reason: str) -> None:
        """Ends the stream from another thread; the client sees that it was cancelled."""
        log.info("%s: sent away: %s", self.peer, reason)
        self._context.cancel()

    def close(self) -> None:
        """Gives the client's memory back."""
        self._coming.clear()
        if self.arenas:
            for _ in self._turn():
                self.shared.drop(self.arenas.values())

    def answers(self, requests: Iterator[pb.Request]) -> Iterator[pb.Response]:
        """Yields all answers to the client, which may take its time over each: nothing that others need is held
        meanwhile."""
        with self.pace.sending():
            yield self._welcome()
        for request in requests:
            with self.pace.busy():
                for response in self._outcome(request):
                    with self.pace.sending():
                        yield response

    def _outcome(self, request: pb.Request) -> Iterator[pb.Response]:
        """The answers to a request, if only that it failed."""
        try:
            yield from self._answer(request)
        except Refusal as error:
            log.warning("%s: refused: %s", self.peer, error)
            yield pb.Response(refused=pb.Refused(message=str(error)))
        except DeviceError as error:
            log.info("%s: the machine stopped: %s", self.peer, error)
            yield pb.Response(fault=_fault(error))
        except TilewrightError as error:
            log.error("%s: %s", self.peer, error)
            yield pb.Response(refused=pb.Refused(message=str(error)))
        except MemoryError:
            log.error("%s: no memory left", self.peer)
            yield pb.Response(refused=pb.Refused(message="the server has no memory left; try again later"))

    def _answer(self, request: pb.Request) -> Iterator[pb.Response]:
        kind = request.WhichOneof("body")
        if kind == "have":
            yield pb.Response(missing=pb.Missing(sha256=self.shared.contents.missing(request.have.sha256)))
        elif kind == "piece":
            self._take_piece(request.piece)
            yield pb.Response(accepted=pb.Accepted())
        elif kind == "write":
            self._take_write(request.write)
            yield pb.Response(accepted=pb.Accepted())
        elif kind == "read":
            yield from self._read(request.read)
        elif kind == "drop":
            arena = self.arenas.pop(request.drop.arena, None)
            if arena is not None:
                for _ in self._turn():
                    self.shared.drop([arena])
            yield pb.Response(accepted=pb.Accepted())
        elif kind == "run":
            yield from self._run(request.run)
        else:
            raise Refusal("a request this version does not know")

    def _take_piece(self, piece: pb.Piece) -> None:
        if len(piece.sha256) != hashlib.sha256().digest_size:
            raise Refusal(f"{len(piece.sha256)} bytes are no SHA-256")
        held = self._coming.get(piece.sha256, bytearray())
        if piece.offset != len(held) or piece.offset + len(piece.data) > piece.size:
            self._coming.pop(piece.sha256, None)
            raise Refusal(f"piece at {piece.offset} of {piece.size} bytes came out of order")
        self._limit(piece.size)
        self._coming[piece.sha256] = held
        held += piece.data
        if len(held) == piece.size:
            self.shared.contents.put(piece.sha256, bytes(self._coming.pop(piece.sha256)))

    def _take_write(self, write: pb.Write) -> None:
        arena = self._arena(write.arena, write.size)
        arena.check(write.offset, len(write.data))
        self._limit(len(write.data))
        arena.take(write.offset, write.data)

    def _arena(self, number: int, size: int) -> Arena:
        """The arena; made if it is new."""
        if number not in self.arenas:
            self._limit(size)
            self.arenas[number] = Arena(size)
        if self.arenas[number].size != size:
            raise Refusal(f"arena {number} has {self.arenas[number].size} bytes, not {size}")
        return self.arenas[number]

    def _limit(self, more: int) -> None:
        if self.held + more + OVERHEAD > self.server.client_bytes:
            raise Refusal(f"{more} bytes more than the {self.server.client_bytes} a client may have")
        if not self.server.sessions.has_room(more, self.server.total_bytes, self):
            raise Refusal(
                f"{more} bytes more than the {self.server.total_bytes} all clients may have together; try again later"
            )

    def _read(self, read: pb.Read) -> Iterator[pb.Response]:
        if read.arena not in self.arenas:
            raise Refusal(f"no arena {read.arena}")
        arena, at, end = self.arenas[read.arena], read.offset, read.offset + read.size
        arena.check(read.offset, read.size)
        try:
            while True:
                size = self._read_bytes = min(self._readable(), end - at)
                data = b""
                for _ in self._turn():
                    data = self.shared.read(arena, at, size)
                at += len(data)
                for start in range(0, max(1, size), _ANSWER_BYTES):
                    piece = data[start : start + _ANSWER_BYTES]
                    last = at == end and start + _ANSWER_BYTES >= size
                    yield pb.Response(data=pb.Data(data=piece, last=last))
                if at == end:
                    return
        finally:
            self._read_bytes = 0

    def _readable(self) -> int:
        """Bytes to read at once: what others and the client itself hold leaves less than usual, but never nothing."""
        self._read_bytes = 0
        room = min(_READ_BYTES, self.server.client_bytes - self.held)
        if room > _ANSWER_BYTES and self.server.sessions.has_room(room, self.server.total_bytes, self):
            return room
        return _ANSWER_BYTES

    def _turn(self) -> Iterator[None]:
        """Runs its block once, when this session has the turn."""
        turns = self.shared.turns
        ticket = turns.enter()
        try:
            turns.wait(ticket)
            yield
        finally:
            turns.leave(ticket)

    def _run(self, run: pb.Run) -> Iterator[pb.Response]:
        config = self.shared.config
        if run.fingerprint != config.fingerprint:
            raise Refusal(
                f"the program is for configuration {run.fingerprint!r}, the device is {config.name!r} "
                f"({config.fingerprint})"
            )
        parts: list[RegionSource] = []
        for region in run.regions:
            if region.sha256:
                parts.append(region.sha256)
            else:
                parts.append(self._arena(region.arena, region.size) if region.arena else None)
        spans = [(region.offset, region.size) for region in run.regions]
        launch = Launch((), run.program_region, run.program_offset, run.program_length, run.watchdog, run.timeout)
        asked = _Run(self.server, parts, spans, launch)
        try:
            while not asked.wait(_WORD):
                if asked.started is not None:
                    yield pb.Response(running=pb.Running(seconds=time.monotonic() - asked.started))
                elif ahead := asked.ahead:
                    yield pb.Response(queued=pb.Queued(ahead=ahead))
            counters = asked.result()
            log.info("%s: ran %d instructions in %.3f s", self.peer, run.program_length, asked.seconds)
            yield pb.Response(finished=pb.Finished(counters=json.dumps(asdict(counters))))
        finally:
            asked.end()


class _Run:
    """A run that was asked for. It waits for its turn, has it, and gives it back in a thread of its own: however long
    its client takes over an answer, the turn is not held for it.

    Attributes:
        started: when it had its turn, None before.
        seconds: it took.
    """

    def __init__(self, server: Server, parts: list[RegionSource], spans: list[tuple[int, int]], launch: Launch) -> None:
        self._server, self._turns = server, server.shared.turns
        self.started: float | None = None
        self.seconds = 0.0
        self._gone = threading.Event()
        self._ticket = self._turns.enter()
        try:
            self._done: Future[Counters] = server.waiting.submit(self._in_turn, parts, spans, launch)
        except BaseException:
            self._turns.leave(self._ticket)
            raise

    @property
    def ahead(self) -> int:
        """Number of runs before this one."""
        return self._turns.ahead(self._ticket)

    def wait(self, seconds: float) -> bool:
        """Whether the run is over, after waiting for so many seconds at most."""
        return bool(wait([self._done], seconds).done)

    def result(self) -> Counters:
        return self._done.result()

    def end(self) -> None:
        """Ends the session once its client is gone or has all answers; waits for what cannot be interrupted."""
        self._gone.set()
        wait([self._done])

    def _in_turn(self, parts: list[RegionSource], spans: list[tuple[int, int]], launch: Launch) -> Counters:
        try:
            while not self._turns.wait(self._ticket, _LOOK):
                if self._gone.is_set():
                    raise Refusal("nobody waits for the run any more")
            return self._run_with_limits(parts, spans, launch)
        finally:
            self._turns.leave(self._ticket)

    def _run_with_limits(self, parts: list[RegionSource], spans: list[tuple[int, int]], launch: Launch) -> Counters:
        """Runs the launch, and interrupts it if it takes too long or has no client any more."""
        shared, longest = self._server.shared, self._server.longest_seconds
        self.started = started = time.monotonic()
        running = self._server.runs.submit(shared.run, parts, spans, launch, self._server.longest_run)
        late = False
        while not wait([running], min(_LOOK, longest)).done:
            late = time.monotonic() - started >= longest
            if late or self._gone.is_set():
                shared.interrupt()  # again and again: the run may only begin now
        self.seconds = time.monotonic() - started
        try:
            return running.result()
        except DeviceError as error:
            if not late or error.code != ErrorCode.TIMEOUT:
                raise
            text = f"TIMEOUT: the run takes longer than the {longest:g} s that the server gives it"
            raise DeviceError(text, error.code, error.engine, error.pc) from None


def _fault(error: DeviceError) -> pb.Fault:
    pc = -1 if error.pc is None else error.pc
    return pb.Fault(message=str(error), code=error.code, engine=error.engine, pc=pc, address=error.address)
