"""Programs and requests that never reach the device."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

import tilewright as tw
from tests.unit.tilewright.remote.serving import END, MODEL, TINY, Stream, connect, place, runner, serving
from tilewright.errors import ConfigMismatchError
from tilewright.isa.assembler import assemble
from tilewright.isa.device import DeviceError, Region
from tilewright.isa.encoding import to_bytes
from tilewright.remote import remote_pb2 as pb
from tilewright.remote.client import RemoteError

NOISE = np.random.default_rng(3).integers(0, 256, 64, np.uint8).tobytes()


BEYOND = to_bytes(assemble(f"GEMM_LOOP level={TINY.gemm_loops + 1}\nEND"))  # a larger machine has that level


ENDLESS = to_bytes(assemble("GEMM_SYNC"))


@pytest.mark.parametrize(
    ("image", "length", "message"),
    [
        (NOISE, 4, "instruction 0"),
        (BEYOND, 2, f"level must be 0..{TINY.gemm_loops - 1}"),
        (ENDLESS, 1, "its last instruction is GEMM_SYNC"),
        (END, 2, "too few for 2 instructions"),
        (END, 0, "too few"),
    ],
)
def test_damaged_programs_do_not_reach_the_device(image: bytes, length: int, message: str) -> None:
    with serving() as (server, shared):
        device = connect(server)
        with pytest.raises(RemoteError, match=message):
            device.run(place(device, image), 0, 0, length)
        assert shared.device.runs == 0
        device.run(place(device, END), 0, 0, 1)
        assert shared.device.runs == 1


@pytest.mark.parametrize("first", [2, 256])
def test_regions_that_begin_where_none_can(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A region begins neither between two beats of the bus nor behind the end of what it is a part of."""
    with serving() as (server, shared):
        device = connect(server)
        regions, at = place(device, END), device.allocate(128)
        arena = device._part(Region(at, 128, read=True, write=True))
        wrong = pb.Region(arena=arena.arena, size=128, offset=first)
        part = device._part
        monkeypatch.setattr(device, "_part", lambda region: wrong if region.write else part(region))
        with pytest.raises(RemoteError, match=f"a region of 128 bytes begins at byte {first}"):
            device.run([*regions, Region(at, 128, read=True, write=True)], 0, 0, 1)
        assert shared.device.runs == 0


@pytest.mark.medium
def test_foreign_programs(program) -> None:
    with serving() as (server, shared):
        other = tw.compile_program(MODEL, "small")
        with pytest.raises(ConfigMismatchError, match="compile for 'tiny'"):
            connect(server, config=other.config)
        with runner(connect(server)) as remote, pytest.raises(ConfigMismatchError):
            remote.run(other, tw.random_inputs(other))
        device = connect(server)
        device.config = other.config  # a client that does not look
        with pytest.raises(RemoteError, match="is for configuration"):
            device.run(place(device, END), 0, 0, 1)
        assert shared.device.runs == 0


def test_requests_beyond_what_a_client_has() -> None:
    with serving() as (server, _):
        stream = Stream(server)
        sha256 = hashlib.sha256(b"x").digest()
        for request, message in (
            (pb.Request(piece=pb.Piece(sha256=sha256, size=1, data=b"y")), "arrived damaged"),
            (pb.Request(piece=pb.Piece(sha256=sha256, size=9, offset=4, data=b"y")), "out of order"),
            (pb.Request(piece=pb.Piece(sha256=sha256, size=1 << 60, data=b"y")), "bytes more than"),
            (pb.Request(read=pb.Read(arena=7, size=4)), "no arena 7"),
            (pb.Request(write=pb.Write(arena=1, size=4, offset=2, data=b"abc")), "outside the 4"),
            (pb.Request(read=pb.Read(arena=1, offset=1, size=4)), "outside the 4"),
            (pb.Request(write=pb.Write(arena=1, size=8, data=b"a")), "has 4 bytes, not 8"),
            (pb.Request(), "does not know"),
        ):
            assert message in stream.ask(request).refused.message
        assert stream.ask(pb.Request(have=pb.Have())).HasField("missing")  # the stream goes on


def test_windows_end_where_contents_end() -> None:
    """A region that claims more bytes than its contents have would show those of other clients beside it."""
    with serving() as (server, shared):
        other = connect(server)
        other.run([*place(other, END), *place(other, b"secret" * 20)], 0, 0, 1)
        stream, sha256 = Stream(server), hashlib.sha256(END).digest()
        assert stream.ask(pb.Request(piece=pb.Piece(sha256=sha256, size=len(END), data=END))).HasField("accepted")
        for size in (0, len(END) - 1, len(END) + 1, 1 << 20, 1 << 63):
            region = pb.Region(sha256=sha256, size=size)
            run = pb.Run(regions=[region], program_length=1, fingerprint=TINY.fingerprint)
            assert f"have {len(END)} bytes, not {size}" in stream.ask(pb.Request(run=run)).refused.message
        assert shared.device.runs == 1


@pytest.mark.parametrize("values", [{"watchdog": 1 << 40}, {"timeout": 1 << 63}, {"program_offset": 8}])
def test_runs_the_registers_cannot_express(values: dict[str, int]) -> None:
    with serving() as (server, shared):
        device = connect(server)
        numbers = {"program_offset": 0} | values
        with pytest.raises(DeviceError, match=r"must be (below 2\*\*32|a multiple of 16)"):
            device.run(place(device, END), 0, numbers.pop("program_offset"), 1, **numbers)
        assert shared.device.runs == 0


def test_a_client_cannot_fill_the_memory_of_the_server() -> None:
    with serving(client_bytes=10_000) as (server, _):
        stream = Stream(server)
        write = pb.Request(write=pb.Write(arena=1, size=4, data=b"abcd"))
        answers = [stream.ask(write) for _ in range(100)]
        assert answers[0].HasField("accepted")
        assert "4 bytes more than the 10000 a client may have" in answers[-1].refused.message
        assert (
            "33 bytes are no SHA-256"
            in stream.ask(pb.Request(piece=pb.Piece(sha256=bytes(33), size=1))).refused.message
        )
        assert stream.ask(pb.Request(read=pb.Read(arena=1, size=4))).data.data == b"abcd"
        assert stream.ask(write).HasField("accepted")  # those before are on the device


@pytest.mark.medium
@pytest.mark.parametrize("kind", ["arenas", "contents", "refused contents"])
def test_what_is_empty_takes_memory_too(kind: str) -> None:
    """A client cannot have any number of arenas, or of contents of which nothing has come."""
    made = {
        "arenas": lambda n: pb.Request(write=pb.Write(arena=n)),
        "contents": lambda n: pb.Request(piece=pb.Piece(sha256=n.to_bytes(32), size=1)),
        "refused contents": lambda n: pb.Request(piece=pb.Piece(sha256=n.to_bytes(32), size=20_000)),
    }[kind]
    with serving(client_bytes=10_000) as (server, _):
        stream = Stream(server)
        answers = [stream.ask(made(n)) for n in range(1, 101)]
        assert answers[0].HasField("accepted") == (kind != "refused contents")
        assert "more than the 10000 a client may have" in answers[-1].refused.message
        assert server.sessions.held <= 10_000 and (kind != "refused contents" or server.sessions.held == 0)
