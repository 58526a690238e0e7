"""Registers and memory of a board over a stream socket: the protocol between a simulated AXI board and the driver.

A request is REQUEST, then the payload of a write; a response is RESPONSE, then the payload of a read. Little-endian.
Registers are addressed by byte offset in whole 32-bit words, memory by byte address.
"""

from __future__ import annotations

import struct
from enum import IntEnum

#: Operation, bytes (milliseconds for WAIT), address.
REQUEST = struct.Struct("<IIQ")
#: Status, bytes that follow.
RESPONSE = struct.Struct("<II")
#: Response to INFO: first address and bytes of the memory.
INFO = struct.Struct("<QQ")
#: Bytes of one request at most.
MAX_BYTES = 1 << 24


class Operation(IntEnum):
    """The operation of a request."""

    INFO = 0
    READ_REGISTERS = 1
    WRITE_REGISTERS = 2
    READ_MEMORY = 3
    WRITE_MEMORY = 4
    WAIT = 5  # for the interrupt line, at most so many milliseconds; answers one byte, the line


class Status(IntEnum):
    """The outcome of a request."""

    OK = 0
    ADDRESS = 1  # outside the registers or the memory
