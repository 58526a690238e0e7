"""A netlist of single-bit gates as Python sees it: nodes that are equal in structure are one node.

A literal is twice the number of a node, plus 1 for its complement; node 0 is the constant 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

FALSE, TRUE = 0, 1


class Gates:
    """AND gates over variables, with constants propagated."""

    def __init__(self) -> None:
        self.inputs: list[tuple[int, int] | None] = [None]  # by node; None = a variable
        self._known: dict[tuple[int, int], int] = {}

    def variable(self) -> int:
        """A new one."""
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
_REGISTER = "$_DFF_P_"


class Netlist:
    """A module of gates, registers and cells of other kinds (memories). What such a cell gives counts as an input of
    the netlist, what it takes as an output.

    Args:
        module: as yosys' `write_json` has it: its cells are of KINDS, registers of one clock, or others.
        clock: name of the clock.

    Attributes:
        cells: (output bit, kind, input bits), inputs before what uses them.
        registers: (output bit, input bit) by name.
        outputs: bits by name, which says "output" or "cell": ports, and what cells of other kinds take.
        inputs: bits that come from outside: ports, cells of other kinds, registers.
    """

    def __init__(self, module: Mapping[str, Any], clock: str = "clk") -> None:
        names = _names(module)
        self.registers: dict[str, tuple[Any, Any]] = {}
        self.outputs: dict[str, Any] = {}
        self.inputs: dict[Any, str] = {}
        waiting: dict[Any, tuple[str, list[Any]]] = {}
        for name, port in module["ports"].items():
            for n, bit in enumerate(port["bits"]):
                if port["direction"] == "input":
                    self.inputs[bit] = f"{name}[{n}]"
                else:
                    self.outputs[f"output {name}[{n}]"] = bit
        for name, cell in module["cells"].items():
            ports = cell["connections"]
            if cell["type"] in KINDS:
                waiting[ports["Y"][0]] = (cell["type"], [ports[p][0] for p in KINDS[cell["type"]][0]])
            elif cell["type"] == _REGISTER:
                bit = ports["Q"][0]
                assert names.get(bit, name) not in self.registers
                self.registers[names.get(bit, name)] = (bit, ports["D"][0])
                self.inputs[bit] = names.get(bit, name)
            else:
                for port, bits in ports.items():
                    for n, bit in enumerate(bits):
                        if cell["port_directions"][port] == "input":
                            self.outputs[f"cell {name}.{port}[{n}]"] = bit
                        else:
                            self.inputs[bit] = f"{name}.{port}[{n}]"
        self.cells = _in_order(waiting, set(self.inputs))
        assert self.inputs[module["ports"][clock]["bits"][0]] == f"{clock}[0]"


def _names(module: Mapping[str, Any]) -> dict[Any, str]:
    """A name for each bit, one of the sources where there is one."""
    found: dict[Any, str] = {}
    for name, net in sorted(module["netnames"].items(), key=lambda item: (item[1]["hide_name"], len(item[0]))):
        for n, bit in enumerate(net["bits"]):
            found.setdefault(bit, f"{name}[{n}]")
    return found


def _in_order(waiting: Mapping[Any, tuple[str, list[Any]]], known: set[Any]) -> list[tuple[Any, str, list[Any]]]:
    """Gates, each behind those that it reads."""
    done, cells = set(known), []
    for root in waiting:
        stack = [root]
        while stack:
            bit = stack[-1]
            if bit in done:
                stack.pop()
                continue
            kind, inputs = waiting[bit]
            if missing := [i for i in inputs if i in waiting and i not in done]:
                stack += missing
                continue
            done.add(bit)
            cells.append((bit, kind, inputs))
            stack.pop()
    return cells
