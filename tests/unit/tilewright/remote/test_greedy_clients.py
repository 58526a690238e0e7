"""Clients that only take: what they hold is bounded, and others are served meanwhile."""

from __future__ import annotations

import hashlib
import socket
import threading
import time

import pytest

from tests.common.waiting import HANG, wait_until
from tests.unit.tilewright.remote.serving import END, TINY, Stream, connect, place, runner, same, serving
from tilewright.common.listening import is_loopback
from tilewright.remote import remote_pb2 as pb
from tilewright.remote.client import RemoteError
from tilewright.remote.gate import Gate, peer_of
from tilewright.remote.sessions import Limits, Pace, Sessions

MIB = 1 << 20


def run_of(stream: Stream) -> pb.Request:
    """The shortest run, whose program the server has then."""
    sha256 = hashlib.sha256(END).digest()
    stream.ask(pb.Request(piece=pb.Piece(sha256=sha256, size=len(END), data=END)))
    region = pb.Region(sha256=sha256, size=len(END))
    return pb.Request(run=pb.Run(regions=[region], program_length=1, fingerprint=TINY.fingerprint))


def stuck(server, stream: Stream, request: pb.Request) -> None:
    """Asks again and again, and reads none of the answers, until the server waits for the client."""
    (session,) = (s for s in server.sessions.clients if s.peer == stream.peer)

    def waits() -> bool:
        if session.pace.unread is None:
            for _ in range(50):
                stream.say(request)
        return session.pace.waits(HANG, 0.3) >= 0

    wait_until(waits, "the server to wait for the client")


@pytest.mark.medium
def test_who_does_not_read_has_no_turn(program, inputs, expected) -> None:
    """Answers that nobody takes stop the client that asked for them, not the device."""
    with serving(send_seconds=HANG) as (server, shared):
        deaf = Stream(server)
        stuck(server, deaf, run_of(deaf))
        wait_until(lambda: not shared.turns.taken, "the turn to be given back")
        with runner(connect(server)) as remote:
            same(remote.run(program, inputs), expected[0])
        assert server.sessions.present == 1  # it is still there


def test_who_does_not_read_is_sent_away() -> None:
    with serving(send_seconds=0.3) as (server, _):
        deaf = Stream(server)
        assert deaf.ask(pb.Request(write=pb.Write(arena=1, size=8 * MIB, data=b"x"))).HasField("accepted")
        deaf.say(pb.Request(read=pb.Read(arena=1, size=8 * MIB)))
        wait_until(lambda: not server.sessions.present, "the client that does not read to be sent away")


@pytest.mark.medium
def test_every_piece_of_an_answer_has_its_own_time() -> None:
    with serving(send_seconds=HANG) as (server, _):
        slow = Stream(server)
        assert slow.ask(pb.Request(write=pb.Write(arena=1, size=8 * MIB, data=b"x"))).HasField("accepted")
        stuck(server, slow, pb.Request(read=pb.Read(arena=1, size=8 * MIB)))
        (session,) = server.sessions.clients
        first, got = session.pace.unread, b""
        while len(got) < 8 * MIB:
            got += slow.next().data.data
        assert got == b"x" + bytes(8 * MIB - 1)
        wait_until(lambda: session.pace.unread != first)


def test_an_answer_counts_as_memory() -> None:
    """Bytes of answers read ahead of the clients count as their memory, and are limited for all clients together."""
    with serving(total_bytes=13 * MIB, send_seconds=HANG) as (server, _):
        streams = [Stream(server) for _ in range(3)]
        for stream in streams:
            size = 2 * MIB
            assert stream.ask(pb.Request(write=pb.Write(arena=1, size=size, data=b"x"))).HasField("accepted")
        for stream in streams:
            stuck(server, stream, pb.Request(read=pb.Read(arena=1, size=2 * MIB)))
        assert 3 * 2 * MIB < server.sessions.held < 13 * MIB


@pytest.mark.medium
def test_clients_that_do_not_read_make_room(program, inputs, expected) -> None:
    with serving(clients=2, yield_seconds=HANG, send_seconds=HANG) as (server, _):
        deaf = [Stream(server) for _ in range(2)]
        for stream in deaf:
            assert stream.ask(pb.Request(write=pb.Write(arena=1, size=2 * MIB, data=b"x"))).HasField("accepted")
            stuck(server, stream, pb.Request(read=pb.Read(arena=1, size=2 * MIB)))
        with runner(connect(server, seconds=HANG)) as remote:
            same(remote.run(program, inputs), expected[0])


@pytest.mark.medium
def test_memory_of_clients_that_do_not_read_is_given_back(program, inputs, expected) -> None:
    with serving(total_bytes=16 * MIB, send_seconds=HANG) as (server, _):
        deaf = Stream(server)
        assert deaf.ask(pb.Request(write=pb.Write(arena=1, size=15 * MIB, data=b"x"))).HasField("accepted")
        stuck(server, deaf, pb.Request(read=pb.Read(arena=1, size=15 * MIB)))
        wait_until(lambda: time.monotonic() - next(iter(server.sessions.clients)).pace.unread > 1.0)
        other = Stream(server)
        answer = other.ask(pb.Request(write=pb.Write(arena=1, size=2 * MIB, data=b"x")))
        assert answer.HasField("accepted"), answer


@pytest.mark.medium
@pytest.mark.parametrize(
    "greeting", [b"", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", b"\x16\3\1", b"GET /"]
)
def test_connections_without_a_stream(greeting: bytes, program, inputs, expected) -> None:
    """Connections without a stream take few of the server's places, and a client gets in while they come."""
    with serving(handshake_seconds=HANG) as (server, _):
        kept: list[socket.socket] = []
        ended = threading.Event()

        def attack() -> None:
            while not ended.is_set() and len(kept) < 1500:
                kept.append(socket.create_connection(("127.0.0.1", server.port)))
                if greeting:
                    kept[-1].send(greeting)

        thread = threading.Thread(target=attack)
        thread.start()
        try:
            wait_until(lambda: len(kept) > 200)
            with runner(connect(server, seconds=HANG)) as remote:
                same(remote.run(program, inputs), expected[0])
                assert server.gate.connections < 100  # 64, and some that are being closed
        finally:
            ended.set()
            thread.join()
            for connection in kept:
                connection.close()


def test_connections_without_a_stream_end() -> None:
    with serving(handshake_seconds=0.2) as (server, _):
        with socket.create_connection(("127.0.0.1", server.port)) as silent:
            silent.settimeout(HANG)
            assert silent.recv(1) == b""
        device = connect(server)  # one with a stream stays
        time.sleep(0.5)
        device.run(place(device, END), 0, 0, 1)
        device.close()
        wait_until(lambda: not server.gate.connections)


class Fake:
    """A client from anywhere."""

    def __init__(self, host: str, held: int = 0) -> None:
        self.host, self.held, self.pace, self.ended = host, held, Pace(), ""

    def end(self, reason: str) -> None:
        self.ended = reason


def test_one_address_does_not_get_all_places() -> None:
    sessions = Sessions(Limits(clients=4, peer_clients=2, yield_seconds=HANG))
    try:
        near = [Fake("127.0.0.1") for _ in range(2)]
        assert all(map(sessions.enter, near))
        first, second, third = (Fake(f"2001:db8::{n}") for n in range(3))
        assert sessions.enter(first) and sessions.enter(second) and not sessions.enter(third)
        sessions.leave(near[0])
        assert not sessions.enter(third) and sessions.enter(Fake("192.0.2.1"))
        first.pace.unread = time.monotonic() - 10
        assert sessions.enter(Fake("192.0.2.2")) and first.ended  # all places are taken: one that does not read goes
    finally:
        sessions.stop()


def test_addresses_of_one_machine() -> None:
    assert peer_of("192.0.2.1") == peer_of("::ffff:192.0.2.1") != peer_of("192.0.2.2")
    assert peer_of("2001:db8::1") == peer_of("2001:db8::2%eth0") != peer_of("2001:db8:0:1::1")
    assert is_loopback("127.3.4.5") and is_loopback("[::1]") and is_loopback("localhost") and not is_loopback("board")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "0.0.0.0", "[::1]", "[::]"])
def test_where_a_gate_listens(host: str) -> None:
    try:
        gate = Gate(host, 0)
    except OSError:
        pytest.skip(f"this machine has no {host}")
    gate.start()
    try:
        there = "::1" if "::1" in host else "127.0.0.1"
        with socket.create_connection((there, gate.port)):
            wait_until(lambda: gate.connections == 1)
        wait_until(lambda: gate.connections == 0)
    finally:
        gate.stop()


def test_a_client_waits_for_a_place() -> None:
    with serving(clients=1, yield_seconds=HANG) as (server, _):
        only = Stream(server)
        with pytest.raises(RemoteError, match="too many clients"):
            connect(server, seconds=0.3)
        threading.Timer(0.3, only.leave).start()
        connect(server, seconds=HANG).close()
