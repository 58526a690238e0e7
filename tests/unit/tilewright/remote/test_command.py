"""`tilewright serve` as a process."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading

import pytest
from click.testing import CliRunner

from tests.common.waiting import HANG, wait_until
from tests.unit.tilewright.remote.serving import END, MODEL, place
from tilewright.cli import cli
from tilewright.remote.client import Address, RemoteDevice, RemoteError
from tilewright.runtime.backends import preset_of


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
        refused = CliRunner().invoke(cli, ["serve", *arguments])
        assert refused.exit_code == 2 and message in refused.stderr
        assert len(refused.stderr.strip().splitlines()) == 1
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
from tilewright.simulator.cycle import CycleDevice
from tilewright.runtime import devices

class Endless(CycleDevice):
    def run(self, *arguments, **options):
        while True:
            time.sleep(1)

devices.open_device = lambda name, config=None: Endless(devices.NpuConfig.load("tiny"))
from tilewright.cli import cli
cli(["serve", "--device", "cycle", "--listen", "127.0.0.1:0"])
"""


@pytest.mark.medium
def test_a_second_interrupt_leaves_a_run_that_does_not_end(tmp_path) -> None:
    served = subprocess.Popen(
        [sys.executable, "-c", ENDLESS_DEVICE], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )  # fmt: skip
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
    assert not list(tmp_path.iterdir())
    thread.join()
