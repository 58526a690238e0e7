"""Logic between registers: what is computed of which bits of a netlist, in an order in which it can be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verification.equivalence.sweep import Sweep
from verification.mutants.gates import FALSE, TRUE, Gates, in_order

#: A bit of a netlist: what yosys writes, or a name for one inside a cell.
Bit = Any
#: What bits are, as literals of `Gates`.
Literals = dict[Bit, int]
#: A memory and which bit of its rows.
Column = tuple[str, int]
#: Bits without a driver.
CONSTANTS: Literals = {"0": FALSE, "1": TRUE, "x": FALSE, "z": FALSE}
#: Memories are read at addresses of so many bits: what is missing is 0.
ADDRESS_BITS = 16


@dataclass(frozen=True, eq=False)
class Unit:
    """A unit of combinational logic: bits computed of others without a clock.

    Attributes:
        inputs, outputs: bits of the netlist.
        make: literals of the outputs, made in a `Logic` of those of the inputs.
    """

    inputs: Sequence[Bit]
    outputs: Sequence[Bit]
    make: Callable[..., Sequence[int]]


class Logic:
    """Gates, and reads of memories: any bits, the same for the same memory, column and address.

    Args:
        constant: columns of memories that are the same in all rows, and what they are.
        banked: memories whose rows are cut into banks, and how many bits of an address are those of a row in a bank.
    """

    def __init__(self, constant: Mapping[Column, int], banked: Mapping[str, int]) -> None:
        self.gates, self.constant, self.banked = Sweep(), constant, banked
        self._known: dict[tuple[str, int, tuple[int, ...]], int] = {}

    def read(self, memory: str, columns: Sequence[int], address: Sequence[int]) -> list[int]:
        """Returns some columns of the row at an address; in a banked memory the upper bits choose the bank."""
        cut = self.banked.get(memory, ADDRESS_BITS)
        for n, bit in enumerate(address[cut:], cut):
            if bit not in (FALSE, TRUE):
                low, high = (self.read(memory, columns, [*address[:n], v, *address[n + 1 :]]) for v in (FALSE, TRUE))
                return [self.gates.choose(a, b, bit) for a, b in zip(low, high, strict=True)]
        place = (*address, *[FALSE] * (ADDRESS_BITS - len(address)))
        found = []
        for column in columns:
            if (literal := self.constant.get((memory, column), self._known.get((memory, column, place)))) is None:
                literal = self._known[memory, column, place] = self.gates.variable()
            found.append(literal)
        return found

    def compute(self, units: Iterable[Unit], literals: Literals) -> Literals:
        """Returns `literals` with the outputs of units added, in this order. A bit that nothing drives may be
        anything."""
        literals = CONSTANTS | literals
        for unit in units:
            for bit in unit.inputs:
                if bit not in literals:
                    literals[bit] = self.gates.variable()
            made = unit.make(self, *(literals[bit] for bit in unit.inputs))
            literals.update((b, made_of) for b, made_of in zip(unit.outputs, made, strict=True) if b not in CONSTANTS)
        return literals


def ordered(units: Iterable[Unit]) -> Iterable[Unit]:
    """Returns each unit behind those whose outputs it reads.

    Raises:
        CycleError: some read each other's in a circle.
    """
    return in_order({bit: unit for unit in units for bit in unit.outputs if bit not in CONSTANTS}, lambda u: u.inputs)


def table(gates: Gates, inputs: Sequence[int], bits: int) -> int:
    """Returns the literal of a look-up table of 2**n bits with n inputs; the first input is the lowest bit of the
    index."""
    size = 1 << len(inputs)
    bits &= (1 << size) - 1
    if bits in (0, (1 << size) - 1):
        return TRUE if bits else FALSE
    *lower, last = inputs
    return gates.choose(table(gates, lower, bits), table(gates, lower, bits >> size // 2), last)


def product(gates: Gates, a: Sequence[int], b: Sequence[int], signed: tuple[bool, bool], bits: int) -> list[int]:
    """Returns the lowest bits of a product: the same nodes for the same factors, in either order, however they are
    extended."""
    factors = sorted(tuple(_shortest(factor, sign)) for factor, sign in zip((a, b), signed, strict=True))
    first, second = ([*factor, *[factor[-1]] * bits][:bits] for factor in factors)
    total = [FALSE] * bits
    for place, select in enumerate(second):
        if select != FALSE:
            row = [FALSE] * place + [gates.both(select, bit) for bit in first[: bits - place]]
            total = _sum(gates, total, row)
    return total


def _shortest(factor: Sequence[int], signed: bool) -> list[int]:
    """Returns a signed factor, without the bits that only extend it."""
    bits = [*factor] if signed else [*factor, FALSE]
    while len(bits) > 1 and bits[-1] == bits[-2]:
        bits.pop()
    return bits


def _sum(gates: Gates, a: Sequence[int], b: Sequence[int]) -> list[int]:
    carry, found = FALSE, []
    for x, y in zip(a, b, strict=True):
        half = gates.differ(x, y)
        found.append(gates.differ(half, carry))
        carry = gates.either(gates.both(x, y), gates.both(half, carry))
    return found
