"""Fields of instructions: their bit positions and legal values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

from tilewright.isa.config import NpuConfig

INSTRUCTION_BITS = 128
INSTRUCTION_BYTES = INSTRUCTION_BITS // 8


@dataclass(frozen=True)
class Field:
    """One bit field. `low` is its lowest bit in the 128-bit word, filled in by the table.

    A value below `at_least`, above the configuration's `at_most`, not below its `below` or not in `enum` is an
    `ILLEGAL_OPERAND`, found when the instruction is decoded. `at_most` and `below` name `NpuConfig` attributes.
    """

    name: str
    bits: int
    signed: bool = False
    doc: str = ""
    low: int = 0
    enum: type[IntEnum] | None = None
    at_least: int = 0
    at_most: str = ""
    below: str = ""

    @property
    def minimum(self) -> int:
        """The lowest value the bits can hold."""
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def maximum(self) -> int:
        """The highest value the bits can hold."""
        return (1 << (self.bits - self.signed)) - 1

    @property
    def lowest(self) -> int:
        """The lowest legal value, on any machine."""
        return self.at_least or self.minimum

    @property
    def highest(self) -> tuple[str, int]:
        """The highest legal value: an attribute of `NpuConfig`, "" for none, plus a number."""
        if self.enum is not None:
            return "", max(self.enum)
        if self.at_most:
            return self.at_most, 0
        return (self.below, -1) if self.below else ("", self.maximum)

    def limits(self, config: NpuConfig) -> tuple[int, int]:
        """The lowest and the highest legal value on a machine."""
        attribute, number = self.highest
        return self.lowest, number + (getattr(config, attribute) if attribute else 0)


def layout(fields: tuple[Field, ...], low: int) -> tuple[Field, ...]:
    """Places fields one behind the other, from bit `low` on. Raises ValueError: they do not fit into an instruction."""
    placed = []
    for f in fields:
        placed.append(replace(f, low=low))
        low += f.bits
    if low > INSTRUCTION_BITS:
        raise ValueError(f"fields end at bit {low}, beyond {INSTRUCTION_BITS}")
    return tuple(placed)


#: Fields of every instruction. A wait takes one count (the instruction starts when both are there, and takes both at
#: once); a signal gives one count when all writes of the instruction are visible to every engine.
HEADER: tuple[Field, ...] = layout(
    (
        Field("opcode", 8, doc="engine in the high nibble"),
        Field("wait0", 6, doc="semaphore to take before start, 0 = none", at_most="semaphores"),
        Field("wait1", 6, doc="second semaphore to take, 0 = none, else different from wait0", at_most="semaphores"),
        Field("signal0", 6, doc="semaphore to give when done, 0 = none", at_most="semaphores"),
        Field(
            "signal1", 6, doc="second semaphore to give, 0 = none, else different from signal0", at_most="semaphores"
        ),
    ),
    0,
)


HEADER_BITS = 32
