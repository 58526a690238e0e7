"""Rebuilds expressions with other loop variables or nodes, and joins neighbouring loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.compiler.cpu.expr.form import (
    Atom,
    Dynamic,
    Expr,
    Index,
    Lookup,
    Quotient,
    Remainder,
    Var,
    index_value,
    indices,
    load,
)


class Rewriter:
    """Rebuilds expressions with loop variables replaced by indices, and nodes by `replace(expr) -> Expr | None`."""

    def __init__(self, variables: dict[Var, Index], replace: Callable[[Expr], Expr | None] | None = None) -> None:
        self.variables, self.replace = variables, replace
        self.memo: dict[int, Expr] = {}
        self.atoms: dict[int, Dynamic] = {}

    def index(self, index: Index) -> Index:
        out = Index(index.const)
        for atom, c in index.terms:
            out = out + self.atom(atom) * c
        return out

    def atom(self, atom: Atom) -> Index:
        if isinstance(atom, Var):
            return self.variables.get(atom, Index.of(atom))
        if isinstance(atom, Quotient):
            return self.index(atom.index) // atom.divisor
        if isinstance(atom, Remainder):
            return self.index(atom.index) % atom.divisor
        if isinstance(atom, Lookup):
            return Index.of(Lookup(self.index(atom.index), atom.table))
        if id(atom) not in self.atoms:
            self.atoms[id(atom)] = Dynamic(self(atom.expr), atom.low, atom.high)
        return Index.of(self.atoms[id(atom)])

    def __call__(self, e: Expr) -> Expr:
        if id(e) in self.memo:
            return self.memo[id(e)]
        out = self.replace(e) if self.replace else None
        if out is None:
            if e.op == "load":
                out = load(e.value[0], self.index(e.value[1]))
            elif e.op == "index":
                out = index_value(self.index(e.value))
            elif e.op == "acc":
                out = Expr("acc", (), e.dtype, (e.value[0], tuple(self.index(i) for i in e.value[1])))
            elif e.args:
                out = Expr(e.op, tuple(self(a) for a in e.args), e.dtype, e.value)
            else:
                out = e
        self.memo[id(e)] = out
        return out


def merge(variables: list[Var], exprs: list[Expr], offset: Index) -> tuple[list[Var], list[Expr], Index]:
    """Joins neighbouring loops that every access walks as one, so that inner loops are long."""
    single = {v: Index(0) for v in variables if v.extent == 1}
    if single:
        drop = Rewriter(dict(single))
        exprs, offset = [drop(e) for e in exprs], drop.index(offset)
    variables = [v for v in variables if v.extent != 1]
    for k in range(len(variables) - 2, -1, -1):
        a, b = variables[k], variables[k + 1]
        if can_merge(a, b, exprs, offset):
            v = Var.new(a.extent * b.extent)
            rewrite = Rewriter({a: Index(0), b: Index.of(v)})
            exprs, offset = [rewrite(e) for e in exprs], rewrite.index(offset)
            variables[k : k + 2] = [v]
    return variables, exprs, offset


def can_merge(a: Var, b: Var, exprs: Sequence[Expr], offset: Index) -> bool:
    for index in [offset, *(i for e in exprs for i in indices(e))]:
        ca, cb = index.coefficient(a), index.coefficient(b)
        if ca is None or cb is None or ca != cb * b.extent:
            return False
    return True
