"""Matches registers of the design with bits of a netlist. A match is a guess, which the proof then checks.

Yosys keeps names, so most registers are found by theirs. Of the others some are constants or equal to a register that
has been found, and some have only lost their name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tilewright.fpga.flows.netlist import loads, named, text
from verification.equivalence.ecp5 import (
    ADDRESS_PINS,
    MEMORY,
    REGISTER,
    SMALL_COLUMNS,
    SMALL_RAM,
    Netlist,
    Pin,
    outputs,
)
from verification.equivalence.rtl import Rtl
from verification.equivalence.sweep import Sweep
from verification.equivalence.units import CONSTANTS, Bit, Column, Literals, Logic
from verification.mutants.gates import FALSE, TRUE


@dataclass
class Matched:
    """Correspondence between design and netlist.

    Attributes:
        partner: of a register of the design, a bit of the netlist or a constant.
        equal: of a register without one, the register that it is equal to, or a constant.
        constant: columns of memories that are the same in all rows for ever, and what they are.
        of_bank: of memories whose rows are cut into banks, how many small RAMs hold one.
    """

    rtl: Rtl
    netlist: Netlist
    partner: dict[Bit, Bit] = field(default_factory=dict)
    equal: dict[Bit, Bit] = field(default_factory=dict)
    constant: dict[Column, int] = field(default_factory=dict)
    of_bank: dict[str, int] = field(default_factory=dict)

    def logic(self) -> Logic:
        """Makes gates that know the constant columns and the banks found so far."""
        return Logic(self.constant, dict.fromkeys(self.of_bank, ADDRESS_PINS))

    def literals(self, gates: Sweep) -> tuple[Literals, Literals]:
        """Makes variables for the present values of registers of the design and of bits of the netlist; matched ones
        share one."""
        states = {bit: gates.variable() for bit in self.netlist.starts}
        there = CONSTANTS | states
        registers = {bit: there[other] for bit, other in self.partner.items()}
        registers |= {bit: gates.variable() for bit in self.open}
        here = CONSTANTS | registers
        return registers | {bit: here[self._root(bit)] for bit in self.equal}, states

    def _root(self, bit: Bit) -> Bit:
        while bit in self.equal:
            bit = self.equal[bit]
        return bit

    @property
    def open(self) -> list[Bit]:
        """Registers without a match so far."""
        return [bit for bit in self.rtl.registers if bit not in self.partner and bit not in self.equal]


def match(rtl: Rtl, netlist: Netlist) -> Matched:
    """Returns a guess about all registers and columns of memories."""
    found = Matched(rtl, netlist)
    _banks(found)
    cells = {name: cell["connections"]["Q"][0] for name, cell in netlist.cells(REGISTER)}
    bits = cells | dict(reversed([*named(netlist.module)]))
    read = loads(netlist.module)
    for register in rtl.registers.values():
        there = [bits[name] for name in register.names if name in bits]
        kept = [bit for bit in there if bit in netlist.starts and read[bit]]
        if kept or "0" in there or "1" in there:
            found.partner[register.bit] = (*kept, *(bit for bit in there if bit in ("0", "1")))[0]
    _without_name(found)
    _equal(found, _constants(found))
    _columns(found, bits)
    return found


def _banks(found: Matched) -> None:
    """Small RAMs that hold some rows of a memory. Yosys names the columns of the first rows, then those of the next."""
    numbers: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for name, _ in found.netlist.cells(SMALL_RAM):
        memory, _, last = name.rsplit(".", 2)
        numbers[memory].append((int(last), name))
    for memory, cells in numbers.items():
        if (above := len(found.rtl.memories[memory].address) - ADDRESS_PINS) > 0:
            found.of_bank[memory] = of_bank = (max(cells)[0] + 1) >> above
            for number, name in cells:
                bank = number // of_bank
                found.netlist.banks[name] = tuple(bank >> n & 1 for n in range(above))


def _without_name(found: Matched) -> None:
    """Matches registers that take the value of another one with the same clock, one behind the other."""
    outside = found.netlist.pins(driven=True)
    clocks = {bit: outside.get(place) for place, bit in found.rtl.outputs.items()}
    taken = set(found.partner.values())
    loose = [cell for _, cell in found.netlist.cells(REGISTER) if cell["connections"]["Q"][0] not in taken]
    while True:
        here = found.partner | {"0": "0", "1": "1"}
        kinds: dict[tuple[Bit, Bit, str, bool], list[Bit]] = defaultdict(list)
        for register in (found.rtl.registers[bit] for bit in found.open):
            if register.data in here:
                clock = clocks.get(register.clock)
                kinds[here[register.data], clock, register.start, register.set_low is not None].append(register.bit)
        before = len(found.partner)
        for cell in loose:
            bit, data, clock = (cell["connections"][port][0] for port in ("Q", "DI", "CLK"))
            same = kinds[data, clock, found.netlist.starts[bit], text(cell, "SRMODE", "") == "ASYNC"]
            if same and bit not in found.partner.values():
                found.partner[same.pop()] = bit
        if len(found.partner) == before:
            return


class _Cycle(NamedTuple):
    """Values of the design's bits in one cycle, and of its registers in the next."""

    here: Literals
    following: Literals
    gates: Sweep


def _constants(found: Matched) -> _Cycle:
    """Finds registers and columns of memories that keep their initial values, whatever the others are. Returns a cycle
    with all of them."""
    while True:
        here, following, gates = cycle = _once(found)
        before = len(found.equal) + len(found.constant)
        for bit in found.open:
            start = found.rtl.registers[bit].start
            if start == "0" and _never(gates, gates.both(here[bit] ^ 1, following[bit])):
                found.equal[bit] = start
            if start == "1" and _never(gates, gates.both(here[bit], following[bit] ^ 1)):
                found.equal[bit] = start
        for memory in found.rtl.memories.values():
            for column, (data, enable) in enumerate(zip(memory.data, memory.enable, strict=True)):
                starts = set(memory.column(column))
                for value in (FALSE, TRUE):
                    if starts == {str(value)} and _never(gates, gates.both(here[enable], here[data] ^ value)):
                        found.constant[memory.name, column] = value
        if len(found.equal) + len(found.constant) == before:
            return cycle


def _equal(found: Matched, cycle: _Cycle) -> None:
    """Finds registers that stay equal to another one, once they were equal."""
    while True:
        here, following, gates = cycle
        values = {bit: (gates.value(here[bit]), gates.value(becomes))
                  for bit, becomes in following.items() if bit not in found.equal}  # fmt: skip
        every, before = (1 << gates.cases) - 1, len(found.equal)
        for bit in found.open:
            register = found.rtl.registers[bit]
            mine, becomes = values[bit]
            for other, (its, there) in values.items():
                if (becomes ^ there) & ~(mine ^ its) & every or other == bit or other in found.equal:
                    continue
                twin = found.rtl.registers[other]
                apart = gates.differ(following[bit], following[other])
                same = (twin.start, twin.clock, twin.set_low) == (register.start, register.clock, register.set_low)
                if same and _never(gates, gates.both(apart, gates.differ(here[bit], here[other]) ^ 1)):
                    found.equal[bit] = other
                    break
        if len(found.equal) == before:
            return
        cycle = _once(found)


def _once(found: Matched) -> _Cycle:
    logic = found.logic()
    registers, _ = found.literals(logic.gates)
    here = found.rtl.build(logic, registers)
    return _Cycle(here, found.rtl.next(logic, here), logic.gates)


def _never(gates: Sweep, literal: int) -> bool:
    return gates.equal(literal, FALSE)


def _columns(found: Matched, bits: Mapping[str, Bit]) -> None:
    """Finds the memory column of each pin of a cell by the names of what is read. Pins without a name are found by what
    is written, or by the order in which yosys cuts what is not constant."""
    by_bit: dict[Bit, list[Column]] = defaultdict(list)
    by_input: dict[Bit, list[Column]] = defaultdict(list)
    names: dict[Bit, list[str]] = defaultdict(list)
    for name, bit in named(found.rtl.module):
        names[bit].append(name)

    def there(bit: Bit) -> list[Bit]:
        return [bits[name] for name in names[bit] if name in bits and bits[name] not in CONSTANTS]

    behind: dict[Bit, list[Bit]] = defaultdict(list)  # registers that take what another one has
    for register in found.rtl.registers.values():
        behind[register.data].append(register.bit)
    for memory in found.rtl.memories.values():
        for port in memory.reads:
            for column, bit in enumerate(port.data):
                place = memory.name, column
                for other in there(bit):
                    by_bit[other].append(place)
                for register in (bit, *behind[bit]):
                    if register in found.partner:
                        by_bit[found.partner[register]].append(place)
        for column, bit in enumerate(memory.data):
            for other in there(bit):
                by_input[other].append((memory.name, column))
    read = loads(found.netlist.module)
    open_pins: list[tuple[Pin, str, int, list[int]]] = []  # which may be one of several columns, or any
    shifts: dict[str, dict[int, int]] = defaultdict(dict)  # of a memory, by place: how many columns before it are gone
    for name, cell in found.netlist.cells(SMALL_RAM, MEMORY):
        memory_name, _, number = name.rsplit(".", 2)
        for output, bit in ((output, bit) for output, bit in outputs(cell) if read[bit]):
            columns = [c for m, c in by_bit[bit] if m == memory_name]
            if cell["type"] == SMALL_RAM:
                at = SMALL_COLUMNS * (int(number) % found.of_bank.get(memory_name, int(number) + 1)) + int(output)
                columns += [c for m, c in by_input[cell["connections"]["DI"][int(output)]] if m == memory_name]
                if len(set(columns)) != 1:
                    open_pins.append((Pin(name, output), memory_name, at, columns))
                    continue
                shifts[memory_name][at] = columns[0] - at
            if columns:
                found.netlist.columns[name][output] = memory_name, columns[0]
    for pin, memory_name, at, columns in open_pins:
        width = len(found.rtl.memories[memory_name].data)
        kept = [column for column in range(width) if (memory_name, column) not in found.constant]
        last = max(place for _, name, place, _ in open_pins if name == memory_name)
        shift = shifts[memory_name]
        if last < len(kept) and all(other < len(kept) and kept[other] == other + n for other, n in shift.items()):
            column = kept[at]
        else:  # other columns are gone than those: as before the nearest
            column = at + shift.get(min(shift, key=lambda other: (abs(at - other), other), default=at), 0)
        if columns:
            column = min(columns, key=lambda other: abs(other - column))
        found.netlist.columns[pin.cell][pin.place] = memory_name, column
