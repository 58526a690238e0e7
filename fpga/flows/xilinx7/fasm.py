"""Converts FASM, the features nextpnr turns on, to configuration frames, by the database of Project X-Ray.

The database is text: `tilegrid.json` has the position of the bits of each tile, `segbits_TYPE.db` the bits of a tile
that a feature sets or clears, `ppips_TYPE.db` the features without bits. Frames go to `xc7frames2bit`, which adds
checksums and the frames that are all zero.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tilewright.fpga.errors import FpgaError

WORD_BITS = 32
FRAME_WORDS = 101
_SYNC = bytes.fromhex("aa995566")
_LINE = re.compile(
    r"(?P<tile>[^.\s]+)\.(?P<name>[^\s\[=]+)(\[(?P<high>\d+)(:(?P<low>\d+))?\])?(\s*=\s*(?P<value>\S+))?"
)
_VALUE = re.compile(r"(?:\d+)?'([bhd])([0-9a-fA-F_]+)|(\d+)")
_RADIX = {"b": 2, "h": 16, "d": 10}


class Bit(NamedTuple):
    """A bit of a tile: the block of the tile it is in, frame and bit counted from the block's own, value."""

    block: str
    frame: int
    bit: int
    on: bool


class Database:
    """Features of one FPGA.

    Args:
        root: folder of the family, such as .../database/zynq7.
        device: such as xc7z020.

    Raises:
        FpgaError: the database has no such FPGA.
    """

    def __init__(self, root: Path, device: str) -> None:
        self._root = root
        try:
            self._tiles: dict[str, dict] = json.loads((root / device / "tilegrid.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise FpgaError(f"no database of {device} in {root}: {error}") from None
        self._grid: dict[tuple[int | None, int | None], str] = {}
        self._types: dict[str, dict[tuple[str, int], list[Bit]]] = {}

    def tile_of(self, bel: str) -> str:
        """The tile of a BEL as nextpnr names it: X59Y51/RAMB36_X0Y0.RAMB36E1. Raises `FpgaError`: there is none."""
        match = re.match(r"X(\d+)Y(\d+)/", bel)
        if not self._grid:
            self._grid = {(entry.get("grid_x"), entry.get("grid_y")): name for name, entry in self._tiles.items()}
        tile = self._grid.get((int(match[1]), int(match[2]))) if match else None
        if tile is None:
            raise FpgaError(f"FASM: no tile of {bel}")
        return tile

    def _features(self, kind: str) -> dict[tuple[str, int], list[Bit]]:
        """Reads the bits of every feature of a tile type by name and index; features without bits have none."""
        if kind not in self._types:
            found: dict[tuple[str, int], list[Bit]] = {}
            stem = f"segbits_{kind.lower()}"
            for path, block in ((f"{stem}.db", "CLB_IO_CLK"), (f"{stem}.block_ram.db", "BLOCK_RAM")):
                for name, *bits in self._lines(path):
                    found.setdefault(_indexed(name), []).extend(_bit(block, text) for text in bits)
            for name, *_ in self._lines(f"ppips_{kind.lower()}.db"):
                found.setdefault(_indexed(name), [])
            self._types[kind] = found
        return self._types[kind]

    def _lines(self, name: str) -> Iterable[list[str]]:
        path = self._root / name
        return [line.split() for line in path.read_text(encoding="ascii").splitlines() if line] if path.exists() else []

    def bits(self, tile: str, feature: str, index: int) -> list[tuple[int, int, int, bool]]:
        """(frame address, word, bit, value) of a feature; `index` counts in features of several bits.

        Raises:
            FpgaError: there is no such tile or feature.
        """
        grid = self._tiles.get(tile)
        if grid is None:
            raise FpgaError(f"FASM: no tile {tile}")
        found = self._features(grid["type"]).get((f"{grid['type']}.{feature}", index))
        # A tile of one pin, at the end of a column, has bits of one of two, of which it is a part.
        moved = {
            block: place.get("alias", {"type": grid["type"], "start_offset": 0})
            for block, place in grid["bits"].items()
        }
        for other in {alias["type"] for alias in moved.values()} - {grid["type"]}:
            found = self._features(other).get((f"{other}.{feature}", index)) if found is None else found
        if found is None:
            raise FpgaError(f"FASM: {tile} has no feature {feature}[{index}]")
        result = []
        for b in found:
            place = grid["bits"][b.block]
            row = (place["offset"] - moved[b.block]["start_offset"]) * WORD_BITS + b.bit
            result.append((int(place["baseaddr"], 0) + b.frame, row // WORD_BITS, row % WORD_BITS, b.on))
        return result


def _indexed(name: str) -> tuple[str, int]:
    """Splits INIT[07] into INIT and 7; a feature of one bit has index 0."""
    match = re.fullmatch(r"(.*)\[(\d+)\]", name)
    return (match[1], int(match[2])) if match else (name, 0)


def _bit(block: str, text: str) -> Bit:
    """Parses a bit of the database: 17_23 or !17_23."""
    frame, _, bit = text.lstrip("!").partition("_")
    return Bit(block, int(frame), int(bit), not text.startswith("!"))


def features(text: str) -> list[tuple[str, str, int]]:
    """(tile, feature, index) of everything a FASM text turns on.

    Raises:
        FpgaError: a line is none of FASM.
    """
    result: list[tuple[str, str, int]] = []
    for number, line in enumerate(text.splitlines(), 1):
        line = re.sub(r"#.*|\{.*\}", "", line).strip()
        if not line:
            continue
        match = _LINE.fullmatch(line)
        value = _VALUE.fullmatch(match["value"]) if match and match["value"] else None
        if match is None or (match["value"] and value is None):
            raise FpgaError(f"FASM: line {number} cannot be read: {line}")
        bits = 1 if value is None else int(value[3]) if value[3] else int(value[2], _RADIX[value[1]])
        low = int(match["low"] or match["high"] or 0)
        for position in range(bits.bit_length()):
            if bits >> position & 1:
                result.append((match["tile"], match["name"], low + position))
    return result


def frames(text: str, database: Database) -> dict[int, list[int]]:
    """Words of every frame that has a feature of a FASM text on, by address.

    Raises:
        FpgaError: unknown features, or two that want a bit to differ.
    """
    wanted: dict[tuple[int, int, int], tuple[bool, str]] = {}
    for tile, feature, index in features(text):
        for frame, word, bit, on in database.bits(tile, feature, index):
            before, by = wanted.setdefault((frame, word, bit), (on, f"{tile}.{feature}"))
            if before != on:
                raise FpgaError(f"FASM: {by} and {tile}.{feature} want bit {bit} of word {word} in frame {frame:#x}")
    result: dict[int, list[int]] = {}
    for (frame, word, bit), (on, _) in wanted.items():
        words = result.setdefault(frame, [0] * FRAME_WORDS)
        words[word] |= on << bit
    return result


def frames_text(found: dict[int, list[int]]) -> str:
    """The text of frames that `xc7frames2bit` reads."""
    return "".join(f"0x{a:08X} {','.join(f'0x{word:08X}' for word in found[a])}\n" for a in sorted(found))


def manager_image(bitstream: bytes) -> bytes:
    """Converts a `.bit` file for Linux's FPGA manager of Zynq-7000: without header, bytes of each word swapped.

    Raises:
        FpgaError: no synchronisation word.
    """
    sync = bitstream.find(_SYNC)
    # The header ends with "e" and the length of what follows, which begins with dummy words.
    start = next((i for i in range(sync) if bitstream[i : i + 1] == b"e" and _length(bitstream, i) == i + 5), -1)
    if sync < 0 or start < 0:
        raise FpgaError("this is no bitstream: no header with a synchronisation word after it")
    body = bitstream[start + 5 :]
    return b"".join(body[i : i + 4][::-1] for i in range(0, len(body) - 3, 4))


def _length(data: bytes, at: int) -> int:
    """The offset of the body if the length field at `at` reaches to the end of the file."""
    return len(data) - int.from_bytes(data[at + 1 : at + 5], "big")
