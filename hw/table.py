"""Instruction fields as slices of a hardware word: every bit position comes from `tilewright.isa.instructions`."""

from __future__ import annotations

from amaranth.hdl import Cat, Value

from tilewright.isa.config import NpuConfig
from tilewright.isa.fields import HEADER
from tilewright.isa.instructions import BY_NAME, INSTRUCTIONS, Engine, Instruction

_HEADER = {f.name: f for f in HEADER}


def field(word: Value, instruction: str, name: str) -> Value:
    """Field `name` of `instruction` in a 128-bit word, signed where the table says so."""
    f = BY_NAME[instruction].by_name[name]
    bits = word[f.low : f.low + f.bits]
    return bits.as_signed() if f.signed else bits


def header(word: Value, name: str) -> Value:
    """A header field."""
    f = _HEADER[name]
    return word[f.low : f.low + f.bits]


def engine_of(word: Value) -> Value:
    """The engine of an instruction that is in the table."""
    return header(word, "opcode")[4:]


def is_instruction(word: Value, *names: str) -> Value:
    """1 where the opcode is one of the named instructions."""
    opcode = header(word, "opcode")
    result = opcode == BY_NAME[names[0]].opcode
    for name in names[1:]:
        result = result | (opcode == BY_NAME[name].opcode)
    return result


def instructions_on(config: NpuConfig) -> list[Instruction]:
    """Table rows a machine has."""
    return [i for i in INSTRUCTIONS if i.requires is None or getattr(config, i.requires)]


def instructions_of(engine: Engine, *, configures: bool) -> list[Instruction]:
    """Table rows of one engine."""
    return [i for i in INSTRUCTIONS if i.engine == engine and i.configures == configures]


def one_hot(number: Value, size: int) -> Value:
    """`size` bits, bit `number` of them set; none if there is no such bit."""
    return Cat(number == i for i in range(size))
