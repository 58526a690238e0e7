"""`Server`: a device for clients over gRPC."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict
from typing import Any

import grpc

from common.errors import TilewrightError
from common.version import tilewright_version
from isa.device import Counters, DeviceError, Launch
from isa.error_codes import ErrorCode
from tilewright.errors import UsageError
from tilewright.remote import remote_pb2 as pb
from tilewright.remote.protocol import METHOD, OPTIONS, PIECE_BYTES, PROTOCOL, SERVICE, TOKEN_KEY
from tilewright.remote.shared import OVERHEAD, Arena, Refusal, RegionSource, SharedDevice

CLIENTS = 64
#: Streams beyond CLIENTS that are answered, if only to be refused or to take the place of an idle one.
_SPARE = 16
#: Seconds between two words to a client that waits.
_WORD = 1.0
#: Bytes that one client may have: of arenas, of writes to them that wait for a run, and of contents under way.
CLIENT_BYTES = 2 << 30
#: Cycles of one run at most, what the register TIMEOUT can hold.
LONGEST_RUN = (1 << 32) - 1
#: Seconds of one run at most, where the device can be interrupted: on the functional and the cycle-level simulator.
LONGEST_SECONDS = 30.0
#: Seconds after which a client that asks for nothing is sent away.
IDLE_SECONDS = 600.0
#: Seconds after which an idle client makes room for a new one, where all places are taken.
YIELD_SECONDS = 10.0
log = logging.getLogger("tilewright.serve")


class Server:
    """A gRPC server that shares a device until `stop`.

    Args:
        shared: the device.
        address: HOST:PORT; port 0 takes a free one.
        token: what clients have to say, None = nothing.
        tls: (certificate chain, private key) as PEM, None = not encrypted.
        client_bytes: of memory one client may take up.
        total_bytes: of memory all clients may take up together; half of this machine's by default.
        clients: connections at a time.
        longest_run: cycles (steps of an engine on the functional simulator) after which a run ends with TIMEOUT.
        longest_seconds: after which a run ends with TIMEOUT, where the device can be interrupted.
        idle_seconds, yield_seconds: see IDLE_SECONDS and YIELD_SECONDS.

    Attributes:
        port: listened at.

    Raises:
        UsageError: the address cannot be listened at.
    """

    def __init__(
        self,
        shared: SharedDevice,
        address: str,
        token: str | None = None,
        tls: tuple[bytes, bytes] | None = None,
        *,
        client_bytes: int = CLIENT_BYTES,
        total_bytes: int | None = None,
        clients: int = CLIENTS,
        longest_run: int = LONGEST_RUN,
        longest_seconds: float = LONGEST_SECONDS,
        idle_seconds: float = IDLE_SECONDS,
        yield_seconds: float = YIELD_SECONDS,
    ) -> None:
        self.shared, self.client_bytes, self._token = shared, client_bytes, token
        self.longest_run, self.longest_seconds = longest_run, longest_seconds
        self.total_bytes = half_of_memory() if total_bytes is None else total_bytes
        self.sessions = Sessions(clients, idle_seconds, yield_seconds)
        self._runs = ThreadPoolExecutor(1, "run")
        streams = clients + _SPARE
        self._server = grpc.server(
            ThreadPoolExecutor(streams, "client"), options=OPTIONS, maximum_concurrent_rpcs=streams
        )
        handler = grpc.stream_stream_rpc_method_handler(
            self._session, pb.Request.FromString, pb.Response.SerializeToString
        )
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
        try:
            if tls is None:
                self.port = self._server.add_insecure_port(address)
            else:
                credentials = grpc.ssl_server_credentials([(tls[1], tls[0])])
                self.port = self._server.add_secure_port(address, credentials)
        except RuntimeError:
            self.port = 0
        if not self.port:
            raise UsageError(f"cannot listen at {address}; is the port in use, the certificate damaged?")
        self._server.start()

    def stop(self, seconds: float = 1.0) -> None:
        """Ends the streams, after at most so many seconds, and gives the device back when the run under way is over."""
        self.sessions.stop()
        self._server.stop(seconds).wait()
        self._runs.shutdown()
        self.shared.close()

    def wait(self) -> None:
        """Until `stop` by another thread or a signal."""
        self._server.wait_for_termination()

    def _session(self, requests: Iterator[pb.Request], context: Any) -> Iterator[pb.Response]:
        """One client's stream."""
        if self._token is not None:
            said = dict(context.invocation_metadata()).get(TOKEN_KEY, "")
            if not hmac.compare_digest(said.encode(), f"Bearer {self._token}".encode()):
                log.warning("%s: refused, wrong token", context.peer())
                context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is missing or wrong")
        session = _Session(self, context)
        if not self.sessions.enter(session):
            log.warning("%s: refused, all %d places are taken", context.peer(), self.sessions.limit)
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many clients")
        log.info("%s: connected", context.peer())
        try:
            yield session.welcome()
            for request in requests:
                try:
                    with session.busy():
                        yield from session.answer(request)
                except Refusal as error:
                    log.warning("%s: refused: %s", context.peer(), error)
                    yield pb.Response(refused=pb.Refused(message=str(error)))
                except DeviceError as error:
                    log.info("%s: the machine stopped: %s", context.peer(), error)
                    yield pb.Response(fault=_fault(error))
                except TilewrightError as error:
                    log.error("%s: %s", context.peer(), error)
                    yield pb.Response(refused=pb.Refused(message=str(error)))
                except MemoryError:
                    log.error("%s: no memory left", context.peer())
                    yield pb.Response(refused=pb.Refused(message="the server has no memory left; try again later"))
        finally:
            self.sessions.leave(session)
            session.close()
            log.info("%s: gone", context.peer())


def half_of_memory() -> int:
    """Bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


class Sessions:
    """The clients that are connected. Those that ask for nothing are sent away in the end.

    Args:
        limit: connections.
        idle, give_way: seconds, see IDLE_SECONDS and YIELD_SECONDS.
    """

    def __init__(self, limit: int, idle: float, give_way: float) -> None:
        self.limit, self._idle, self._give_way = limit, idle, give_way
        self._lock = threading.Lock()
        self._present: dict[_Session, None] = {}
        self._stopped = threading.Event()
        threading.Thread(target=self._watch, daemon=True, name="idle clients").start()

    def stop(self) -> None:
        self._stopped.set()

    @property
    def present(self) -> int:
        """Clients that are connected."""
        with self._lock:
            return len(self._present)

    @property
    def held(self) -> int:
        """Bytes all clients take up."""
        with self._lock:
            return sum(session.held for session in self._present)

    def enter(self, session: _Session) -> bool:
        """False where there is no place: neither a free one, nor one of a client that is idle for long enough."""
        with self._lock:
            if len(self._present) >= self.limit:
                waiting = [s for s in self._present if s.idle_since is not None]
                longest = min(waiting, key=lambda s: s.idle_since or 0.0, default=None)
                if longest is None or not _idle_for(longest, self._give_way):
                    return False
                del self._present[longest]
                longest.end("another client needed the place, this one was idle")
            self._present[session] = None
            return True

    def leave(self, session: _Session) -> None:
        with self._lock:
            self._present.pop(session, None)

    def _watch(self) -> None:
        while not self._stopped.wait(min(1.0, self._idle / 4)):
            with self._lock:
                for session in [s for s in self._present if _idle_for(s, self._idle)]:
                    del self._present[session]
                    session.end(f"idle for {self._idle:.0f} s")


def _idle_for(session: _Session, seconds: float) -> bool:
    since = session.idle_since
    return since is not None and time.monotonic() - since >= seconds


class _Session:
    """The connection of a client, and what it has on the server."""

    def __init__(self, server: Server, context: Any) -> None:
        self.server, self.shared, self.context = server, server.shared, context
        self.arenas: dict[int, Arena] = {}
        self._coming: dict[bytes, bytearray] = {}
        self.idle_since: float | None = time.monotonic()  # None while a request is answered

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """While a request is answered the client is not idle."""
        self.idle_since = None
        try:
            yield
        finally:
            self.idle_since = time.monotonic()

    @property
    def held(self) -> int:
        """Bytes the client takes up, those of keeping an arena or contents that are on their way among them."""
        arenas, coming = list(self.arenas.values()), list(self._coming.values())
        held = sum(a.size + a.waiting for a in arenas) + sum(map(len, coming))
        return held + OVERHEAD * (len(arenas) + len(coming))

    def welcome(self) -> pb.Response:
        device = self.shared.device
        config = json.dumps(device.config.to_dict())
        found = pb.Welcome(version=tilewright_version(), device=device.name, config=config, protocol=PROTOCOL)
        return pb.Response(welcome=found)

    def end(self, reason: str) -> None:
        """Ends the stream from another thread; the client is told that it was cancelled."""
        log.info("%s: sent away: %s", self.context.peer(), reason)
        self.context.cancel()

    def close(self) -> None:
        """Gives the client's memory back."""
        self._coming.clear()
        if self.arenas:
            for _ in self._turn():
                self.shared.drop(self.arenas.values())

    def answer(self, request: pb.Request) -> Iterator[pb.Response]:
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
        if write.offset + len(write.data) > arena.size:
            raise Refusal(f"bytes {write.offset}.. lie outside the {arena.size} of the arena")
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
        if self.server.sessions.held + more > self.server.total_bytes:
            raise Refusal(
                f"{more} bytes more than the {self.server.total_bytes} all clients may have together; try again later"
            )

    def _read(self, read: pb.Read) -> Iterator[pb.Response]:
        if read.arena not in self.arenas:
            raise Refusal(f"no arena {read.arena}")
        data = b""
        for _ in self._turn():
            data = self.shared.read(self.arenas[read.arena], read.offset, read.size)
        for start in range(0, max(1, len(data)), PIECE_BYTES):
            piece = data[start : start + PIECE_BYTES]
            yield pb.Response(data=pb.Data(data=piece, last=start + PIECE_BYTES >= len(data)))

    def _turn(self) -> Iterator[None]:
        """Once, with the turn."""
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
        sizes = [region.size for region in run.regions]
        turns = self.shared.turns
        ticket = turns.enter()
        running: Future[Counters] | None = None
        try:
            while not turns.wait(ticket, _WORD):
                yield pb.Response(queued=pb.Queued(ahead=turns.ahead(ticket)))
            started = time.monotonic()
            launch = Launch((), run.program_region, run.program_offset, run.program_length, run.watchdog, run.timeout)
            running = self.server._runs.submit(self.shared.run, parts, sizes, launch, self.server.longest_run)
            longest, late = self.server.longest_seconds, False
            while not wait([running], min(_WORD, longest)).done:
                yield pb.Response(running=pb.Running(seconds=time.monotonic() - started))
                late = time.monotonic() - started >= longest
                if late:
                    self.shared.interrupt()  # again and again: the run may only begin now
            try:
                counters = running.result()
            except DeviceError as error:
                if not late or error.code != ErrorCode.TIMEOUT:
                    raise
                text = f"TIMEOUT: the run takes longer than the {longest:g} s that the server gives it"
                raise DeviceError(text, error.code, error.engine, error.pc) from None
            log.info("%s: ran %d instructions in %.3f s", self.context.peer(), run.program_length,
                     time.monotonic() - started)  # fmt: skip
            yield pb.Response(finished=pb.Finished(counters=json.dumps(asdict(counters))))
        finally:
            while running is not None and not wait([running], _WORD / 10).done:
                self.shared.interrupt()  # its client is gone; what cannot be interrupted ends by itself
            turns.leave(ticket)


def _fault(error: DeviceError) -> pb.Fault:
    pc = -1 if error.pc is None else error.pc
    return pb.Fault(message=str(error), code=error.code, engine=error.engine, pc=pc, address=error.address)
