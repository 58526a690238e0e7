"""`Server`: a device for clients over gRPC."""

from __future__ import annotations

import hmac
import logging
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from tilewright.errors import UsageError
from tilewright.remote import remote_pb2 as pb
from tilewright.remote.gate import HANDSHAKE_SECONDS, Gate
from tilewright.remote.protocol import METHOD, OPTIONS, SERVICE, TOKEN_KEY
from tilewright.remote.session import Session
from tilewright.remote.sessions import (
    CLIENTS,
    IDLE_SECONDS,
    PEER_CLIENTS,
    SEND_SECONDS,
    YIELD_SECONDS,
    Limits,
    Sessions,
)
from tilewright.remote.shared import SharedDevice

#: Streams beyond the clients that are answered, if only to be refused or to take the place of one that waits.
_SPARE = 16
#: Bytes that one client may have: of arenas, of writes to them that wait for a run, of contents under way, and of
#: answers it has yet to take.
CLIENT_BYTES = 2 << 30
#: Cycles of one run at most, what the register TIMEOUT can hold.
LONGEST_RUN = (1 << 32) - 1
#: Seconds of one run at most, where the device can be interrupted: on the functional and the cycle-level simulator.
LONGEST_SECONDS = 30.0
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
        peer_clients: of them from one address, see PEER_CLIENTS.
        longest_run: cycles (steps of an engine on the functional simulator) after which a run ends with TIMEOUT.
        longest_seconds: after which a run ends with TIMEOUT, where the device can be interrupted.
        idle_seconds, yield_seconds, send_seconds: see IDLE_SECONDS, YIELD_SECONDS and SEND_SECONDS.
        handshake_seconds: after which a connection without a stream is closed.

    Attributes:
        port: listened at.
        gate: what accepts connections.
        sessions: the clients that are connected.
        waiting, runs: threads in which runs wait for their turn, and the one in which they have it.

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
        peer_clients: int = PEER_CLIENTS,
        longest_run: int = LONGEST_RUN,
        longest_seconds: float = LONGEST_SECONDS,
        idle_seconds: float = IDLE_SECONDS,
        yield_seconds: float = YIELD_SECONDS,
        send_seconds: float = SEND_SECONDS,
        handshake_seconds: float = HANDSHAKE_SECONDS,
    ) -> None:
        self.shared, self.client_bytes, self._token = shared, client_bytes, token
        self.longest_run, self.longest_seconds = longest_run, longest_seconds
        self.total_bytes = half_of_memory() if total_bytes is None else total_bytes
        host, _, port = address.rpartition(":")
        try:
            self.gate = Gate(host, int(port), handshake_seconds=handshake_seconds)
        except OSError as error:
            raise UsageError(f"cannot listen at {address}: {error.strerror or error}") from None
        streams = clients + _SPARE
        self._server = grpc.server(
            ThreadPoolExecutor(streams, "client"),
            options=[*OPTIONS, ("grpc.max_concurrent_streams", streams)],
            maximum_concurrent_rpcs=streams,
        )
        handler = grpc.stream_stream_rpc_method_handler(
            self._session, pb.Request.FromString, pb.Response.SerializeToString
        )
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
        try:
            if tls is None:
                self._server.add_insecure_port(self.gate.inner)
            else:
                self._server.add_secure_port(self.gate.inner, grpc.ssl_server_credentials([(tls[1], tls[0])]))
        except RuntimeError:
            self.gate.stop()
            raise UsageError(f"cannot listen at {address}; is the certificate damaged?") from None
        self.port = self.gate.port
        self.sessions = Sessions(Limits(clients, peer_clients, idle_seconds, yield_seconds, send_seconds))
        self.runs, self.waiting = ThreadPoolExecutor(1, "run"), ThreadPoolExecutor(streams, "turn")
        self._server.start()
        self.gate.start()

    def stop(self, seconds: float = 1.0) -> None:
        """Ends the streams, after at most so many seconds, and gives the device back when the run under way is over."""
        self.sessions.stop()
        self._server.stop(seconds).wait()
        self.gate.stop()
        self.waiting.shutdown()
        self.runs.shutdown()
        self.shared.close()

    def wait(self) -> None:
        """Waits until another thread or a signal calls `stop`."""
        self._server.wait_for_termination()

    def _session(self, requests: Iterator[pb.Request], context: Any) -> Iterator[pb.Response]:
        """One client's stream."""
        connection = self.gate.connection(context.peer())
        if self._token is not None:
            token = dict(context.invocation_metadata()).get(TOKEN_KEY, "")
            if not hmac.compare_digest(token.encode(), f"Bearer {self._token}".encode()):
                log.warning("%s: refused, wrong token", connection.name)
                context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is missing or wrong")
        session = Session(self, context, connection)
        if not self.sessions.enter(session):
            log.warning("%s: refused, all places are taken", connection.name)
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many clients")
        log.info("%s: connected", connection.name)
        try:
            with self.gate.stream(connection):
                yield from session.answers(requests)
        finally:
            self.sessions.leave(session)
            session.close()
            log.info("%s: gone", connection.name)


def half_of_memory() -> int:
    """Half of this machine's memory, in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
