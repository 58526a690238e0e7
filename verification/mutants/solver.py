"""Bitwuzla about `Gates`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from verification.mutants.gates import Gates


class Solver:
    """A SAT solver that gets the clauses of each node once."""

    def __init__(self, gates: Gates) -> None:
        import bitwuzla as b

        self.b, self.gates = b, gates
        self.manager, options = b.TermManager(), b.Options()
        options.set(b.Option.PRODUCE_MODELS, True)
        self.solver = b.Bitwuzla(self.manager, options)
        self.boolean = self.manager.mk_bool_sort()
        self.terms: dict[int, Any] = {}

    def _literal(self, literal: int) -> Any:
        term = self.terms[literal >> 1]
        return self.manager.mk_term(self.b.Kind.NOT, [term]) if literal & 1 else term

    def apart(self, pairs: Iterable[tuple[int, int]]) -> Callable[[int], bool] | None:
        """Finds values of variables for which the literals of one pair differ; None if none can differ. Ask the
        returned function for values of literals, and of what they come from, before the next question."""
        pairs = list(pairs)
        for node in self.gates.cone(literal for pair in pairs for literal in pair):
            if node in self.terms:
                continue
            inputs = self.gates.inputs[node]
            if inputs is None:
                self.terms[node] = self.manager.mk_const(self.boolean, f"v{node}") if node else self.manager.mk_false()
            else:
                self.terms[node] = self.manager.mk_term(self.b.Kind.AND, [self._literal(i) for i in inputs])
        either = [self.manager.mk_term(self.b.Kind.XOR, [self._literal(i) for i in pair]) for pair in pairs]
        some = self.manager.mk_term(self.b.Kind.OR, either) if len(either) > 1 else either[0]
        if self.solver.check_sat(some) != self.b.Result.SAT:
            return None
        return lambda literal: bool(self.solver.get_value(self._literal(literal)).value())
