"""Makes requests to `tilewright serve`: a stream of them, with fields, bytes or whole requests changed.

The file is the stream, each request behind its length. The server's session is given the requests as gRPC would give
them; those that are no request end a stream there, and are left out here. However a stream ends, the server must have
its memory back.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message

from tilewright.isa.config import preset
from tilewright.isa.encoding import op, to_bytes
from tilewright.remote import remote_pb2 as pb
from tilewright.remote.server import Server
from tilewright.remote.shared import Refusal, SharedDevice
from tilewright.simulator.functional import FunctionalDevice
from verification.fuzz.files import mutations as m

_PROGRAM = to_bytes(
    [op("LOAD", region=1, count=4, signal0=1), op("STORE", region=2, count=4, wait0=1), op("END")]
)  # fmt: skip
_DATA = bytes(range(64))
#: Bytes of a client, of all contents, and of the numbers of a length.
_CLIENT_BYTES, _CONTENT_BYTES, _LENGTH = 1 << 20, 1 << 22, struct.Struct("<I")


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _conversation() -> list[pb.Request]:
    """Returns the messages of a client that runs a program on bytes of its own."""
    program, data, arena = _sha256(_PROGRAM), _sha256(_DATA), 1
    regions = [
        pb.Region(sha256=program, size=len(_PROGRAM)),
        pb.Region(sha256=data, size=len(_DATA)),
        pb.Region(arena=arena, size=256),
    ]
    run = pb.Run(regions=regions, program_length=3, watchdog=1000, timeout=1000, fingerprint=preset("tiny").fingerprint)
    pieces = [(program, _PROGRAM), (data, _DATA)]
    return [
        pb.Request(have=pb.Have(sha256=[program, data])),
        *(pb.Request(piece=pb.Piece(sha256=sha, size=len(text), data=text)) for sha, text in pieces),
        pb.Request(write=pb.Write(arena=arena, size=256, offset=16, data=_DATA)),
        pb.Request(run=run),
        pb.Request(read=pb.Read(arena=arena, size=256)),
        pb.Request(drop=pb.Drop(arena=arena)),
    ]


def mutated(rng: random.Random) -> bytes:
    """Returns a conversation with a few changes."""
    messages = _conversation()
    for _ in range(rng.choice((1, 1, 2, 3, 6))):
        at, kind = rng.randrange(len(messages)), rng.random()
        if kind < 0.7:
            _change(rng, messages[at])
        elif kind < 0.8 and len(messages) > 1:
            del messages[at]
        elif kind < 0.9:
            messages.insert(rng.randrange(len(messages) + 1), pb.Request.FromString(messages[at].SerializeToString()))
        else:
            other = rng.randrange(len(messages))
            messages[at], messages[other] = messages[other], messages[at]
    texts = [request.SerializeToString() for request in messages]
    if rng.random() < 0.2:
        at = rng.randrange(len(texts))
        texts[at] = m.mutate_bytes(rng, texts[at])
    return b"".join(_LENGTH.pack(len(text)) + text for text in texts)


def _change(rng: random.Random, message: Message) -> None:
    """Changes one field of a message, or of one in it."""
    field = rng.choice(message.DESCRIPTOR.fields)
    if message.DESCRIPTOR.name == "Request":
        field = message.DESCRIPTOR.fields_by_name[message.WhichOneof("body") or "have"]
    value: Any = getattr(message, field.name)
    repeated = not isinstance(value, (int, str, bytes, Message))
    if repeated:
        if not value or rng.random() < 0.2:
            if rng.random() < 0.5:
                del value[:]
            elif field.message_type is not None:
                value.add()
            else:
                value.append(rng.randbytes(rng.choice((0, 31, 32, 33))))
        elif field.message_type is not None:
            _change(rng, rng.choice(value))
        else:
            value[rng.randrange(len(value))] = rng.randbytes(32)
    elif isinstance(value, Message):
        _change(rng, value)
    elif isinstance(value, int):
        bits = 32 if field.type == field.TYPE_UINT32 else 64
        setattr(message, field.name, rng.choice((value + 1, abs(value - 1), *m.INTEGERS)) & ((1 << bits) - 1))
    elif isinstance(value, str):
        setattr(message, field.name, rng.choice(m.TEXTS))
    else:
        setattr(message, field.name, m.mutate_bytes(rng, value))


class _Context:
    """The methods of a gRPC context that a session calls."""

    def peer(self) -> str:
        return "fuzz"

    def invocation_metadata(self) -> tuple[()]:
        return ()

    def cancel(self) -> None:
        """The server ends an idle client; none is idle for long enough here."""

    def abort(self, code: grpc.StatusCode, text: str) -> None:
        raise AssertionError(f"{code}: {text}")


@functools.cache
def _server() -> Server:
    shared = SharedDevice(lambda: FunctionalDevice(preset("tiny")), _CONTENT_BYTES)
    server = Server(shared, "127.0.0.1:0", client_bytes=_CLIENT_BYTES, longest_run=100_000)
    atexit.register(server.stop, 0.0)
    return server


def _requests(data: bytes) -> Iterator[pb.Request]:
    while len(data) >= _LENGTH.size:
        (length,) = _LENGTH.unpack_from(data)
        text, data = data[_LENGTH.size : _LENGTH.size + length], data[_LENGTH.size + length :]
        try:
            yield pb.Request.FromString(text)
        except DecodeError:
            continue


def read(data: bytes, rng: random.Random, folder: Path) -> None:
    """A stream of a client. Raises `Refusal` where something of it was refused."""
    server = _server()
    refused = ""
    session = server._session(_requests(data), _Context())
    for response in session:
        assert server.sessions.held <= _CLIENT_BYTES, f"a client has {server.sessions.held} bytes"
        refused = response.refused.message or response.fault.message or refused
    assert not server.sessions.present and not server.shared.turns.taken, "a client that is gone has its place still"
    if refused:
        raise Refusal(refused)
