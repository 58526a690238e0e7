"""A server of a simulator that is watched, and clients of it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import numpy as np

from tests.common.paths import ROOT
from tests.common.waiting import HANG
from tilewright.common.allocator import MemoryFull
from tilewright.common.errors import TilewrightError
from tilewright.isa.assembler import assemble
from tilewright.isa.config import NpuConfig
from tilewright.isa.device import Counters, Region
from tilewright.isa.encoding import to_bytes
from tilewright.remote import remote_pb2 as pb
from tilewright.remote.client import Address, RemoteDevice
from tilewright.remote.protocol import METHOD, OPTIONS, SERVICE
from tilewright.remote.server import Server
from tilewright.remote.shared import SharedDevice
from tilewright.runtime.devices import Runner
from tilewright.simulator.cycle import CycleDevice

MODEL = ROOT / "examples" / "digits" / "digits_int8.onnx"


TINY = NpuConfig.load("tiny")


class Watched(CycleDevice):
    """A cycle-level simulator that can be slow, small or broken, and counts its runs."""

    def __init__(self, config: NpuConfig, room: int | None = None) -> None:
        super().__init__(config)
        self.runs, self.closed = 0, False
        self.go = threading.Event()
        self.go.set()
        self.breaks = False
        self.room, self.held = room, dict[int, int]()

    def allocate(self, nbytes: int) -> int:
        if self.room is not None and sum(self.held.values()) + nbytes > self.room:
            raise MemoryFull("the device is small")
        address = super().allocate(nbytes)
        self.held[address] = nbytes
        return address

    def free(self, address: int) -> None:
        del self.held[address]
        super().free(address)

    def run(self, *arguments: Any, **options: Any) -> Counters:
        self.runs += 1
        assert self.go.wait(HANG)
        if self.breaks:
            self.breaks, self.closed = False, True
            raise TilewrightError("the link is dead")
        return super().run(*arguments, **options)

    def close(self) -> None:
        self.closed = True


@contextmanager
def serving(room: int | None = None, config: NpuConfig = TINY, **options: Any) -> Iterator[tuple[Server, SharedDevice]]:
    shared = SharedDevice(lambda: Watched(config, room), 64 << 20)
    server = Server(shared, "127.0.0.1:0", **options)
    try:
        yield server, shared
    finally:
        server.stop(0.2)


def connect(server: Server, **options: Any) -> RemoteDevice:
    return RemoteDevice(Address(f"127.0.0.1:{server.port}"), **options)


class Stream:
    """A client that says what it likes, without looking at it first."""

    def __init__(self, server: Server) -> None:
        self._requests: queue.SimpleQueue[pb.Request] = queue.SimpleQueue()
        # A connection of its own, and 64 KiB at most on their way to it.
        options = [*OPTIONS, ("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0)]
        self._channel = grpc.insecure_channel(f"127.0.0.1:{server.port}", options)
        before = {session.peer for session in server.sessions.clients}
        call = self._channel.stream_stream(f"/{SERVICE}/{METHOD}", pb.Request.SerializeToString, pb.Response.FromString)
        self._responses = call(iter(self._requests.get, None))
        assert self.next().HasField("welcome")
        #: What the server calls it.
        self.peer = next((s.peer for s in server.sessions.clients if s.peer not in before), "")

    def say(self, request: pb.Request) -> None:
        self._requests.put(request)

    def next(self) -> pb.Response:
        """The next answer."""
        answer: pb.Response = next(self._responses)
        return answer

    def ask(self, request: pb.Request) -> pb.Response:
        """The first answer."""
        self.say(request)
        return self.next()

    def leave(self) -> None:
        """Closes the connection without ending the stream."""
        self._channel.close()


def runner(device: RemoteDevice) -> Runner:
    return Runner(device.name, device.config, lambda config: device)


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name])


END = to_bytes(assemble("END"))


def place(device: RemoteDevice, image: bytes) -> list[Region]:
    address = device.allocate(len(image))
    device.write(address, image)
    return [Region(address, len(image), read=True)]
