"""Effects of one client on others."""

from __future__ import annotations

import grpc
import pytest

from tests.common.waiting import HANG, wait_until
from tests.unit.tilewright.remote.serving import Stream, connect, place, runner, same, serving
from tilewright.isa.assembler import assemble
from tilewright.isa.device import DeviceError
from tilewright.isa.encoding import to_bytes
from tilewright.remote import remote_pb2 as pb
from tilewright.remote.client import RemoteError


@pytest.mark.medium
def test_memory_that_cannot_be_had_is_refused_and_forgotten(program, inputs, expected) -> None:
    """A client that asks for more than the machine has leaves nothing behind that later clients stumble over."""
    with serving(client_bytes=1 << 62, total_bytes=1 << 62) as (server, _):
        greedy = Stream(server)
        write = pb.Write(arena=1, size=1 << 60, offset=0, data=b"x")
        assert greedy.ask(pb.Request(write=write)).HasField("accepted")
        for _ in range(2):
            answer = greedy.ask(pb.Request(read=pb.Read(arena=1, offset=0, size=1)))
            assert "no memory for" in answer.refused.message
        with runner(connect(server)) as remote:
            same(remote.run(program, inputs), expected[0])


def test_all_clients_together_have_a_limit() -> None:
    with serving(total_bytes=1 << 20) as (server, _):
        first, second = Stream(server), Stream(server)
        write = pb.Write(arena=1, size=700 << 10, offset=0, data=b"x")
        assert first.ask(pb.Request(write=write)).HasField("accepted")
        assert "all clients may have together" in second.ask(pb.Request(write=write)).refused.message
        assert first.ask(pb.Request(drop=pb.Drop(arena=1))).HasField("accepted")
        assert second.ask(pb.Request(write=write)).HasField("accepted")


def test_idle_clients_make_room(program, inputs, expected) -> None:
    """Streams that only stay open cannot lock others out, those that work are not sent away."""
    with serving(clients=2, yield_seconds=0.0) as (server, _):
        idle, working = Stream(server), connect(server)
        with runner(working) as remote:
            same(remote.run(program, inputs), expected[0])
            with runner(connect(server)) as third:  # takes the place of the one that is idle for longest
                same(third.run(program, inputs), expected[0])
            with pytest.raises(grpc.RpcError):
                idle.ask(pb.Request(have=pb.Have()))
    with serving(clients=1, yield_seconds=HANG) as (server, _):
        only = Stream(server)
        with pytest.raises(RemoteError, match="too many clients"):
            connect(server, seconds=0.3)
        assert only.ask(pb.Request(have=pb.Have())).HasField("missing")


def test_idle_clients_are_sent_away_in_the_end() -> None:
    with serving(idle_seconds=0.01) as (server, _):
        remote = connect(server)
        with pytest.raises(RemoteError, match=r"ended the connection, which waited|broke"):
            while True:
                remote._ask(pb.Request(have=pb.Have()))
                wait_until(lambda: not server.sessions.present)


@pytest.mark.medium
def test_no_run_goes_on_for_ever(program, inputs, expected) -> None:
    """A program of hours ends, whatever the client asks for, and the next client has its turn."""
    image = assemble(
        "VECTOR_LOOP count=65535\nVECTOR_LOOP level=1 count=65535\nVECTOR_LOOP level=2 count=200\nVECTOR\nEND\n"
    )
    with serving(longest_run=1 << 20) as (server, _):
        device = connect(server)
        with pytest.raises(DeviceError, match="TIMEOUT"):
            device.run(place(device, to_bytes(image)), 0, 0, len(image))
        with runner(connect(server)) as remote:
            same(remote.run(program, inputs), expected[0])
