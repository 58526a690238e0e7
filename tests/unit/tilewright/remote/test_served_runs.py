"""A device over the network: the same bytes and cycles, and turns."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.common.waiting import HANG, wait_until
from tests.unit.tilewright.remote.serving import END, MODEL, TINY, Stream, connect, place, runner, same, serving
from tilewright.isa.assembler import assemble
from tilewright.isa.device import DeviceError
from tilewright.isa.encoding import to_bytes
from tilewright.isa.error_codes import ErrorCode
from tilewright.remote import remote_pb2 as pb
from tilewright.remote.client import RemoteError


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


@pytest.mark.medium
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


@pytest.mark.medium
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


@pytest.mark.medium
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


@pytest.mark.medium
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
