"""Instruction fields as slices of a hardware word: every bit position comes from `tilewright.isa.instructions`."""

from __future__ import annotations

from amaranth.hdl import Cat, Value

from tilewright.isa.config import NpuConfig
from tilewright.isa.fields import HEADER
from tilewright.isa.instructions import BY_NAME, INSTRUCTIONS, Engine, Instruction

_HEADER = {f.name: f for f in HEADER}


def field(word: Value, instruction: str, name: str) -> Value:
    """Returns field `name` of `instruction` in a 128-bit word, signed where the table has it so."""
    f = BY_NAME[instruction].by_name[name]
    bits = word[f.low : f.low + f.bits]
    return bits.as_signed() if f.signed else bits


def header(word: Value, name: str) -> Value:
    """Returns a header field of a 128-bit word."""
    f = _HEADER[name]
    return word[f.low : f.low + f.bits]


def engine_of(word: Value) -> Value:
    """Returns the engine number of an instruction that is in the table."""
    return header(word, "opcode")[4:]


def is_instruction(word: Value, *names: str) -> Value:
    """Returns a bit: the opcode is that of one of the named instructions."""
    opcode = header(word, "opcode")
    result = opcode == BY_NAME[names[0]].opcode
    for name in names[1:]:
        result = result | (opcode == BY_NAME[name].opcode)
    return result


def instructions_on(config: NpuConfig) -> list[Instruction]:
    """Returns the rows of the instruction table that a machine has."""
    return [i for i in INSTRUCTIONS if i.requires is None or getattr(config, i.requires)]


def instructions_of(engine: Engine, *, configures: bool) -> list[Instruction]:
    """Returns the rows of the instruction table of one engine: its configuring or its run instructions."""
    return [i for i in INSTRUCTIONS if i.engine == engine and i.configures == configures]


def one_hot(number: Value, size: int) -> Value:
    """Decodes `number` to one-hot: bit `number` of `size` bits is set, none where there is no such bit."""
    return Cat(number == i for i in range(size))
