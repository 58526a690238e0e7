"""Error codes: the reasons for which the machine stops."""

from __future__ import annotations

from enum import IntEnum

from tilewright.isa.config import SEMAPHORE_LIMIT


class ErrorCode(IntEnum):
    """Reasons for a stop, as register ERROR_CODE and the simulators report them.

    Attributes:
        meaning: condition for a stop with this code.
        reason: text of a message; `{}` stands for the value of register ERROR_ADDRESS.
    """

    meaning: str
    reason: str

    def __new__(cls, code: int, meaning: str = "", reason: str = "") -> ErrorCode:
        member = int.__new__(cls, code)
        member._value_, member.meaning, member.reason = code, meaning, reason
        return member

    NONE = 0, "no error", "no reason recorded"
    ILLEGAL_OPCODE = (
        1,
        "FETCH decoded an opcode that is not in the table, or of a unit the machine lacks",
        "no such instruction",
    )
    ILLEGAL_OPERAND = (
        2,
        "a field outside its limits, semaphores where none are taken or twice the same, or a LOAD box without rows",
        "an operand is out of its limits",
    )
    SCRATCHPAD_RANGE = (
        3,
        "a row address, modulo 2**address_bits of the configuration, beyond the memory",
        "row {} lies beyond its scratchpad",
    )
    WINDOW = (
        4,
        "an access beyond the size of its region, or without its permission",
        "address 0x{:x} begins an access its region does not permit",
    )
    BUS_READ = 5, "the bus answered a read with an error", "address 0x{:x} was answered with an error"
    BUS_WRITE = 6, "the bus answered a write with an error", "address 0x{:x} was answered with an error"
    SEMAPHORE_OVERFLOW = (
        7,
        f"a signal to a semaphore that stands at {SEMAPHORE_LIMIT}",
        "semaphore {} would exceed its limit",
    )
    WATCHDOG = (
        8,
        "no engine can make progress (or made none for WATCHDOG cycles)",
        "nothing makes progress; it waits for semaphore {} (0 = none)",
    )
    TIMEOUT = 9, "the run takes longer than TIMEOUT", "the run takes longer than it may"
    NO_END = 10, "FETCH went past the last instruction without an END", "the program has no END"
    CODE = (
        11,
        "the stream of LOAD_CODED ends too early or has beats left over, or there is no table yet",
        "its stream of coded weights is damaged",
    )
