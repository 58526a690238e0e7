"""FASM to frames on a database written here, and the image for Linux."""

import json
from pathlib import Path

import pytest

from tilewright.fpga.errors import FpgaError
from tilewright.fpga.flows.xilinx7 import fasm


@pytest.fixture
def database(tmp_path: Path) -> fasm.Database:
    """Two tiles of logic in one column and a block RAM; indices with leading zeros, as the real one has them."""
    place = {"baseaddr": "0x00400100", "frames": 36, "words": 2}
    tiles = {
        "CLB_X0Y0": {"type": "CLB", "bits": {"CLB_IO_CLK": {**place, "offset": 0}}},
        "CLB_X0Y1": {"type": "CLB", "grid_x": 3, "grid_y": 14, "bits": {"CLB_IO_CLK": {**place, "offset": 51}}},
        "RAM_X1Y0": {
            "type": "RAM",
            "bits": {
                "CLB_IO_CLK": {"baseaddr": "0x00400180", "frames": 28, "offset": 4, "words": 10},
                "BLOCK_RAM": {"baseaddr": "0x00C00000", "frames": 128, "offset": 4, "words": 10},
            },
        },
        **{
            f"PAD_X9Y{n}": {"type": "PAD", "bits": {"CLB_IO_CLK": {**place, "offset": offset, "alias": alias}}}
            for n, offset, alias in (
                (0, 0, {"type": "PADS", "start_offset": 2}),
                (1, 99, {"type": "PADS", "start_offset": 0}),
            )
        },
    }
    (tmp_path / "chip").mkdir()
    (tmp_path / "chip" / "tilegrid.json").write_text(json.dumps(tiles))
    (tmp_path / "segbits_clb.db").write_text(
        "CLB.FF.ZINI 31_03 !30_00\nCLB.FF.LATCH 30_00\nCLB.LUT.INIT[00] 33_14\nCLB.LUT.INIT[01] 33_15\n"
        "CLB.LUT.INIT[11] 32_63\n"
    )
    (tmp_path / "ppips_clb.db").write_text("CLB.MUX.A always\n")
    (tmp_path / "segbits_pads.db").write_text("PADS.Y0.DRIVE 38_64\nPADS.Y1.DRIVE 38_01\n")
    (tmp_path / "ppips_pad.db").write_text("PAD.MUX.A always\n")
    (tmp_path / "segbits_ram.db").write_text("RAM.EN 27_100\n")
    (tmp_path / "segbits_ram.block_ram.db").write_text("RAM.INIT_0A[005] 02_319\n")
    return fasm.Database(tmp_path, "chip")


def test_the_tile_of_a_place(database: fasm.Database) -> None:
    assert database.tile_of("X3Y14/RAMB36_X0Y0.RAMB36E1") == "CLB_X0Y1"
    for bel in ("X3Y15/RAMB36_X0Y0.RAMB36E1", "RAMB36_X3Y14"):
        with pytest.raises(FpgaError, match=f"FASM: no tile of {bel}"):
            database.tile_of(bel)


def test_frames(database: fasm.Database) -> None:
    text = """
    # a comment
    CLB_X0Y0.FF.ZINI
    CLB_X0Y1.FF.LATCH { .attribute = "x" }
    CLB_X0Y1.LUT.INIT[11:0] = 12'b1000_00000010
    CLB_X0Y0.LUT.INIT[0] = 1
    CLB_X0Y0.LUT.INIT[1] = 0
    CLB_X0Y0.MUX.A
    PAD_X9Y0.Y0.DRIVE
    PAD_X9Y1.Y1.DRIVE
    PAD_X9Y1.MUX.A
    RAM_X1Y0.EN
    RAM_X1Y0.INIT_0A[7:0] = 8'h20
    """
    found = fasm.frames(text, database)
    bits = {(f, w, b) for f, words in found.items() for w, word in enumerate(words) for b in range(32) if word >> b & 1}
    assert bits == {
        (0x400100 + 31, 0, 3),
        (0x400100 + 30, 51, 0),
        (0x400100 + 33, 51, 15),
        (0x400100 + 32, 52, 31),
        (0x400100 + 33, 0, 14),
        (0x400100 + 38, 0, 0),  # the upper half of two pads, without its lower one
        (0x400100 + 38, 99, 1),
        (0x400180 + 27, 4 + 3, 4),
        (0xC00000 + 2, 4 + 9, 31),
    }
    lines = fasm.frames_text(found).splitlines()
    assert all(len(line.split(" ")[1].split(",")) == fasm.FRAME_WORDS for line in lines)
    assert lines[0].startswith("0x0040011E 0x00000000,") and len(lines) == len(found)


@pytest.mark.parametrize(
    "text, message",
    [
        ("NONE_X0Y0.A", "no tile NONE_X0Y0"),
        ("CLB_X0Y0.FF.NOPE", r"CLB_X0Y0 has no feature FF.NOPE"),
        ("CLB_X0Y0.LUT.INIT[63:0] = 64'h8000000000000000", r"no feature LUT.INIT\[63\]"),
        ("CLB_X0Y0.FF.ZINI\nCLB_X0Y0.FF.LATCH", "FF.ZINI and CLB_X0Y0.FF.LATCH want bit 0 of word 0"),
        ("PAD_X9Y0.A", "PAD_X9Y0 has no feature A"),
        ("what is this", "line 1 cannot be read"),
        ("CLB_X0Y0.LUT.INIT[1:0] = 2'z0", "line 1 cannot be read"),
    ],
)
def test_errors(database: fasm.Database, text: str, message: str) -> None:
    with pytest.raises(FpgaError, match=message):
        fasm.frames(text, database)


def test_no_database(tmp_path: Path) -> None:
    with pytest.raises(FpgaError, match="no database of chip"):
        fasm.Database(tmp_path, "chip")


def test_manager_image() -> None:
    body = bytes.fromhex("ffffffff 000000bb aa995566 20000000 30022001")
    header = b"\0\x09\x0f\xf0\x0f\xf0\x0f\xf0\x0f\xf0\0\0\x01a\0\x04top\0b\0\x03xc7\0"
    image = fasm.manager_image(header + b"e" + len(body).to_bytes(4, "big") + body)
    assert image == bytes.fromhex("ffffffff bb000000 665599aa 00000020 01200230")
    for broken in (header, header + b"e" + len(body).to_bytes(4, "big") + body[:-4], body):
        with pytest.raises(FpgaError, match="no bitstream"):
            fasm.manager_image(broken)
