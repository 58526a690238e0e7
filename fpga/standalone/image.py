"""The image in the flash memory beside the bitstream: a header, and the program with its network."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from tilewright.fpga.errors import FpgaError
from tilewright.fpga.standalone.memory_map import MEMORY

#: First word, with the version ("TWI1").
MAGIC = 0x31495754
#: Words of the header, as the boot program reads them. BYTES of the payload, a multiple of 4, go to MEMORY and have the
#: CRC-32 CHECK; NEEDED bytes from there on are used. HEADER_CHECK is the CRC-32 of the words before it.
HEADER = ("MAGIC", "BYTES", "CHECK", "ENTRY", "NEEDED", "FINGERPRINT_LO", "FINGERPRINT_HI", "HEADER_CHECK")
HEADER_BYTES = 4 * len(HEADER)


@dataclass(frozen=True)
class Place:
    """The place of images on a board.

    Attributes:
        size: bytes of the flash memory.
        offset: offset of the image in it, bytes: beyond every bitstream of the FPGA.
    """

    size: int
    offset: int

    @property
    def room(self) -> int:
        """Bytes available to an image."""
        return self.size - self.offset


def make(payload: bytes, *, entry: int, needed: int, fingerprint: str) -> bytes:
    """The image of a program.

    Args:
        payload: bytes from address MEMORY on.
        entry: address of its first instruction.
        needed: bytes from MEMORY on that it uses.
        fingerprint: fingerprint of the NPU it was compiled for; 16 zeros: it uses none.
    """
    payload += bytes(-len(payload) % 4)
    number = int(fingerprint, 16)
    words = (MAGIC, len(payload), zlib.crc32(payload), entry, needed, number & 0xFFFFFFFF, number >> 32)
    head = struct.pack(f"<{len(words)}I", *words)
    return head + struct.pack("<I", zlib.crc32(head)) + payload


def check_room(image_bytes: int, needed: int, place: Place, memory_bytes: int, name: str) -> None:
    """Raises `FpgaError` for an image that does not fit into the flash memory or the memory of a board."""
    if image_bytes > place.room:
        raise FpgaError(
            f"{name} makes an image of {image_bytes} bytes; the flash memory has {place.size} bytes, "
            f"{place.room} of them behind the bitstream"
        )
    if needed > memory_bytes:
        raise FpgaError(f"{name} needs {needed} bytes of memory with its program; the board has {memory_bytes}")


def c_header(place: Place) -> str:
    """The header's words and the place of the image, as C for the boot program."""
    lines = [f"#define TW_IMAGE_{name} {4 * n}" for n, name in enumerate(HEADER)]
    values = {"MAGIC_VALUE": f"0x{MAGIC:08x}", "HEADER_BYTES": HEADER_BYTES, "OFFSET": f"0x{place.offset:x}"}
    lines += [f"#define TW_IMAGE_{name} {value}" for name, value in values.items()]
    lines.append(f"#define TW_IMAGE_TO 0x{MEMORY:08x}")
    return "/* Written from fpga/standalone/image.py. */\n" + "\n".join(lines) + "\n"
