"""`fpga flash` with loaders of the test on the PATH: what they are called with, and what can be wrong before."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tilewright.cli import cli
from tilewright.fpga.boards import BOARDS
from tilewright.fpga.cells import Capacity, Used
from tilewright.fpga.report import REPORT, Report, Timing, read_report
from tilewright.fpga.report import Path as SlowestPath
from tilewright.fpga.standalone import record
from tilewright.fpga.standalone.boards import standalone_board
from tilewright.isa.config import preset

BITS = b"\xff\x00 a bitstream"


def make_build(folder: Path, board: str, baud: int = 3_000_000) -> Path:
    """A folder as a build leaves it."""
    folder.mkdir()
    (folder / "top.bit").write_bytes(BITS)
    report = Report(
        board=board, config="tiny", fingerprint="0" * 16, clock_mhz=60, memory_kib=64, baud=baud, seed=1,
        used=Used(lut=1, ff=1, dsp=1, bram=1), capacity=Capacity(lut=1, ff=1, dsp=1, bram=1),
        timing=Timing(fmax_mhz=70, path=SlowestPath(start="a", end="b", delay_ns=1, logic_ns=1, cells=1)),
        seconds=1, cpu_seconds=1, bitstream="top.bit", bitstream_bytes=len(BITS),
        sha256=hashlib.sha256(BITS).hexdigest(),
    )  # fmt: skip
    (folder / REPORT).write_text(json.dumps(report.to_dict()))
    assert read_report(folder) == report
    return folder


@pytest.fixture
def loaders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with openFPGALoader and dfu-util that write down how they were called, and end with the code in `code`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = "\n".join(
        ["#!/bin/sh", f'echo "${{0##*/}} $*" >> {tmp_path}/called', "echo loading", f"read code < {tmp_path}/code",
         "exit $code\n"]
    )  # fmt: skip
    for name in {board.loader.tool for board in BOARDS.values()}:
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)
    (tmp_path / "code").write_text("0\n")
    monkeypatch.setenv("PATH", str(folder))
    return tmp_path


def call(*arguments: str) -> int:
    """The exit code."""
    with pytest.raises(SystemExit) as info:
        cli.main(["fpga", "flash", *arguments], prog_name="tilewright")
    return int(info.value.code or 0)


@pytest.mark.parametrize(
    "board, volatile, permanent",
    [
        ("ulx3s_85f", "openFPGALoader -b ulx3s", "openFPGALoader -b ulx3s -f"),
        ("tang_nano_20k", "openFPGALoader -b tangnano20k", "openFPGALoader -b tangnano20k -f"),
        ("arty_a7_100t", "openFPGALoader -b arty_a7_100t", "openFPGALoader -b arty_a7_100t -f"),
        ("nexys_a7_100t", "openFPGALoader -b nexys_a7_100", "openFPGALoader -b nexys_a7_100 -f"),
        ("crosslink_nx_evn", "openFPGALoader -b crosslinknx_evn", "openFPGALoader -b crosslinknx_evn -f"),
        ("orangecrab_85f", "dfu-util -d 1209:5af0 -a 0 -D", "dfu-util -d 1209:5af0 -a 0 -D"),
    ],
)
def test_every_board_has_its_command(
    board: str, volatile: str, permanent: str, loaders: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    bits = make_build(loaders / "bits", board)
    assert call(str(bits)) == call(str(bits), "--permanent") == 0
    assert (loaders / "called").read_text().splitlines() == [f"{c} {bits}/top.bit" for c in (volatile, permanent)]
    out = capfd.readouterr().out
    assert out.count("loading\n") == 2 and f"tiny is on the {board}, in its flash memory" in out
    assert ("until the power goes" in out) == (volatile != permanent)
    assert "next: tilewright probe 'serial:/dev/ttyUSB0'" in out


def test_an_image_goes_first(loaders: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A build for a board without a host has an image for the flash memory, whether the bitstream goes there or not."""
    bits = make_build(loaders / "bits", "ulx3s_85f")
    board = standalone_board("ulx3s_85f", b"boot")
    record.write(bits, board, preset("tiny"), board.other, "digits", b"an image", record.Exchange())
    assert call(str(bits)) == 0
    image, bitstream = (loaders / "called").read_text().splitlines()
    assert image == f"openFPGALoader -b ulx3s -f -o 2097152 {bits}/standalone.bin"
    assert bitstream == f"openFPGALoader -b ulx3s {bits}/top.bit"
    out = capfd.readouterr().out
    assert "the image of digits is in its flash memory" in out and f"next: `tilewright fpga ask {bits} --port" in out
    (bits / record.IMAGE).write_bytes(b"another")
    assert call(str(bits)) == 2
    assert "standalone.bin is not the image of" in capfd.readouterr().err
    (bits / record.RECORD).write_text("{}")
    assert call(str(bits)) == 2
    assert "no record of a build" in capfd.readouterr().err


def test_json_is_not_mixed_with_the_loaders_output(loaders: Path, capfd: pytest.CaptureFixture[str]) -> None:
    bits = make_build(loaders / "bits", "ulx3s_85f")
    assert call(str(bits), "--json", "-") == 0
    captured = capfd.readouterr()
    found = json.loads(captured.out)
    assert found["command"] == ["openFPGALoader", "-b", "ulx3s", f"{bits}/top.bit"] and not found["permanent"]
    assert "loading" in captured.err


def test_the_baud_rate_of_the_bitstream_is_told(loaders: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert call(str(make_build(loaders / "bits", "orangecrab_85f", baud=2_000_000))) == 0
    assert "'serial:/dev/ttyUSB0?baud=2000000'" in capfd.readouterr().out


def test_what_can_be_wrong(loaders: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def error(folder: Path) -> str:
        assert call(str(folder)) == 2
        text = capfd.readouterr().err.strip()
        assert text.startswith("tilewright: error: ") and "\n" not in text
        return text

    assert "No such file or directory; a build writes it" in error(loaders / "nothing")
    assert "docs/zynq.md" in error(make_build(loaders / "pynq", "pynq_z2"))
    bits = make_build(loaders / "bits", "ulx3s_85f")
    (bits / "top.bit").write_bytes(BITS[:-1])
    assert "is not the bitstream of" in error(bits)
    (bits / "top.bit").unlink()
    assert "leaves no bitstream" in error(bits)
    (bits / REPORT).write_text("[]")
    assert "no report of a build" in error(bits)
    assert not (loaders / "called").exists()
    bits = make_build(loaders / "more", "ulx3s_85f")
    (loaders / "code").write_text("3\n")
    assert "top.bit` ended with exit code 3; is the board plugged in" in error(bits)
    monkeypatch.setenv("PATH", "")
    assert "openFPGALoader, which loads the ULX3S 85F, is not on the PATH; it is in many" in error(bits)
