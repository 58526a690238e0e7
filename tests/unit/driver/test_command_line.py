"""`tilewright probe`, and `run` on a board."""

from __future__ import annotations

import json

import pytest

import tilewright as tw
from tests.common.board_jobs import waiting_job
from tests.common.paths import ROOT
from tilewright.cli import cli
from tilewright.driver.board import BoardDevice
from tilewright.driver.transport.socket import SocketTransport
from tilewright.fpga.sim.axi import AxiBoard
from tilewright.isa.config import preset
from tilewright.runtime.backends import preset_of

pytestmark = pytest.mark.cosim


def call(*arguments: str) -> int:
    """The exit code."""
    with pytest.raises(SystemExit) as info:
        cli.main(list(arguments), prog_name="tilewright")
    return int(info.value.code or 0)


def test_probe(axi: AxiBoard, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("probe", f"board://socket:{axi.path}") == 0
    out = capsys.readouterr().out
    assert "tiny (" in out and "1,048,576 bytes from 0x100000" in out and "idle" in out
    with BoardDevice(SocketTransport(axi.path)) as device:
        device.reset = lambda: None  # type: ignore[method-assign]
        with pytest.raises(tw.TilewrightError):
            waiting_job(device).run(watchdog=200)
    assert call("probe", f"socket:{axi.path}", "--json", "-") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["state"] == "error" and found["error"].startswith("WATCHDOG: LOAD at instruction 0")
    assert found["config"] == "tiny" and found["fingerprint"] == preset("tiny").fingerprint


def test_probe_of_what_is_no_npu(
    axi: AxiBoard, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    read = SocketTransport.read_registers
    zeros = lambda self, offset, count: [0] * len(read(self, offset, count))
    monkeypatch.setattr(SocketTransport, "read_registers", zeros)
    assert call("probe", f"socket:{axi.path}") == 2
    assert "no Tilewright NPU answers: IDENTITY reads 0x00000000" in capsys.readouterr().err
    assert call("probe", "socket:/no/such") == 2
    assert "there is no such socket" in capsys.readouterr().err


def test_run_takes_the_configuration_of_the_board(
    axi: AxiBoard, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TILEWRIGHT_BOARD", f"socket:{axi.path}")
    assert preset_of("board") == "tiny" and preset_of("functional") is None
    model = ROOT / "examples/digits/digits_int8.onnx"
    assert call("run", str(model), "--device", "board", "--check", "--json", "-") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["config"] == "tiny" and found["backend"] == "board" and found["cycles"] > 40_000
    monkeypatch.delenv("TILEWRIGHT_BOARD")
    with pytest.raises(tw.UsageError, match="TILEWRIGHT_BOARD"):
        tw.Device("board")
