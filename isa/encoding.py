"""Encoding, decoding and static checking of instructions, all driven by the table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tilewright.common.errors import TilewrightError
from tilewright.common.text import suggest
from tilewright.isa.config import NpuConfig
from tilewright.isa.error_codes import ErrorCode
from tilewright.isa.fields import HEADER, INSTRUCTION_BYTES, Field
from tilewright.isa.instructions import BY_NAME, BY_OPCODE, INSTRUCTIONS, Instruction


class EncodingError(TilewrightError):
    """A field value that does not fit, an unknown instruction or field."""


class DecodeError(EncodingError):
    """A word the machine stops at: `code` is ILLEGAL_OPCODE or ILLEGAL_OPERAND."""

    def __init__(self, message: str, code: ErrorCode) -> None:
        super().__init__(message)
        self.code = code


_OPCODE = HEADER[0]


def extract(word: int, f: Field) -> int:
    """The value of field `f` in a 128-bit `word`."""
    value = (word >> f.low) & ((1 << f.bits) - 1)
    return value - (1 << f.bits) if f.signed and value >> (f.bits - 1) else value


@dataclass(frozen=True)
class Op:
    """A decoded instruction: its table row and the value of every field but the opcode (missing ones are 0)."""

    instruction: Instruction
    values: dict[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.instruction.name

    def __getitem__(self, name: str) -> int:
        return self.values.get(name, 0)

    def __hash__(self) -> int:
        return hash(self.encode())

    @property
    def waits(self) -> tuple[int, ...]:
        return tuple(s for s in (self["wait0"], self["wait1"]) if s)

    @property
    def signals(self) -> tuple[int, ...]:
        return tuple(s for s in (self["signal0"], self["signal1"]) if s)

    def encode(self) -> int:
        """Encodes the instruction as a 128-bit word. Raises `EncodingError` for a value outside its field."""
        word = self.instruction.opcode << _OPCODE.low
        places = _PLACES[self.instruction.name]
        for name, value in self.values.items():
            low, minimum, maximum, mask = places[name]
            if not minimum <= value <= maximum:
                raise EncodingError(f"{self.name}.{name} must be {minimum}..{maximum}, not {value}")
            word |= (int(value) & mask) << low
        return word


#: Per instruction and field: lowest bit, least and greatest value, mask.
_PLACES = {
    i.name: {n: (f.low, f.minimum, f.maximum, (1 << f.bits) - 1) for n, f in i.by_name.items()} for i in INSTRUCTIONS
}


def op(name: str, **values: int) -> Op:
    """Builds one instruction by name.

    Raises:
        EncodingError: unknown instruction or field.
    """
    instruction = BY_NAME.get(name)
    if instruction is None:
        raise EncodingError(f"unknown instruction {name!r}{suggest(name, BY_NAME)}; known: {', '.join(BY_NAME)}")
    if not _SETTABLE[name].issuperset(values):
        key = next(key for key in values if key not in _SETTABLE[name])
        known = ", ".join(f for f in instruction.by_name if f != "opcode")
        raise EncodingError(f"{name} has no field {key!r}{suggest(key, _SETTABLE[name])}; known: {known}")
    return Op(instruction, {k: int(v) for k, v in values.items()})


_SETTABLE = {name: instruction.by_name.keys() - {"opcode"} for name, instruction in BY_NAME.items()}


def decode(word: int) -> Op:
    """Decodes a 128-bit word. Raises `DecodeError` for an unknown opcode only; see `check` for operands."""
    opcode = extract(word, _OPCODE)
    instruction = BY_OPCODE.get(opcode)
    if instruction is None:
        raise DecodeError(f"unknown opcode 0x{opcode:02x}", ErrorCode.ILLEGAL_OPCODE)
    bits = _BITS[instruction.name]
    return Op(instruction, {name: ((word >> low & mask) ^ sign) - sign for name, low, mask, sign in bits})


#: Per instruction its fields behind the opcode: name, lowest bit, mask, weight of the sign (0 without one).
_BITS = {
    i.name: tuple((f.name, f.low, (1 << f.bits) - 1, f.signed << f.bits - 1) for f in HEADER[1:] + i.fields)
    for i in INSTRUCTIONS
}


def check(operation: Op, config: NpuConfig) -> None:
    """Checks an instruction as the decoder of `config` does before it dispatches.

    Raises:
        DecodeError: with code ILLEGAL_OPCODE for an instruction this machine does not have, else ILLEGAL_OPERAND,
            naming field, value and limits.
    """
    requires = operation.instruction.requires
    if requires and not getattr(config, requires):
        raise DecodeError(f"{operation.name}: not on this machine, {requires} is 0", ErrorCode.ILLEGAL_OPCODE)

    def illegal(text: str) -> DecodeError:
        return DecodeError(f"{operation.name}: {text}", ErrorCode.ILLEGAL_OPERAND)

    for f in HEADER[1:] + operation.instruction.fields:
        value = operation[f.name]
        low, high = f.limits(config)
        if not low <= value <= high:
            raise illegal(f"{f.name} must be {low}..{high}, not {value}")
    for a, b in (("wait0", "wait1"), ("signal0", "signal1")):
        if operation[a] and operation[a] == operation[b]:
            raise illegal(f"{a} and {b} must differ, both are {operation[a]}")
    if not operation.instruction.takes_semaphores and (operation.waits or operation.signals):
        raise illegal("takes no semaphores")


def to_bytes(operations: Iterable[Op]) -> bytes:
    """The program image: 16 bytes per instruction, little-endian."""
    return b"".join(o.encode().to_bytes(INSTRUCTION_BYTES, "little") for o in operations)


def words(image: bytes) -> Iterator[int]:
    """The 128-bit words of a program image. Raises `EncodingError` unless its length is a multiple of 16."""
    if len(image) % INSTRUCTION_BYTES:
        raise EncodingError(f"program length must be a multiple of {INSTRUCTION_BYTES} bytes, not {len(image)}")
    for i in range(0, len(image), INSTRUCTION_BYTES):
        yield int.from_bytes(image[i : i + INSTRUCTION_BYTES], "little")


def from_bytes(image: bytes) -> list[Op]:
    """Decodes a whole image; raises `DecodeError` naming the instruction index."""
    operations = []
    for index, word in enumerate(words(image)):
        try:
            operations.append(decode(word))
        except DecodeError as error:
            raise DecodeError(f"instruction {index}: {error}", error.code) from None
    return operations
