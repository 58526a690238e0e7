"""`Gate`: accepts the connections of a server, so that none of them takes what the others need.

gRPC holds a descriptor for whoever connects, for minutes, and closes none of those it has to make room for another. So
it listens at a socket in a folder of its own, which the gate connects to on behalf of a client that has begun to speak,
and bytes go through here. A connection on which no stream was let in yet is new: there are few places for new ones, for
a short time. Where they are taken, one that has said nothing goes first, of the address with the most of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import itertools
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tilewright.common import temporary

#: Connections without a stream at a time.
NEW_CONNECTIONS = 64
#: Seconds for a TLS handshake, the HTTP/2 preface, and a stream with the right token.
HANDSHAKE_SECONDS = 10.0
_BACKLOG = 1024
_CHUNK = 1 << 16
#: Bytes of a path that a Unix socket can have, less those of the names in the folder.
_LONGEST_FOLDER = 80


def peer_of(host: str) -> str:
    """The key of a client machine: an IPv4 address, or an IPv6 /64 network, all of whose addresses one client may
    have."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)


class Connection:
    """One connection of a client.

    Attributes:
        host: its address.
        name: address and port, for the log.
        streams: let in on it; 0 for one that is new.
        silent: nothing has come yet.
        since: when it was accepted, or its last stream ended.
    """

    def __init__(self, host: str, port: int) -> None:
        self.host, self.name = host, f"{host}:{port}"
        self.streams, self.silent, self.since = 0, True, time.monotonic()
        self.task: asyncio.Task[None] | None = None


class Gate:
    """Listens at an address, for a server at `inner`, until `stop`.

    Args:
        host, port: to listen at; port 0 takes a free one.
        new_connections, handshake_seconds: see NEW_CONNECTIONS and HANDSHAKE_SECONDS.

    Attributes:
        port: listened at.
        inner: gRPC's name of the socket that the server has to listen at before `start`.

    Raises:
        OSError: it cannot be listened at.
    """

    def __init__(
        self,
        host: str,
        port: int,
        new_connections: int = NEW_CONNECTIONS,
        handshake_seconds: float = HANDSHAKE_SECONDS,
    ) -> None:
        self._limit, self._seconds = new_connections, handshake_seconds
        self._listening = _listen(host, port)
        self.port: int = self._listening[0].getsockname()[1]
        self._scratch = _private_folder()
        self._folder = Path(self._scratch.name)
        self._socket = self._folder / "grpc"
        self.inner = f"unix:{self._socket}"
        self._numbers = itertools.count()
        self._lock = threading.Lock()  # of `_there` and of what the connections are
        self._there: dict[str, Connection] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, daemon=True, name="gate")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Closes all connections."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        else:
            self._loop.close()
        for listener in self._listening:
            listener.close()
        self._scratch.cleanup()

    @property
    def connections(self) -> int:
        with self._lock:
            return len(self._there)

    def connection(self, peer: str) -> Connection:
        """The connection behind what gRPC takes for the peer of a stream."""
        with self._lock:
            return self._there.get(peer.rpartition("/")[2]) or Connection(peer, 0)

    @contextlib.contextmanager
    def stream(self, connection: Connection) -> Iterator[None]:
        """Counts a stream of the connection within its block; a connection with streams is not closed."""
        with self._lock:
            connection.streams += 1
        try:
            yield
        finally:
            with self._lock:
                connection.streams -= 1
                connection.since = time.monotonic()

    # In the gate's thread.

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        tasks = [self._loop.create_task(self._accept(listener)) for listener in self._listening]
        tasks.append(self._loop.create_task(self._watch()))
        self._loop.run_forever()
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.close()

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                accepted, address = await self._loop.sock_accept(listener)
            except OSError:  # gone again, or no descriptor is left
                with self._lock:
                    self._close_new(1)
                await asyncio.sleep(0.05)
                continue
            connection, name = Connection(*address[:2]), str(next(self._numbers))
            with self._lock:
                self._close_new(len(self._new()) + 1 - self._limit)
                self._there[name] = connection
            connection.task = self._loop.create_task(self._connected(name, connection, accepted))
            await asyncio.sleep(0)  # others are heard in between

    async def _connected(self, name: str, connection: Connection, client: socket.socket) -> None:
        try:
            with client, contextlib.suppress(OSError):
                client.setblocking(False)
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                first = await self._loop.sock_recv(client, _CHUNK)
                connection.silent = False
                if first:
                    with self._to_server(name) as server:
                        await self._through(client, server, first)
        finally:
            with self._lock:
                del self._there[name]

    def _to_server(self, name: str) -> socket.socket:
        """A connection to the server, which takes the name of its end for the peer's."""
        server, mine = socket.socket(socket.AF_UNIX), self._folder / name
        try:
            server.settimeout(1.0)
            server.bind(str(mine))
            server.connect(str(self._socket))
            server.setblocking(False)
        except BaseException:
            server.close()
            raise
        finally:
            mine.unlink(missing_ok=True)
        return server

    async def _through(self, client: socket.socket, server: socket.socket, first: bytes) -> None:
        """Passes bytes both ways until one end is closed."""
        directions = [asyncio.ensure_future(self._pump(client, server, first)),
                asyncio.ensure_future(self._pump(server, client))]  # fmt: skip
        try:
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for direction in directions:
                direction.cancel()
            await asyncio.gather(*directions, return_exceptions=True)

    async def _pump(self, source: socket.socket, target: socket.socket, data: bytes = b"") -> None:
        data = data or await self._loop.sock_recv(source, _CHUNK)
        while data:
            await self._loop.sock_sendall(target, data)
            data = await self._loop.sock_recv(source, _CHUNK)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(min(1.0, self._seconds / 4))
            late = time.monotonic() - self._seconds
            with self._lock:
                for connection in self._new():
                    if connection.since < late:
                        self._close(connection)

    def _close_new(self, count: int) -> None:
        """Closes so many new connections: silent ones first, of the address with the most of them, the oldest first."""
        new = self._new()
        crowd = Counter(peer_of(c.host) for c in new)
        new.sort(key=lambda c: (not c.silent, -crowd[peer_of(c.host)], c.since))
        for connection in new[: max(count, 0)]:
            self._close(connection)

    def _new(self) -> list[Connection]:
        return [c for c in self._there.values() if not c.streams and c.task is not None and not c.task.cancelling()]

    def _close(self, connection: Connection) -> None:
        if connection.task is not None:
            connection.task.cancel()


def _listen(host: str, port: int) -> list[socket.socket]:
    """Sockets at all addresses of a host. Raises OSError."""
    found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    listening: list[socket.socket] = []
    try:
        for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
            both = family == socket.AF_INET6 and address[0] == "::" and socket.has_dualstack_ipv6()
            at = (address[0], listening[0].getsockname()[1] if listening else port)
            try:
                listening.append(socket.create_server(at, family=family, backlog=_BACKLOG, dualstack_ipv6=both))
            except OSError:
                if not listening:
                    raise
            else:
                listening[-1].setblocking(False)
    except BaseException:
        for listener in listening:
            listener.close()
        raise
    return listening


def _private_folder() -> temporary.Folder:
    """A folder that only this user reaches, with room behind its name for that of a socket."""
    folder = temporary.Folder("tilewright-serve-", ignore_errors=True)
    if len(folder.name) <= _LONGEST_FOLDER:
        return folder
    folder.cleanup()
    return temporary.Folder("tilewright-serve-", "/tmp", ignore_errors=True)
