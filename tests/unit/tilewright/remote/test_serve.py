"""A device over the network: the same bytes and cycles, turns, and refusals that never reach the device."""

from __future__ import annotations

import hashlib
import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

import tilewright as tw
from common.allocator import MemoryFull
from common.errors import TilewrightError
from isa.assembler import assemble
from isa.config import NpuConfig
from isa.device import Counters, DeviceError, Region
from isa.encoding import to_bytes
from isa.instructions import ErrorCode
from simulator.cycle import CycleDevice
from tests.common.paths import ROOT
from tests.common.waiting import HANG, wait_until
from tilewright.errors import ConfigMismatchError, UsageError
from tilewright.remote import generate
from tilewright.remote import remote_pb2 as pb
from tilewright.remote.client import Address, RemoteDevice, RemoteError
from tilewright.remote.protocol import METHOD, OPTIONS, SERVICE
from tilewright.remote.server import Server
from tilewright.remote.shared import SharedDevice
from tilewright.runtime.devices import Runner, preset_of

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
def serving(room: int | None = None, **options: Any) -> Iterator[tuple[Server, SharedDevice]]:
    shared = SharedDevice(lambda: Watched(TINY, room), 64 << 20)
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
        self._channel = grpc.insecure_channel(f"127.0.0.1:{server.port}", OPTIONS)
        call = self._channel.stream_stream(f"/{SERVICE}/{METHOD}", pb.Request.SerializeToString, pb.Response.FromString)
        self._responses = call(iter(self._requests.get, None))
        assert next(self._responses).HasField("welcome")

    def ask(self, request: pb.Request) -> pb.Response:
        """The first answer."""
        self._requests.put(request)
        return next(self._responses)

    def leave(self) -> None:
        """Without a word."""
        self._channel.close()


def runner(device: RemoteDevice) -> Runner:
    return Runner(device.name, device.config, lambda config: device)


@pytest.fixture(scope="module")
def program() -> tw.Program:
    return tw.compile_program(MODEL, "tiny")


@pytest.fixture(scope="module")
def inputs(program: tw.Program) -> dict[str, np.ndarray]:
    return tw.random_inputs(program, 5)


@pytest.fixture(scope="module")
def expected(program: tw.Program, inputs: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], Counters]:
    with tw.Device("cycle") as device:
        outputs = device.run(program, inputs)
        assert device.counters is not None
        return outputs, device.counters


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name])


def test_values_and_counters(program, inputs, expected) -> None:
    with serving() as (server, _), runner(connect(server)) as remote:
        for _ in range(2):
            same(remote.run(program, inputs), expected[0])
            assert remote.counters == expected[1]


def test_contents_are_sent_once(program, inputs, expected, monkeypatch) -> None:
    sent: list[bytes] = []
    with serving() as (server, shared):
        put = shared.contents.put
        monkeypatch.setattr(shared.contents, "put", lambda sha256, data: (sent.append(sha256), put(sha256, data)))
        for _ in range(3):
            with runner(connect(server)) as remote:
                same(remote.run(program, inputs), expected[0])
        images = {hashlib.sha256(data).digest() for data in (program.instructions, program.constants)}
        assert sorted(sent) == sorted(images)


def test_clients_that_do_not_fit_together(inputs) -> None:
    """Every step of each client pushes the other one's memory out of a device that is too small for both."""
    kept = tw.compile_program(MODEL, "tiny", keep="all")
    with tw.Device("functional") as local:
        expected = local.run(kept, inputs)
        tensors = local.tensors()
    room = 2 * (len(kept.instructions) + len(kept.constants) + kept.arena_bytes) - 4096
    results: dict[int, Any] = {}
    with serving(room) as (server, _):

        def client(number: int) -> None:
            with runner(connect(server)) as remote:
                mine = {name: value + np.float32(0.01 * number) for name, value in inputs.items()}
                remote.run(kept, mine)
                results[number] = remote.run(kept, inputs), remote.tensors()

        threads = [threading.Thread(target=client, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(results) == 3
        for outputs, held in results.values():
            same(outputs, expected)
            same(held, tensors)


def test_waiting_clients_are_told(program, inputs, expected) -> None:
    said: list[str | None] = []
    with serving() as (server, shared), runner(connect(server)) as first:
        first.load(program)
        shared.device.go.clear()
        one = threading.Thread(target=lambda: first.run(program, inputs))
        one.start()
        wait_until(lambda: shared.device.runs)

        def second() -> None:
            with runner(connect(server, notify=said.append)) as remote:
                same(remote.run(program, inputs), expected[0])

        two = threading.Thread(target=second)
        two.start()
        wait_until(lambda: any("waiting for 1 run of others" in (text or "") for text in said))
        assert shared.device.runs == 1
        shared.device.go.set()
        one.join()
        two.join()
        assert any("waiting" in (text or "") for text in said) and said[-1] is None


def test_a_killed_client_leaves_the_device_usable(program, inputs, expected, tmp_path) -> None:
    path = tmp_path / "digits.twp"
    program.save(path)
    with serving() as (server, shared):
        shared.device.go.clear()
        command = [sys.executable, "-m", "tilewright", "run", str(path), "--device", f"tcp://127.0.0.1:{server.port}"]
        client = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda: shared.device.runs)
        client.send_signal(signal.SIGKILL)
        client.wait()
        shared.device.go.set()
        with runner(connect(server)) as remote:
            same(remote.run(program, inputs), expected[0])
        contents = sorted(len(data) for data in (program.instructions, program.constants))
        wait_until(lambda: sorted(shared.device.held.values()) == contents, "both clients' arenas to be given back")


FOREVER = "\n".join(f"VECTOR_LOOP level={level} count=65535" for level in range(4)) + "\nVECTOR\nEND"


def test_a_run_without_end_gives_way_to_other_clients(program, inputs, expected) -> None:
    image = to_bytes(assemble(FOREVER))
    with serving(longest_seconds=0.5) as (server, shared), runner(connect(server)) as honest:
        hostile = connect(server)
        regions = place(hostile, image)
        with ThreadPoolExecutor(1) as pool:
            endless = pool.submit(hostile.run, regions, 0, 0, len(image) // 16)
            wait_until(lambda: shared.device.runs)
            same(honest.run(program, inputs), expected[0])
            with pytest.raises(DeviceError, match=r"TIMEOUT: the run takes longer than the 0\.5 s") as caught:
                endless.result(HANG)
        assert caught.value.code == ErrorCode.TIMEOUT
        hostile.run(place(hostile, END), 0, 0, 1)


def test_a_client_that_leaves_takes_its_run_with_it(program, inputs, expected) -> None:
    image = to_bytes(assemble(FOREVER))
    with serving(longest_seconds=10 * HANG) as (server, _):
        stream, sha256 = Stream(server), hashlib.sha256(image).digest()
        stream.ask(pb.Request(piece=pb.Piece(sha256=sha256, size=len(image), data=image)))
        region = pb.Region(sha256=sha256, size=len(image))
        run = pb.Run(regions=[region], program_length=len(image) // 16, fingerprint=TINY.fingerprint)
        assert stream.ask(pb.Request(run=run)).HasField("running")
        stream.leave()
        with runner(connect(server)) as honest:
            same(honest.run(program, inputs), expected[0])


def test_a_stopped_machine_is_decoded(program, inputs) -> None:
    with serving() as (server, _), runner(connect(server)) as remote:
        with pytest.raises(DeviceError) as caught:
            remote.run(program, inputs, timeout=50)
        assert caught.value.code == ErrorCode.TIMEOUT
        with tw.Device("cycle") as local, pytest.raises(DeviceError) as wanted:
            local.run(program, inputs, timeout=50)
        assert str(caught.value).split(" (")[0] == str(wanted.value).split(" (")[0]
        remote.run(program, inputs)


def test_a_broken_device_is_opened_again(program, inputs, expected) -> None:
    with serving() as (server, shared):
        with runner(connect(server)) as remote:
            same(remote.run(program, inputs), expected[0])
            broken = shared.device
            broken.breaks = True
            with pytest.raises(RemoteError, match="opened again: the link is dead"):
                remote.run(program, inputs)
            assert shared.device is not broken
            with pytest.raises(RemoteError, match="connect again"):
                remote.run(program, inputs)
        with runner(connect(server)) as remote:
            same(remote.run(program, inputs), expected[0])


END = to_bytes(assemble("END"))


def place(device: RemoteDevice, image: bytes) -> list[Region]:
    address = device.allocate(len(image))
    device.write(address, image)
    return [Region(address, len(image), read=True)]


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


def test_tokens(program, inputs, expected) -> None:
    with serving(token="secret") as (server, _):
        target = f"127.0.0.1:{server.port}"
        for token in (None, "wrong"):
            with pytest.raises(RemoteError, match="token is missing or wrong"):
                RemoteDevice(Address(target, token))
        with runner(RemoteDevice(Address(target, "secret"))) as remote:
            same(remote.run(program, inputs), expected[0])


@pytest.mark.slow
def test_tls(program, inputs, expected) -> None:
    import trustme

    authority, other = trustme.CA(), trustme.CA()
    mine = authority.issue_cert("localhost")
    chain = b"".join(pem.bytes() for pem in mine.cert_chain_pems)
    with serving(tls=(chain, mine.private_key_pem.bytes())) as (server, _):
        target, ca = f"127.0.0.1:{server.port}", authority.cert_pem.bytes()
        with runner(RemoteDevice(Address(target, ca=ca, name="localhost"))) as remote:
            same(remote.run(program, inputs), expected[0])
        for bad in (
            Address(target),
            Address(target, ca=other.cert_pem.bytes(), name="localhost"),
            Address(target, ca=ca),
        ):
            with pytest.raises(RemoteError, match="no answer"):
                RemoteDevice(bad, seconds=1.0)


def test_addresses(tmp_path, monkeypatch) -> None:
    (tmp_path / "token").write_text("abc\n")
    monkeypatch.setenv("TILEWRIGHT_TOKEN", "other")
    assert Address.parse("board") == Address("board:7741", "other")
    assert Address.parse(f"board:80?token-file={tmp_path / 'token'}&name=x") == Address("board:80", "abc", None, "x")
    for text, message in (
        ("", "HOST:PORT"),
        ("a:b", "HOST:PORT"),
        ("a:0", "HOST:PORT"),
        ("a?x=1", "unknown option 'x'"),
        ("a?ca=/nowhere", "cannot read /nowhere"),
        (f"a?token-file={Path(sys.executable)}", "must hold a token: printable ASCII"),
    ):
        with pytest.raises(UsageError, match=re.escape(message)):
            Address.parse(text)
    with pytest.raises(RemoteError, match="is `tilewright serve` running there"):
        RemoteDevice(Address("127.0.0.1:9"), seconds=0.3)


@pytest.mark.slow
def test_the_command(program, tmp_path) -> None:
    path = tmp_path / "digits.twp"
    program.save(path)
    here = [sys.executable, "-m", "tilewright"]
    taken = socket.create_server(("127.0.0.1", 0))
    for arguments, message in (
        (["--listen", "0.0.0.0:0"], "give --token-file"),
        (["--tls-cert", "x"], "go together"),
        (["--device", "nothing"], "unknown device"),
        (["--listen", "nonsense"], "must be HOST:PORT"),
        (["--listen", f"127.0.0.1:{taken.getsockname()[1]}"], "cannot listen"),
        (["--token-file", os.devnull], "must hold a token"),
    ):
        done = subprocess.run([*here, "serve", *arguments], capture_output=True, text=True, timeout=HANG)
        assert done.returncode == 2 and message in done.stderr and len(done.stderr.strip().splitlines()) == 1
    served = subprocess.Popen([*here, "serve", "--config", "tiny", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)  # fmt: skip
    assert served.stdout is not None
    where = re.search(r"tcp://\S+", served.stdout.readline())
    assert where is not None
    done = subprocess.run([*here, "run", str(path), "--device", where[0], "--check=all", "--reference", str(MODEL)],
                          capture_output=True, text=True, timeout=HANG)  # fmt: skip
    assert done.returncode == 0 and "equal" in done.stdout, done.stderr
    assert preset_of(where[0]) == "tiny"
    done = subprocess.run([*here, "run", str(MODEL), "--device", where[0], "--json", "-"],
                          capture_output=True, text=True, timeout=HANG)  # fmt: skip
    assert json.loads(done.stdout)["config"] == "tiny"  # that of the device
    served.send_signal(signal.SIGTERM)
    assert served.wait(HANG) == 0


#: `tilewright serve` of a device whose runs do not end.
ENDLESS_DEVICE = """
import time
from simulator.cycle import CycleDevice
from tilewright.runtime import devices

class Endless(CycleDevice):
    def run(self, *arguments, **options):
        while True:
            time.sleep(1)

devices.open_device = lambda name, config=None: Endless(devices.NpuConfig.load("tiny"))
from tilewright.cli import cli
cli(["serve", "--device", "cycle", "--listen", "127.0.0.1:0"])
"""


def test_a_second_interrupt_leaves_a_run_that_does_not_end() -> None:
    served = subprocess.Popen(
        [sys.executable, "-c", ENDLESS_DEVICE], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert served.stdout is not None and served.stderr is not None
    where = re.search(r"tcp://(\S+)", served.stdout.readline())
    assert where is not None
    said: list[str | None] = []
    device = RemoteDevice(Address(where[1]), notify=said.append)
    regions = place(device, END)

    def client() -> None:
        with pytest.raises(RemoteError, match="broke"):
            device.run(regions, 0, 0, 1)

    thread = threading.Thread(target=client)
    thread.start()
    wait_until(lambda: any("running for" in (text or "") for text in said))
    served.send_signal(signal.SIGINT)
    assert any("waiting for the run under way" in line for line in served.stderr)
    served.send_signal(signal.SIGINT)
    assert served.wait(HANG) == -signal.SIGINT
    thread.join()


def test_generated_code_is_up_to_date() -> None:
    for name, text in generate.generate().items():
        assert (Path(generate.__file__).parent / name).read_text() == text


# What one client can do to others.


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
            connect(server)
        assert only.ask(pb.Request(have=pb.Have())).HasField("missing")


def test_idle_clients_are_sent_away_in_the_end() -> None:
    with serving(idle_seconds=0.01) as (server, _):
        remote = connect(server)
        with pytest.raises(RemoteError, match=r"ended the connection, which was idle|broke"):
            while True:
                remote._ask(pb.Request(have=pb.Have()))
                wait_until(lambda: not server.sessions.present)


def test_no_run_goes_on_for_ever(program, inputs, expected) -> None:
    """Whatever the client asks for: a program of hours ends, and the next client has its turn."""
    image = assemble(
        "VECTOR_LOOP count=65535\nVECTOR_LOOP level=1 count=65535\nVECTOR_LOOP level=2 count=200\nVECTOR\nEND\n"
    )
    with serving(longest_run=1 << 20) as (server, _):
        device = connect(server)
        with pytest.raises(DeviceError, match="TIMEOUT"):
            device.run(place(device, to_bytes(image)), 0, 0, len(image))
        with runner(connect(server)) as remote:
            same(remote.run(program, inputs), expected[0])


def test_versions_must_agree(monkeypatch) -> None:
    with serving() as (server, _):
        monkeypatch.setattr("tilewright.remote.server.PROTOCOL", 7)
        with pytest.raises(RemoteError, match=r"with protocol 7, this is tilewright .* install the same version"):
            connect(server)
