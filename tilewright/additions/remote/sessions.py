"""`Sessions`: the clients that are connected, and which of them goes when others need its room."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from tilewright.common.listening import is_loopback
from tilewright.remote.gate import peer_of

CLIENTS = 64
#: Clients from one address. Those of this machine are not counted: behind a tunnel all clients have its address.
PEER_CLIENTS = CLIENTS // 2
#: Seconds after which a client that asks for nothing is sent away.
IDLE_SECONDS = 600.0
#: Seconds after which an idle client makes room for a new one, where all places or bytes are taken.
YIELD_SECONDS = 4.0
#: Seconds after which a client that does not take an answer, or the next piece of it, is sent away.
SEND_SECONDS = 4.0
#: Seconds after which it makes room for another one.
_UNREAD_SECONDS = 1.0


@dataclass(frozen=True)
class Limits:
    """Limits on what clients may use of the server.

    Attributes:
        clients: connected at a time.
        peer_clients: of them from one address, see PEER_CLIENTS.
        idle_seconds, yield_seconds, send_seconds: see IDLE_SECONDS, YIELD_SECONDS and SEND_SECONDS.
    """

    clients: int = CLIENTS
    peer_clients: int = PEER_CLIENTS
    idle_seconds: float = IDLE_SECONDS
    yield_seconds: float = YIELD_SECONDS
    send_seconds: float = SEND_SECONDS


class Pace:
    """The side of a stream that waits for the other, and since when.

    Attributes:
        idle: since when the server waits for a request, None while it answers one.
        unread: since when it waits for the client to take an answer, None if it does not.
    """

    def __init__(self) -> None:
        self.idle: float | None = time.monotonic()
        self.unread: float | None = None

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Marks the client as not idle within its block, in which a request is answered."""
        self.idle = None
        try:
            yield
        finally:
            self.idle = time.monotonic()

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Marks an answer as unread within its block, until the client has taken it."""
        self.unread = time.monotonic()
        try:
            yield
        finally:
            self.unread = None

    def waits(self, idle: float, unread: float) -> float:
        """Seconds by which the client has kept the server waiting longer than these; below 0 if it has not."""
        now, overdue = time.monotonic(), -1.0
        since_unread, since_idle = self.unread, self.idle
        if since_unread is not None:
            overdue = now - since_unread - unread
        elif since_idle is not None:
            overdue = now - since_idle - idle
        return overdue


class Client(Protocol):
    """A session as `Sessions` sees it.

    Attributes:
        host, peer: the client's address, without and with the port.
        held: bytes it takes up.
        pace: whose move it is.
    """

    host: str
    peer: str
    pace: Pace

    @property
    def held(self) -> int: ...

    def end(self, reason: str) -> None:
        """Ends the stream; called from another thread."""


class Sessions:
    """The clients that are connected. Those that ask for nothing, or take no answer, are sent away in the end."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._lock = threading.Lock()
        self._present: dict[Client, None] = {}
        self._stopped = threading.Event()
        threading.Thread(target=self._watch, daemon=True, name="idle clients").start()

    def stop(self) -> None:
        self._stopped.set()

    @property
    def clients(self) -> list[Client]:
        """Sessions that are connected."""
        with self._lock:
            return list(self._present)

    @property
    def present(self) -> int:
        """Number of connected clients."""
        return len(self.clients)

    @property
    def held(self) -> int:
        """Bytes all clients take up."""
        with self._lock:
            return self._held()

    def enter(self, client: Client) -> bool:
        """Admits a client; False where there is no place: neither a free one, nor one of a client that makes room."""
        peer = peer_of(client.host)
        with self._lock:
            same = [] if is_loopback(client.host) else [c for c in self._present if peer_of(c.host) == peer]
            for crowd, most in ((same, self.limits.peer_clients), (list(self._present), self.limits.clients)):
                if len(crowd) >= most and not self._make_room(crowd, "another client needed the place"):
                    return False
            self._present[client] = None
            return True

    def leave(self, client: Client) -> None:
        with self._lock:
            self._present.pop(client, None)

    def has_room(self, more: int, total: int, asking: Client) -> bool:
        """Whether so many bytes more are no more than `total` for all together; clients that wait make room."""
        with self._lock:
            while self._held() + more > total:
                others = [c for c in self._present if c is not asking and c.held]
                if not self._make_room(others, "another client needed the memory"):
                    return False
            return True

    def _held(self) -> int:
        return sum(client.held for client in self._present)

    def _make_room(self, crowd: Iterable[Client], why: str) -> bool:
        """Disconnects the client that has kept the server waiting for longest, if that is long enough."""
        wait = lambda client: client.pace.waits(self.limits.yield_seconds, _UNREAD_SECONDS)
        longest = max(crowd, key=wait, default=None)
        if longest is None or wait(longest) < 0:
            return False
        self._send_away(longest, f"{why}, this one waited")
        return True

    def _send_away(self, client: Client, reason: str) -> None:
        self._present.pop(client, None)
        client.end(reason)

    def _watch(self) -> None:
        limits = self.limits
        while not self._stopped.wait(min(0.5, limits.idle_seconds / 4, limits.send_seconds / 4)):
            with self._lock:
                for client in list(self._present):
                    if client.pace.waits(limits.idle_seconds, limits.send_seconds) >= 0:
                        what = f"idle for {limits.idle_seconds:g} s"
                        if client.pace.unread is not None:
                            what = f"took no answer for {limits.send_seconds:g} s"
                        self._send_away(client, what)
