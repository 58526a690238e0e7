"""`RemoteDevice`: a device that `tilewright serve` shares, as `tilewright.isa.device.Device`."""

from __future__ import annotations

import hashlib
import json
import os
import queue
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import grpc
import numpy as np

from tilewright.common.errors import TilewrightError
from tilewright.common.listening import checked_token, read_token
from tilewright.common.text import suggest
from tilewright.common.version import tilewright_version
from tilewright.errors import ConfigMismatchError, UsageError
from tilewright.isa.config import NpuConfig
from tilewright.isa.device import Counters, DeviceError, EngineCounters, HostMemory, Launch, Region, TakesLaunches
from tilewright.isa.error_codes import ErrorCode
from tilewright.isa.instructions import Engine
from tilewright.remote import remote_pb2 as pb
from tilewright.remote.protocol import DEFAULT_PORT, METHOD, OPTIONS, PIECE_BYTES, PROTOCOL, SERVICE, TOKEN_KEY

TOKEN_VARIABLE, CA_VARIABLE = "TILEWRIGHT_TOKEN", "TILEWRIGHT_CA"
_OPTIONS = ("token-file", "ca", "name")


class RemoteError(TilewrightError):
    """Raised where no server answers, the connection breaks, or the server refuses the request."""


class _NoPlace(RemoteError):
    """All places of the server are taken, or the connection had to make room before the server's first word."""


#: Seconds between two tries to get a place.
_AGAIN = 0.2


@dataclass(frozen=True)
class Address:
    """The address of a server: `HOST:PORT?token-file=FILE&ca=FILE&name=HOST`.

    Attributes:
        target: HOST:PORT.
        token: said to the server, from `token-file` or $TILEWRIGHT_TOKEN.
        ca: PEM of the authority that signed the server's certificate, from `ca` or $TILEWRIGHT_CA; None = no TLS.
        name: host name in the certificate, if it is not the one connected to.
    """

    target: str
    token: str | None = None
    ca: bytes | None = None
    name: str | None = None

    @staticmethod
    def parse(text: str) -> Address:
        """Raises `UsageError` for what is no address, or a file that cannot be read."""
        target, _, query = text.partition("?")
        host, colon, port = target.rpartition(":")
        if not colon or target.endswith("]"):
            host, port = target, str(DEFAULT_PORT)
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise UsageError(f"a server is given as HOST:PORT, not {target!r}")
        options = dict(parse_qsl(query, keep_blank_values=True))
        unknown = sorted(set(options) - set(_OPTIONS))
        if unknown:
            raise UsageError(
                f"unknown option {unknown[0]!r} of a remote device{suggest(unknown[0], _OPTIONS)}; "
                f"options: {', '.join(_OPTIONS)}"
            )
        held = os.environ.get(TOKEN_VARIABLE)
        if "token-file" in options:
            held = read_token(options["token-file"])
        token = checked_token(held, f"${TOKEN_VARIABLE}") if held else None
        ca = options.get("ca", os.environ.get(CA_VARIABLE))
        return Address(f"{host}:{port}", token, _read(ca) if ca else None, options.get("name"))


def _read(path: str | Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None


@dataclass
class _Block:
    """A piece of memory that `allocate` handed out.

    Attributes:
        size: bytes.
        dirty: (offset, bytes) written since the server got them.
        arena: its number on the server, 0 = never written by a run.
        sha256: of the contents, None = not known.
    """

    size: int
    dirty: list[tuple[int, int]] = field(default_factory=list)
    arena: int = 0
    sha256: bytes | None = None


class RemoteDevice(TakesLaunches):
    """A device behind a network connection. Not thread-safe.

    Memory is written here first and sent with the run that needs it: read-only regions by content, once for all
    clients, others as what changed in them.

    Args:
        address: of the server.
        config: what the program needs; None takes the device as it is.
        notify: called with what a run waits for, and None when it is over.
        seconds: to wait for the connection, and for a place where the server has too many clients.

    Attributes:
        closed: by `close`, or because the connection broke.

    Raises:
        RemoteError: no server there, or it refuses the token. ConfigMismatchError: it has another configuration.
    """

    launches = None  # other clients run theirs
    #: Several programs stay in memory side by side.
    keeps_programs = True

    def __init__(
        self,
        address: Address,
        config: NpuConfig | None = None,
        *,
        notify: Callable[[str | None], None] = lambda text: None,
        seconds: float = 10.0,
    ) -> None:
        self.name = f"tcp://{address.target}"
        self.closed = True
        self._notify = notify
        self._memory = HostMemory()
        self._blocks: dict[int, _Block] = {}
        self._arenas = 0
        until = time.monotonic() + seconds
        while True:
            try:
                welcome = self._connect(address, max(until - time.monotonic(), 0.0))
                break
            except _NoPlace:
                if time.monotonic() + _AGAIN >= until:
                    raise
            time.sleep(_AGAIN)
        self.server_version, self.server_device = welcome.version, welcome.device
        if welcome.protocol != PROTOCOL:
            self.close()
            raise RemoteError(
                f"{self.name} runs {welcome.version or 'an unknown version'} with protocol {welcome.protocol or 1}, "
                f"this is {tilewright_version()} with protocol {PROTOCOL}; install the same version on both machines"
            )
        self.config = NpuConfig.from_dict(json.loads(welcome.config))
        if config is not None and config.fingerprint != self.config.fingerprint:
            self.close()
            raise ConfigMismatchError(
                f"{self.name} has configuration {self.config.name!r} ({self.config.fingerprint}), needed is "
                f"{config.name!r} ({config.fingerprint}); compile for {self.config.name!r}"
            )

    def _connect(self, address: Address, seconds: float) -> pb.Welcome:
        """Connects and returns the server's welcome message. Raises `RemoteError`."""
        self._requests: queue.SimpleQueue[pb.Request | None] = queue.SimpleQueue()
        self._channel = _channel(address)
        try:
            grpc.channel_ready_future(self._channel).result(seconds)
        except grpc.FutureTimeoutError:
            self._channel.close()
            hint = "" if address.ca else " A server with TLS needs ?ca=FILE"
            raise RemoteError(f"no answer from {address.target}: is `tilewright serve` running there?{hint}") from None
        call = self._channel.stream_stream(f"/{SERVICE}/{METHOD}", pb.Request.SerializeToString, pb.Response.FromString)
        metadata = ((TOKEN_KEY, f"Bearer {address.token}"),) if address.token else ()
        self._responses = call(iter(self._requests.get, None), metadata=metadata)
        self.closed = False
        self._welcome = False
        answer = self._next()
        self._welcome = True
        return answer.welcome

    def close(self) -> None:
        """Ends the connection; the server gives the memory back."""
        if not self.closed:
            self.closed = True
            self._requests.put(None)
            self._responses.cancel()
            self._channel.close()

    # Memory.

    def allocate(self, nbytes: int) -> int:
        address = self._memory.allocate(nbytes)
        self._blocks[address] = _Block(max(nbytes, 1))
        return address

    def free(self, address: int) -> None:
        block = self._blocks.pop(address, None)
        self._memory.free(address)
        if block is not None and block.arena and not self.closed:
            self._ask(pb.Request(drop=pb.Drop(arena=block.arena)))

    def free_all(self) -> None:
        for address in list(self._blocks):
            self.free(address)

    def write(self, address: int, data: bytes | np.ndarray) -> None:
        start, block = self._block(address)
        nbytes = data.nbytes if isinstance(data, np.ndarray) else len(data)
        self._memory.write(address, data)
        block.dirty.append((address - start, nbytes))
        block.sha256 = None

    def read(self, address: int, nbytes: int) -> np.ndarray:
        start, block = self._block(address)
        if not block.arena:
            return self._memory.read(address, nbytes)
        self._send_dirty(start, block)
        self._requests.put(pb.Request(read=pb.Read(arena=block.arena, offset=address - start, size=nbytes)))
        pieces: list[bytes] = []
        while True:
            data = self._next().data
            pieces.append(data.data)
            if data.last:
                return np.frombuffer(b"".join(pieces), np.uint8).copy()

    def view(self, address: int, nbytes: int) -> np.ndarray | None:
        return None

    def _block(self, address: int) -> tuple[int, _Block]:
        for start, block in self._blocks.items():
            if start <= address < start + block.size:
                return start, block
        raise ValueError(f"address 0x{address:x} was not allocated")

    # Runs.

    def execute(self, launch: Launch, **options: Any) -> Counters:
        """Runs as `Device.run`. Raises `RemoteError` besides."""
        if options:
            raise UsageError(f"{self.name} has no option {sorted(options)[0]!r}")
        parts = [self._part(region) for region in launch.regions]
        whole = {part.sha256: Region(region.base - part.offset, part.size)
                 for region, part in zip(launch.regions, parts, strict=True) if part.sha256}  # fmt: skip
        self._upload([(region, sha256) for sha256, region in whole.items()])
        run = pb.Run(
            regions=parts, program_region=launch.program_region, program_offset=launch.program_offset,
            program_length=launch.program_length, watchdog=launch.watchdog, timeout=launch.timeout,
            fingerprint=self.config.fingerprint,
        )  # fmt: skip
        self._requests.put(pb.Request(run=run))
        try:
            while True:
                answer = self._next()
                kind = answer.WhichOneof("body")
                if kind == "queued":
                    ahead = answer.queued.ahead
                    self._notify(f"{self.name}: waiting for {ahead} run{'s' if ahead > 1 else ''} of others")
                elif kind == "running":
                    self._notify(f"{self.name}: running for {answer.running.seconds:.0f} s")
                elif kind == "fault":
                    fault = answer.fault
                    pc = None if fault.pc < 0 else fault.pc
                    raise DeviceError(fault.message, ErrorCode(fault.code), Engine(fault.engine), pc, fault.address)
                else:
                    return _counters(answer.finished.counters)
        finally:
            self._notify(None)

    def _part(self, region: Region) -> pb.Region:
        """The region as the server knows it."""
        if not region.size:
            return pb.Region()
        start, block = self._block(region.base)
        offset = region.base - start
        if offset + region.size > block.size:
            raise ValueError(f"region at 0x{region.base:x} of {region.size} bytes is not one that was allocated")
        if region.write:
            if not block.arena:
                self._arenas += 1
                block.arena = self._arenas
            self._send_dirty(start, block)
            return pb.Region(arena=block.arena, size=block.size, offset=offset)
        size = offset + region.size
        if block.sha256 is None:
            block.sha256 = hashlib.sha256(self._memory.view(start, size).tobytes()).digest()
        return pb.Region(sha256=block.sha256, size=size, offset=offset)

    def _send_dirty(self, start: int, block: _Block) -> None:
        """Sends the modified bytes of a block that the server's arena does not have yet."""
        for offset, nbytes in block.dirty:
            for at in range(offset, offset + nbytes, PIECE_BYTES):
                data = self._memory.view(start + at, min(PIECE_BYTES, offset + nbytes - at)).tobytes()
                self._ask(pb.Request(write=pb.Write(arena=block.arena, size=block.size, offset=at, data=data)))
        block.dirty.clear()

    def _upload(self, contents: Sequence[tuple[Region, bytes]]) -> None:
        """Sends what the server does not have."""
        answer = self._ask(pb.Request(have=pb.Have(sha256=[sha256 for _, sha256 in contents])))
        missing = set(answer.missing.sha256)
        for region, sha256 in contents:
            if sha256 not in missing:
                continue
            for at in range(0, region.size, PIECE_BYTES):
                self._notify(f"{self.name}: sending, {at / region.size:.0%} of {region.size} bytes")
                data = self._memory.view(region.base + at, min(PIECE_BYTES, region.size - at)).tobytes()
                self._ask(pb.Request(piece=pb.Piece(sha256=sha256, size=region.size, offset=at, data=data)))

    # The stream.

    def _ask(self, request: pb.Request) -> pb.Response:
        self._requests.put(request)
        return self._next()

    def _next(self) -> pb.Response:
        """The next answer. Raises `RemoteError` if it is a refusal or does not come."""
        if self.closed:
            raise RemoteError(f"the connection to {self.name} is closed")
        try:
            answer: pb.Response = next(self._responses)
        except (grpc.RpcError, StopIteration) as error:
            self.close()
            raise self._why(error) from None
        except KeyboardInterrupt:
            self.close()  # an answer is missing: the stream is of no use any more
            raise
        if answer.WhichOneof("body") == "refused":
            raise RemoteError(f"{self.name} refuses: {answer.refused.message}")
        return answer

    def _why(self, error: Exception) -> RemoteError:
        code = error.code() if isinstance(error, grpc.Call) else None
        if code == grpc.StatusCode.UNAUTHENTICATED:
            text = f"{self.name}: the token is missing or wrong; give it by ?token-file=FILE or ${TOKEN_VARIABLE}"
            return RemoteError(text)
        if code == grpc.StatusCode.RESOURCE_EXHAUSTED:
            return _NoPlace(f"{self.name}: the server has too many clients")
        if code == grpc.StatusCode.CANCELLED:
            return RemoteError(f"{self.name} ended the connection, which waited for this client; connect again")
        text = f"the connection to {self.name} broke ({code.name.lower() if code else 'the server ended it'})"
        return RemoteError(text) if self._welcome or code != grpc.StatusCode.UNAVAILABLE else _NoPlace(text)


def _channel(address: Address) -> grpc.Channel:
    if address.ca is None:
        return grpc.insecure_channel(address.target, OPTIONS)
    options = [*OPTIONS, *([("grpc.ssl_target_name_override", address.name)] if address.name else [])]
    return grpc.secure_channel(address.target, grpc.ssl_channel_credentials(address.ca), options)


def _counters(text: str) -> Counters:
    values = json.loads(text)
    engines = {name: EngineCounters(**engine) for name, engine in values.pop("engines").items()}
    return Counters(**values, engines=engines)
