"""The serial bridge: how a host reaches the registers and the memory of a small board over a UART.

The link carries one request at a time; every request gets one response. A frame is FLAG, content, FLAG. Inside the
content the bytes FLAG and ESCAPE are sent as ESCAPE followed by the byte xor ESCAPE_XOR, so that FLAG begins and ends
frames and nothing else: after garbage or a cut frame the next FLAG resynchronises. Content is little-endian words of 32
bits:

    request:   REQUEST word, address, payload words of a write, CRC
    response:  RESPONSE word, payload words of a read, CRC

CRC is the CRC-32 of zlib over the content before it. A request with a wrong CRC or a length that does not fit its
command is dropped without an answer; the host sends it again after a timeout, with the same sequence number. A write
whose sequence number is that of the request before is not executed again, its response is repeated. HELLO opens a
session; after a reset of the board every other request is answered NO_SESSION until the next HELLO.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from tilewright.isa.registers import Bit, Register

IDENTITY = 0x54574231  # "TWB1"
VERSION = 1

FLAG = 0x7E
ESCAPE = 0x7D
ESCAPE_XOR = 0x20
#: Payload words of one frame at most (1 KiB).
MAX_WORDS = 256
#: Polynomial of CRC-32, reflected; and the register's value after a good frame with its CRC.
CRC_POLYNOMIAL = 0xEDB88320
CRC_INITIAL = 0xFFFFFFFF
CRC_RESIDUE = 0xDEBB20E3
#: Cycles the bridge waits for an answer of the registers or the memory before TIMEOUT.
ACCESS_CYCLES = 1 << 16
#: Cycles a pulse on `npu_reset` lasts.
RESET_CYCLES = 16
#: Cycles of a bit at least.
MIN_CYCLES_PER_BIT = 8


class Space(IntEnum):
    """The space that an address counts in; bits 2:1 of a command."""

    LINK = 0  # the link itself: HELLO
    BOARD = 1  # `BOARD_REGISTERS`
    NPU = 2  # `tilewright.isa.registers`
    MEMORY = 3  # external memory of the NPU


class Command(IntEnum):
    """Space and direction (bit 0: write). HELLO opens a session; its response holds the address field."""

    HELLO = Space.LINK << 1
    READ_BOARD = Space.BOARD << 1
    WRITE_BOARD = Space.BOARD << 1 | 1
    READ_NPU = Space.NPU << 1
    WRITE_NPU = Space.NPU << 1 | 1
    READ_MEMORY = Space.MEMORY << 1
    WRITE_MEMORY = Space.MEMORY << 1 | 1

    @property
    def writes(self) -> bool:
        return bool(self & 1)


class Status(IntEnum):
    """First byte of a response."""

    OK = 0
    COMMAND = 1  # no such command
    ADDRESS = 2  # not a multiple of 4, or outside the space
    BUS = 3  # AXI4-Lite answered with an error
    TIMEOUT = 4  # no answer from registers or memory
    NO_SESSION = 5  # no HELLO since the board was reset


#: First word of a request. `words` counts from 1 to MAX_WORDS and is stored less one. Strobes: bytes of the first and
#: of the last word a WRITE_MEMORY changes (both count if there is one word); other commands ignore them.
REQUEST: tuple[Bit, ...] = (
    Bit("command", 0, 8, "`Command`"),
    Bit("sequence", 8, 8, "number of the request"),
    Bit("first_strobe", 16, 4, "bytes of the first word to write"),
    Bit("last_strobe", 20, 4, "bytes of the last word to write"),
    Bit("words", 24, 8, "words to read or write, less one"),
)
#: First word of a response.
RESPONSE: tuple[Bit, ...] = (
    Bit("status", 0, 8, "`Status`"),
    Bit("sequence", 8, 8, "of the request"),
    Bit("words", 16, 16, "payload words that follow"),
)

BOARD_REGISTERS: tuple[Register, ...] = (
    Register("BRIDGE_IDENTITY", 0x00, "R", f"always 0x{IDENTITY:08x}"),
    Register("BRIDGE_VERSION", 0x04, "R", "version of this protocol"),
    Register("BOARD_ID", 0x08, "R", "which board: four letters, the first in the low byte"),
    Register("MEMORY_BYTES", 0x0C, "R", "size of the external memory, which begins at address 0"),
    Register("CLOCK_HZ", 0x10, "R", "clock of bridge and NPU in Hz"),
    Register("BAD_FRAMES", 0x14, "R", "frames dropped since power-on, modulo 2**16"),
    Register("RESET", 0x18, "W", "commands", (Bit("NPU", 0, 1, "resets the NPU and its bus for RESET_CYCLES"),)),
)
BOARD_REGISTER: dict[str, Register] = {r.name: r for r in BOARD_REGISTERS}
#: Bytes of address space the board registers take.
BOARD_SPACE = 1 << (4 * len(BOARD_REGISTERS) - 1).bit_length()


class FrameError(ValueError):
    """A received frame that is damaged."""


def pack(table: tuple[Bit, ...], values: Mapping[str, int]) -> int:
    """Packs named fields into a word."""
    return sum(values[b.name] << b.low for b in table)


def unpack(table: tuple[Bit, ...], word: int) -> dict[str, int]:
    """Unpacks the fields of a word."""
    return {b.name: word >> b.low & ((1 << b.bits) - 1) for b in table}


def frame(content: bytes) -> bytes:
    """Frames content for the line: appends the CRC, escapes, adds the flags."""
    out = bytearray([FLAG])
    for byte in content + struct.pack("<I", zlib.crc32(content)):
        out += bytes((ESCAPE, byte ^ ESCAPE_XOR)) if byte in (FLAG, ESCAPE) else bytes((byte,))
    out.append(FLAG)
    return bytes(out)


def unframe(body: bytes) -> bytes:
    """Extracts the content of a frame from the bytes between its flags.

    Raises:
        FrameError: a cut escape, a length that is no whole number of words, or a wrong CRC.
    """
    out = bytearray()
    escaped = False
    for byte in body:
        if escaped:
            out.append(byte ^ ESCAPE_XOR)
        elif byte != ESCAPE:
            out.append(byte)
        escaped = not escaped and byte == ESCAPE
    if escaped or len(out) < 8 or len(out) % 4:
        raise FrameError(f"{len(out)} bytes are no frame")
    content, crc = bytes(out[:-4]), struct.unpack("<I", out[-4:])[0]
    if zlib.crc32(content) != crc:
        raise FrameError(f"CRC is 0x{zlib.crc32(content):08x}, sent as 0x{crc:08x}")
    return content


@dataclass(frozen=True)
class Request:
    """One request. `payload` is empty for reads; `words` counts the words read or written."""

    command: Command
    sequence: int
    address: int
    words: int = 1
    payload: bytes = b""
    first_strobe: int = 15
    last_strobe: int = 15

    def to_bytes(self) -> bytes:
        """Encodes the request as a frame. Raises `ValueError` for a payload of the wrong length."""
        if not 1 <= self.words <= MAX_WORDS or len(self.payload) != 4 * self.words * self.command.writes:
            raise ValueError(f"{self.command.name} of {self.words} words cannot have {len(self.payload)} bytes")
        values = {b.name: int(getattr(self, b.name)) for b in REQUEST} | {"words": self.words - 1}
        return frame(struct.pack("<II", pack(REQUEST, values), self.address) + self.payload)


@dataclass(frozen=True)
class Response:
    """One response. `payload` holds the words read, none unless `status` is OK."""

    status: int
    sequence: int
    payload: bytes = b""

    @staticmethod
    def from_bytes(body: bytes) -> Response:
        """Parses the bytes between two flags. Raises `FrameError`."""
        content = unframe(body)
        values = unpack(RESPONSE, struct.unpack_from("<I", content)[0])
        if len(content) != 4 + 4 * values["words"]:
            raise FrameError(f"{len(content)} bytes, expected {4 + 4 * values['words']}")
        return Response(values["status"], values["sequence"], content[4:])
