"""The commands of boards without a host, up to the bitstream: what they write, and what they refuse with one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.common import standalone
from tests.common.paths import ROOT
from tilewright.cli import cli
from tilewright.fpga.standalone import record
from tilewright.fpga.standalone.image import HEADER_BYTES
from tilewright.isa.config import preset
from tilewright.standalone import build
from tilewright.standalone.ask import input_bytes, program_in

DIGITS = ROOT / "examples" / "digits" / "digits_int8.onnx"


def error(capfd: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The message of a command that fails."""
    with pytest.raises(SystemExit) as info:
        cli.main(["fpga", *map(str, arguments)], prog_name="tilewright")
    assert info.value.code == 2
    text = capfd.readouterr().err.strip().splitlines()[-1]
    assert text.startswith("tilewright: error: ")
    return text


@pytest.mark.slow
def test_an_image_beside_a_bitstream(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    standalone.require("ziglang")
    board, config = build.board_with_core(standalone.BOARD), preset("tiny")
    point = board.other
    made = build.write_image(tmp_path, board, config, point, DIGITS, name="ic01", exchange=record.Exchange("unsigned"))
    found = record.board_of(tmp_path)
    assert (found.config, found.point, found.image, found.board) == (config, point, made.image, board)
    program = program_in(tmp_path)
    value = np.arange(64, dtype=np.float32).reshape(program.inputs[0].shape)
    assert input_bytes(tmp_path, program, {"input": value}) == value.tobytes()  # int8 alone is moved
    assert b"ic01\0" in made.image[HEADER_BYTES:]
    with pytest.raises(SystemExit) as info:
        cli.main(["fpga", "image", str(tmp_path), str(DIGITS)], prog_name="tilewright")
    assert info.value.code == 0
    assert record.board_of(tmp_path).image != made.image and record.board_of(tmp_path).exchange == record.Exchange()
    assert f"{tmp_path / 'standalone.bin'}: {len(record.board_of(tmp_path).image)} bytes" in capfd.readouterr().out
    text = error(
        capfd, "build", "--board", standalone.BOARD, "--config", "tiny", "--standalone", DIGITS, "--memory", "bram",
        "--memory-kib", 64, "-o", tmp_path / "small",
    )  # fmt: skip
    assert "digits_int8.onnx needs " in text and text.endswith("the board has 65536")
    assert not (tmp_path / "small").exists()


def test_what_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = error(capfd, "build", "--board", "orangecrab_85f", "--standalone", DIGITS, "-o", tmp_path / "bits")
    assert text.endswith("no SoC without a host for board 'orangecrab_85f'; boards with one: ulx3s_85f")
    text = error(capfd, "build", "--board", standalone.BOARD, "--inputs", "unsigned", "-o", tmp_path / "bits")
    assert text.endswith("--model-name, --inputs and --results are for --standalone")
    text = error(capfd, "ask", tmp_path, "--simulated")
    assert "holds no build for a board without a host" in text
    assert "holds no build for a board without a host" in error(capfd, "simulate", tmp_path)
    assert error(capfd, "ask", tmp_path).endswith("give the board's --port, or --simulated")
    assert "holds no build for a board without a host" in error(capfd, "image", tmp_path, DIGITS)
