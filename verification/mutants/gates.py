"""A netlist of single-bit gates as Python sees it: nodes that are equal in structure are one node.

A literal is twice the number of a node, plus 1 for its complement; node 0 is the constant 0.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any, TypeVar

from tilewright.fpga.flows.netlist import named, starts

Cell = TypeVar("Cell", bound=Hashable)
FALSE, TRUE = 0, 1


class Gates:
    """AND gates over variables, with constants propagated."""

    def __init__(self) -> None:
        self.inputs: list[tuple[int, int] | None] = [None]  # by node; None = a variable
        self._known: dict[tuple[int, int], int] = {}

    def variable(self) -> int:
        """Adds a variable; returns its literal."""
        self.inputs.append(None)
        return 2 * (len(self.inputs) - 1)

    def both(self, a: int, b: int) -> int:
        """a AND b."""
        if a > b:
            a, b = b, a
        if a == FALSE or a == b ^ 1:
            return FALSE
        if a in (TRUE, b):
            return b
        if (a, b) not in self._known:
            self.inputs.append((a, b))
            self._known[a, b] = 2 * (len(self.inputs) - 1)
        return self._known[a, b]

    def either(self, a: int, b: int) -> int:
        """a OR b."""
        return self.both(a ^ 1, b ^ 1) ^ 1

    def choose(self, low: int, high: int, select: int) -> int:
        """`high` where `select`, else `low`."""
        if low == high:
            return low
        return self.either(self.both(select ^ 1, low), self.both(select, high))

    def differ(self, a: int, b: int) -> int:
        """a XOR b."""
        if a == b ^ 1:
            return TRUE
        return self.choose(a, a ^ 1, b)

    def cone(self, literals: Iterable[int]) -> list[int]:
        """Returns the nodes that literals come from, each behind those that it reads."""
        waiting = [literal >> 1 for literal in literals]
        found: set[int] = set()
        while waiting:
            node = waiting.pop()
            if node not in found:
                found.add(node)
                waiting += [literal >> 1 for literal in self.inputs[node] or ()]
        return sorted(found)

    def evaluate(self, literals: Iterable[int], variable: Callable[[int], int], cases: int) -> Callable[[int], int]:
        """Returns the function from literals to their values, a bit for each of so many cases; `variable` gives those
        of variables."""
        every = (1 << cases) - 1
        values: dict[int, int] = {}

        def value(literal: int) -> int:
            return values[literal >> 1] ^ (every if literal & 1 else 0)

        for node in self.cone(literals):
            if not node:
                values[node] = 0
            elif (inputs := self.inputs[node]) is None:
                values[node] = variable(node)
            else:
                values[node] = value(inputs[0]) & value(inputs[1])
        return value


#: Yosys' gates: names of their inputs, and what they make of them.
KINDS: dict[str, tuple[str, Callable[..., int]]] = {
    "$_NOT_": ("A", lambda g, a: a ^ 1),
    "$_BUF_": ("A", lambda g, a: a),
    "$_AND_": ("AB", Gates.both),
    "$_NAND_": ("AB", lambda g, a, b: g.both(a, b) ^ 1),
    "$_OR_": ("AB", Gates.either),
    "$_NOR_": ("AB", lambda g, a, b: g.either(a, b) ^ 1),
    "$_XOR_": ("AB", Gates.differ),
    "$_XNOR_": ("AB", lambda g, a, b: g.differ(a, b) ^ 1),
    "$_ANDNOT_": ("AB", lambda g, a, b: g.both(a, b ^ 1)),
    "$_ORNOT_": ("AB", lambda g, a, b: g.either(a, b ^ 1)),
    "$_MUX_": ("ABS", Gates.choose),
}
_REGISTER, _READ, _WRITE = "$_DFF_P_", "$memrd_v2", "$memwr_v2"


@dataclass(frozen=True)
class End:
    """A bit that leaves the gates.

    Attributes:
        bit: which.
        when: it matters only when one of these bits is 1; none = always.
        spoils: inputs of the netlist that are not what they were once it was wrong; None: it is seen from outside.
    """

    bit: Any
    when: tuple[Any, ...] = ()
    spoils: tuple[Any, ...] | None = None


class Netlist:
    """A module of gates, registers and memories, whose words are taken for columns of bits: which word a bit is in is
    not looked at.

    Args:
        module: as yosys' `write_json` has it: its cells are of KINDS, registers of one clock, or ports of memories.
        clock: name of the clock.
        strobes: of outputs that matter only with another one, which.

    Attributes:
        cells: (output bit, kind, input bits), inputs before what uses them.
        registers: what goes into them, by the bit that they give.
        start: what they hold at first, "0" or "1", by the bit that they give, where that is known.
        inputs: names of bits that come from outside: ports, registers, what is read from memories.
        ends: by name.

    Raises:
        ValueError: a cell of another kind.
    """

    def __init__(
        self, module: Mapping[str, Any], clock: str = "clk", strobes: Callable[[str], str | None] = lambda name: None
    ) -> None:
        names: dict[Any, str] = {}
        for name, bit in named(module):
            names.setdefault(bit, name)
        start = starts(module)
        self.registers: dict[Any, Any] = {}
        self.start: dict[Any, str] = {}
        self.inputs: dict[Any, str] = {}
        self.ends: dict[str, End] = {}
        waiting: dict[Any, tuple[str, list[Any]]] = {}
        for name, port in module["ports"].items():
            strobe = strobes(name)
            when = tuple(module["ports"][strobe]["bits"]) if strobe else ()
            for n, bit in enumerate(port["bits"]):
                if port["direction"] == "input":
                    self.inputs[bit] = f"{name}[{n}]"
                else:
                    self.ends[f"output {name}[{n}]"] = End(bit, when)
        memories: dict[str, list[dict[str, Any]]] = {}
        for name, cell in module["cells"].items():
            ports = cell["connections"]
            if cell["type"] in KINDS:
                waiting[ports["Y"][0]] = (cell["type"], [ports[p][0] for p in KINDS[cell["type"]][0]])
            elif cell["type"] == _REGISTER:
                bit = ports["Q"][0]
                self.registers[bit] = ports["D"][0]
                self.inputs[bit] = names.get(bit, name)
                self.ends[f"register {self.inputs[bit]}"] = End(ports["D"][0], (), (bit,))
                if bit in start:
                    self.start[bit] = start[bit]
            elif cell["type"] in (_READ, _WRITE):
                memories.setdefault(cell["parameters"]["MEMID"], []).append(cell | {"name": name})
            else:
                raise ValueError(f"cell {name} is of type {cell['type']}, not a gate, register or memory")
        for cells in memories.values():
            self._memory(cells)
        order = in_order({bit: bit for bit in waiting}, lambda bit: waiting[bit][1])
        self.cells = [(bit, *waiting[bit]) for bit in order]
        assert self.inputs[module["ports"][clock]["bits"][0]] == f"{clock}[0]"

    def _memory(self, cells: Iterable[Mapping[str, Any]]) -> None:
        """Ports of one. A bit that was written wrongly is wrong wherever this column is read."""
        read = [cell["connections"]["DATA"] for cell in cells if cell["type"] == _READ]
        columns = [tuple(bits) for bits in zip(*read, strict=True)]
        everything = tuple(bit for column in columns for bit in column)
        for cell in cells:
            name, ports = cell["name"], cell["connections"]
            address, enable, data = ports["ADDR"], ports["EN"], ports["DATA"]
            if cell["type"] == _READ:
                clocked = set(cell["parameters"]["CLK_ENABLE"]) > {"0"}
                self.inputs |= {bit: f"{name}.DATA[{n}]" for n, bit in enumerate(data)}
                spoils, when = tuple(data), tuple(enable) if clocked else ()
                enables = {0: (enable[0], spoils)} if clocked else {}
            else:
                spoils, when = everything, tuple(dict.fromkeys(enable))
                enables = {n: (bit, columns[n]) for n, bit in enumerate(enable) if columns}
                self.ends |= {
                    f"{name}.DATA[{n}]": End(bit, (enable[n],), columns[n]) for n, bit in enumerate(data) if columns
                }
            self.ends |= {f"{name}.ADDR[{n}]": End(bit, when, spoils) for n, bit in enumerate(address)}
            self.ends |= {f"{name}.EN[{n}]": End(bit, (), spoilt) for n, (bit, spoilt) in enables.items()}


def in_order(driver: Mapping[Any, Cell], inputs: Callable[[Cell], Iterable[Any]]) -> Iterator[Cell]:
    """Cells by the bits that they give, each once and behind those that it reads.

    Raises:
        CycleError: some read each other in a circle.
    """
    reads = {cell: [driver[bit] for bit in inputs(cell) if bit in driver] for cell in driver.values()}
    return iter(TopologicalSorter(reads).static_order())
