"""The place where a program leaves its graph: the first tensor with an element that it never computes."""

from __future__ import annotations

import numpy as np

from tilewright.isa.program import Program
from tilewright.prove.checker.cells import VALUE, words_of
from tilewright.prove.checker.compare import ProgramSide, Verdict, graph_outputs
from tilewright.prove.checker.graph import QuantisedGraph, Step
from tilewright.prove.checker.names import Names

Array = np.ndarray


class _Recorded(Names):
    """Names of one proof, and `made`: the words of the values of all cells that were made."""

    def __init__(self, seed: int) -> None:
        self.made: list[Array] = []
        super().__init__(seed)

    def cells(self, elements: Array) -> Array:
        return self._kept(super().cells(elements))

    def of_roots(self, roots: Array, numbers: Array) -> Array:
        return self._kept(super().of_roots(roots, numbers))

    def _kept(self, found: Array) -> Array:
        self.made.append(words_of(found[..., VALUE]).ravel())
        return found


def locate(graph: QuantisedGraph, program: Program, verdict: Verdict, entry: str = "") -> None:
    """Gives the difference of a verdict, if it has one, the first tensor of the graph that the program does not
    compute."""
    difference = verdict.difference
    if difference is None:
        return
    names = _Recorded(verdict.seed)
    chosen = program.entry(entry or None)
    ProgramSide(names, graph, chosen, Verdict(), entry).run()
    computed = np.unique(np.concatenate(names.made))

    def look(step: Step, name: str, cells: Array) -> None:
        if difference.tensor or graph.values[name].dtype not in (np.int8, np.uint8):
            return
        words = words_of(cells[..., VALUE]).ravel()
        at = np.minimum(np.searchsorted(computed, words), len(computed) - 1)
        missing = np.flatnonzero(computed[at] != words)
        if len(missing):
            difference.tensor, difference.layer = name, step.name or step.outputs[0]
            difference.index = tuple(int(i) for i in np.unravel_index(missing[0], graph.values[name].shape))

    graph_outputs(Names(verdict.seed), graph, chosen, look)
