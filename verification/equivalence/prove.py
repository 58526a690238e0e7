"""Proves that a netlist and the design it was made of do the same for ever.

Both begin with the same in all registers and memories. From any states that are the same they come, with the same
inputs, to states that are the same. So they are in every cycle of every run, and so is what they give to the outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from verification.equivalence.ecp5 import MEMORY, Netlist, Next, Pin, is_registered, outputs
from verification.equivalence.match import Matched, match
from verification.equivalence.rtl import Rtl
from verification.equivalence.units import CONSTANTS, Bit, Literals
from verification.mutants.gates import FALSE

KINDS = REGISTER, COLUMN, OUTPUT = "registers", "memory columns", "outputs"


@dataclass(frozen=True)
class End:
    """An end of a part, whose literals must be equal in design and netlist for the part to be the same.

    Attributes:
        kind: a register, a column of a memory in one of its cells, or what is given to the outside.
        name: of the sources.
        pairs: literals of the design and of the netlist.
        right: what is known without a solver, such as what it is at first.
    """

    kind: str
    name: str
    pairs: tuple[tuple[int, int], ...]
    right: bool = True


@dataclass(frozen=True)
class Verdict:
    """Ends of a design that are proved, and those that are not.

    Attributes:
        proved, failed: ends.
        left_out: registers that the netlist does not have, which nothing reads that is proved.
        asked: how often the solver was asked.
    """

    proved: tuple[End, ...]
    failed: tuple[End, ...]
    left_out: tuple[str, ...]
    asked: int


def prove(rtl: Rtl, netlist: Netlist, track: Callable[[list[End]], Iterable[End]] = iter) -> Verdict:
    """Proves all ends of a design, one after the other.

    Args:
        rtl, netlist: the design, and what was made of it.
        track: shows how many ends are done.

    Raises:
        ValueError: a cell is used in a way that nothing is said about.
    """
    matched = match(rtl, netlist)
    proof = _Proof(matched)
    proved: list[End] = []
    failed: list[End] = []
    for end in track(list(proof.ends())):
        equal = end.right and all(proof.gates.equal(a, proof.gates.known(b)) for a, b in end.pairs)
        (proved if equal else failed).append(end)
    left_out = tuple(rtl.registers[bit].names[0] for bit in matched.open if bit not in proof.latches)
    return Verdict(tuple(proved), tuple(failed), left_out, proof.gates.asked)


class _Proof:
    def __init__(self, matched: Matched) -> None:
        self.matched, self.rtl, self.netlist = matched, matched.rtl, matched.netlist
        self.logic = matched.logic()
        self.gates = self.logic.gates
        self.registers, states = matched.literals(self.gates)
        self.here = self.rtl.build(self.logic, self.registers)
        self.following = self.rtl.next(self.logic, self.here)
        self.gates.freeze()
        known: Literals = dict(states)
        for place, bit in self.netlist.pins(driven=True).items():
            if place in self.rtl.outputs:
                known[bit] = self.here[self.rtl.outputs[place]]
        self.there = self.netlist.build(self.logic, known)
        self.latches: dict[Bit, Next] = {}  # registers of the design inside a block RAM, by bit
        self.nexts = self.netlist.next(self.logic, self.there) | self._block_rams(states)

    def _block_rams(self, states: Literals) -> dict[Bit, Next]:
        """Returns the next outputs of block RAMs, by bit of the design."""
        by_column = {place: bit for bit, place in self.rtl.from_memory.items()}
        now: dict[Pin, int] = {}
        behind: dict[Bit, Pin] = {}  # of a register behind an output
        inside: dict[Pin, Bit] = {}  # what it stands for: of the design
        direct: dict[Bit, Pin] = {}  # of an output without one
        for name, cell in self.netlist.cells(MEMORY):
            columns = self.netlist.columns[name]
            for place, bit in ((place, bit) for place, bit in outputs(cell) if place in columns):
                pin = Pin(name, place)
                if is_registered(cell, pin):
                    behind[bit], inside[pin] = pin, by_column[columns[place]]
                    now[pin] = self.registers[inside[pin]]
                else:
                    direct[bit], now[pin] = pin, states[bit]
        read = self.netlist.read_next(self.logic, self.there, now)
        self.latches = {bit: read[pin] for pin, bit in inside.items()}
        return {bit: read[pin] for bit, pin in direct.items()} | {
            bit: self.netlist.output_next(self.gates, self.there, pin, now[pin]) for bit, pin in behind.items()
        }

    def ends(self) -> Iterator[End]:
        """Yields all ends, whose literals must be equal."""
        for bit, register in self.rtl.registers.items():
            clock = self.here[register.clock]
            set_now = self.here[register.set_low] ^ 1 if register.set_low is not None else FALSE
            mine = Next(self.following[bit], clock, set_now)
            if bit in self.latches:
                yield self._register(bit, mine, self.latches[bit], "0")
            elif bit in self.matched.equal:
                yield self._same_as(bit, self.matched.equal[bit], mine)
            elif bit in self.matched.partner:
                yield self._kept_in(bit, self.matched.partner[bit], mine)
        yield from self._columns()
        yield from self._boxes()

    def _register(self, bit: Bit, mine: Next, other: Next, start: str) -> End:
        register = self.rtl.registers[bit]
        pairs = ((mine.value, other.value), (mine.clock, other.clock), (mine.set_now, other.set_now))
        return End(REGISTER, register.names[0], pairs, register.start in ("", start))

    def _kept_in(self, bit: Bit, partner: Bit, mine: Next) -> End:
        """Returns the end of a register that a bit of the netlist stands for, or a constant."""
        if partner in CONSTANTS:
            return self._register(bit, mine, Next(CONSTANTS[partner], mine.clock, mine.set_now), partner)
        return self._register(bit, mine, self.nexts.get(partner, Next(FALSE, FALSE)), self.netlist.starts[partner])

    def _same_as(self, bit: Bit, other: Bit, mine: Next) -> End:
        """Returns the end of a register that equals another one, or a constant."""
        if other in CONSTANTS:
            return self._kept_in(bit, other, mine)
        register = self.rtl.registers[other]
        return self._register(bit, mine, Next(self.following[other], self.here[register.clock]), register.start)

    def _columns(self) -> Iterator[End]:
        """Yields the ends of memories: write ports, and initial contents."""
        for pin, written in self.netlist.written(self.gates, self.there):
            name, column = self.netlist.columns[pin.cell][pin.place]
            memory = self.rtl.memories[name]
            enable = self.here[memory.enable[column]]
            bits = len(written.address)
            address = [self.here[bit] for bit in memory.address[:bits]]
            address += [FALSE] * (bits - len(address))
            bank = self.netlist.banks.get(pin.cell, ())
            for bit, wanted in zip(memory.address[bits:], bank, strict=True):
                enable = self.gates.both(enable, self.here[bit] ^ wanted ^ 1)
            mine = [self.here[memory.data[column]], *address]
            pairs = [(enable, written.enable), (self.here[memory.clock], written.clock)]
            for here, there in zip(mine, (written.data, *written.address), strict=True):
                pairs.append((self.gates.both(enable, here), self.gates.both(written.enable, there)))
            rows = 1 << bits
            first = rows * sum(bit << n for n, bit in enumerate(bank))
            start = memory.column(column)[first : first + rows]
            same = all(a in (b, "x") for a, b in zip(start, self.netlist.start(pin, len(start)), strict=True))
            yield End(COLUMN, f"{name}[{column}]", tuple(pairs), same)
        for (name, column), value in self.matched.constant.items():
            memory = self.rtl.memories[name]
            changes = self.gates.both(self.here[memory.enable[column]], self.here[memory.data[column]] ^ value)
            yield End(COLUMN, f"{name}[{column}]", ((changes, FALSE),), set(memory.column(column)) == {str(value)})

    def _boxes(self) -> Iterator[End]:
        """Yields the ends at pins of other cells and at ports of the design."""
        there = self.netlist.pins(driven=False)
        for place in sorted(self.rtl.inputs.keys() | {p for p, bit in there.items() if bit not in CONSTANTS}):
            cell, port, n = place
            both = place in self.rtl.inputs and place in there
            pairs = ((self.here[self.rtl.inputs[place]], self.there[there[place]]),) if both else ()
            yield End(OUTPUT, f"{cell}.{port}[{n}]".lstrip("."), pairs, both)
