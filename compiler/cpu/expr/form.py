"""The tensor-expression form: a value of an output element written as an expression of the loop variables.

* `Index` is an affine form over loop variables and a few opaque atoms (division, remainder, a constant table, a
  value read at run time). It is normalised when built, so that strides are visible and dimensions can be merged.
* `Expr` is a scalar expression: constants, reads of a buffer at an `Index`, arithmetic, `guard` (a read only where
  a condition holds), and `reduce` (a fold over reduction variables).

Types of elements are short strings, see `tilewright.compiler.cpu.expr.dtypes`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct, field

from tilewright.compiler.cpu.expr.dtypes import FLOATS, SIZES

_serial = itertools.count()


class Var(Struct, frozen=True):
    """A loop variable running from 0 to `extent` - 1."""

    name: int
    extent: int

    @staticmethod
    def new(extent: int) -> Var:
        return Var(next(_serial), int(extent))

    def range(self) -> tuple[int, int]:
        return 0, max(self.extent - 1, 0)


class Quotient(Struct, frozen=True):
    """`index // divisor`."""

    index: Index
    divisor: int

    def range(self) -> tuple[int, int]:
        lo, hi = self.index.range()
        return lo // self.divisor, hi // self.divisor


class Remainder(Struct, frozen=True):
    """`index % divisor`, from 0 on."""

    index: Index
    divisor: int

    def range(self) -> tuple[int, int]:
        return 0, self.divisor - 1


class Lookup(Struct, frozen=True):
    """`table[index]`, the table a constant of the kernel."""

    index: Index
    table: tuple[int, ...]

    def range(self) -> tuple[int, int]:
        return min(self.table), max(self.table)


class Dynamic(Struct, frozen=True, eq=False):
    """An i64 value computed at run time, guaranteed to lie in [low, high]."""

    expr: Expr
    low: int
    high: int

    def range(self) -> tuple[int, int]:
        return self.low, self.high


Atom = Var | Quotient | Remainder | Lookup | Dynamic


class Index(Struct, frozen=True):
    """`const + sum(coefficient * atom)`."""

    const: int = 0
    terms: frozenset[tuple[Any, int]] = field(default_factory=frozenset)

    @staticmethod
    def of(value: int | Atom | Index) -> Index:
        if isinstance(value, Index):
            return value
        if isinstance(value, (int, np.integer)):
            return Index(int(value))
        return Index(0, frozenset({(value, 1)}))

    def __add__(self, other: int | Index) -> Index:
        other = Index.of(other)
        terms = dict(self.terms)
        for atom, c in other.terms:
            terms[atom] = terms.get(atom, 0) + c
        return Index(self.const + other.const, frozenset((a, c) for a, c in terms.items() if c))

    __radd__ = __add__

    def __mul__(self, k: int) -> Index:
        k = int(k)
        return Index(self.const * k, frozenset((a, c * k) for a, c in self.terms) if k else frozenset())

    __rmul__ = __mul__

    def __neg__(self) -> Index:
        return self * -1

    def __sub__(self, other: int | Index) -> Index:
        return self + Index.of(other) * -1

    def __rsub__(self, other: int) -> Index:
        return Index.of(other) + self * -1

    def range(self) -> tuple[int, int]:
        lo = hi = self.const
        for atom, c in self.terms:
            a, b = atom.range()
            lo, hi = lo + min(a * c, b * c), hi + max(a * c, b * c)
        return lo, hi

    def _split(self, k: int) -> tuple[Index, Index]:
        """(multiple of k divided by k, rest) with the rest's constant in [0, k)."""
        whole = Index(self.const // k, frozenset((a, c // k) for a, c in self.terms if c % k == 0))
        return whole, Index(self.const % k, frozenset((a, c) for a, c in self.terms if c % k))

    def __floordiv__(self, k: int) -> Index:
        if k == 1:
            return self
        whole, rest = self._split(k)
        lo, hi = rest.range()
        if lo // k == hi // k:
            return whole + lo // k
        return whole + Index.of(Quotient(rest, k))

    def __mod__(self, k: int) -> Index:
        if k == 1:
            return Index(0)
        _, rest = self._split(k)
        lo, hi = rest.range()
        if lo // k == hi // k:
            return rest - (lo // k) * k
        return Index.of(Remainder(rest, k))

    def coefficient(self, var: Var) -> int | None:
        """Stride of `var`, None where it also occurs inside an opaque atom."""
        found = 0
        for atom, c in self.terms:
            if atom == var:
                found = c
            elif var in atom_vars(atom):
                return None
        return found

    @property
    def is_const(self) -> bool:
        return not self.terms


def atom_vars(atom: Atom) -> set[Var]:
    if isinstance(atom, Var):
        return {atom}
    if isinstance(atom, Dynamic):
        return set().union(*(index_vars(i) for i in indices(atom.expr)))
    return index_vars(atom.index)


def index_vars(index: Index) -> set[Var]:
    return set().union(*(atom_vars(a) for a, _ in index.terms))


def lookup(table: Sequence[int], index: Index) -> Index:
    """`table[index]`, affine when the table is."""
    t = [int(v) for v in table]
    step = t[1] - t[0] if len(t) > 1 else 0
    if all(t[i] == t[0] + i * step for i in range(len(t))):
        return index * step + t[0]
    return Index.of(Lookup(index, tuple(t)))


def linear(indices: Sequence[Index | int], shape: Sequence[int]) -> Index:
    """Offset in elements of a C-contiguous array."""
    offset = Index(0)
    for i, n in zip(indices, shape):
        offset = offset * n + i
    return offset


def unravel(offset: Index, shape: Sequence[int]) -> list[Index]:
    """Splits an offset into indices, the inverse of `linear`."""
    out: list[Index] = []
    for k, n in enumerate(reversed(shape)):
        last = k == len(shape) - 1
        out.append(offset if last else offset % n)
        offset = offset // n
    return out[::-1]


class Buffer(Struct, eq=False):
    """Memory of a tensor. `role`: input, const, output, temp (workspace) or baked (constant inside the object)."""

    name: str
    dtype: str
    size: int
    role: str
    data: np.ndarray | None = None
    private: bool = False  # every thread has its own
    pinned: bool = False  # must stay in the workspace: kernels read a little behind its end

    @property
    def nbytes(self) -> int:
        return self.size * SIZES[self.dtype]


class Expr:
    """A scalar expression; `op` is its operation, `value` its non-operand payload."""

    __slots__ = ("args", "dtype", "op", "value")

    def __init__(self, op: str, args: tuple[Expr, ...], dtype: str, value: Any = None) -> None:
        self.op, self.args, self.dtype, self.value = op, args, dtype, value

    def _with(self, other: Expr | float) -> Expr:
        return other if isinstance(other, Expr) else const(other, self.dtype)

    def __add__(self, o: Expr | float) -> Expr:
        return Expr("add", (self, self._with(o)), self.dtype)

    def __radd__(self, o: float) -> Expr:
        return Expr("add", (self._with(o), self), self.dtype)

    def __sub__(self, o: Expr | float) -> Expr:
        return Expr("sub", (self, self._with(o)), self.dtype)

    def __rsub__(self, o: float) -> Expr:
        return Expr("sub", (self._with(o), self), self.dtype)

    def __mul__(self, o: Expr | float) -> Expr:
        return Expr("mul", (self, self._with(o)), self.dtype)

    __rmul__ = __mul__

    def __truediv__(self, o: Expr | float) -> Expr:
        return Expr("div", (self, self._with(o)), self.dtype)

    def __rtruediv__(self, o: float) -> Expr:
        return Expr("div", (self._with(o), self), self.dtype)

    def __neg__(self) -> Expr:
        return Expr("neg", (self,), self.dtype)

    def cmp(self, kind: str, o: Expr | float) -> Expr:
        return Expr("cmp", (self, self._with(o)), "b", kind)

    def __lt__(self, o: Expr | float) -> Expr:
        return self.cmp("lt", o)

    def __le__(self, o: Expr | float) -> Expr:
        return self.cmp("le", o)

    def __gt__(self, o: Expr | float) -> Expr:
        return self.cmp("gt", o)

    def __ge__(self, o: Expr | float) -> Expr:
        return self.cmp("ge", o)

    def eq(self, o: Expr | float) -> Expr:
        return self.cmp("eq", o)

    def ne(self, o: Expr | float) -> Expr:
        return self.cmp("ne", o)

    def __and__(self, o: Expr | int) -> Expr:
        return Expr("and", (self, self._with(o)), self.dtype)

    def __or__(self, o: Expr | int) -> Expr:
        return Expr("or", (self, self._with(o)), self.dtype)

    def __xor__(self, o: Expr | int) -> Expr:
        return Expr("xor", (self, self._with(o)), self.dtype)

    def shl(self, o: Expr | int) -> Expr:
        return Expr("shl", (self, self._with(o)), self.dtype)

    def shr(self, o: Expr | int) -> Expr:
        return Expr("shr", (self, self._with(o)), self.dtype)

    def to(self, dtype: str) -> Expr:
        if dtype == self.dtype:
            return self
        if self.op == "const" and not (self.dtype in FLOATS and dtype not in FLOATS):
            return const(self.value, dtype)
        return Expr("cast", (self,), dtype)

    def bits(self, dtype: str) -> Expr:
        return Expr("bitcast", (self,), dtype)


class Assignment(NamedTuple):
    """`buffer[offset] = body` over the whole domain of the loop variables."""

    variables: list[Var]
    body: Expr
    buffer: Buffer
    offset: Index


def const(value: Any, dtype: str) -> Expr:
    return Expr("const", (), dtype, value)


def load(buffer: Buffer, offset: Index) -> Expr:
    return Expr("load", (), buffer.dtype, (buffer, offset))


def index_value(index: Index) -> Expr:
    """An index as an i64 value."""
    return const(index.const, "i64") if index.is_const else Expr("index", (), "i64", index)


def select(condition: Expr, a: Expr, b: Expr | float) -> Expr:
    return Expr("select", (condition, a, a._with(b)), a.dtype)


def guard(condition: Expr, value: Expr, otherwise: Expr | float) -> Expr:
    """`value` where `condition`, else `otherwise`; elsewhere the loads of `value` are not executed."""
    return Expr("guard", (condition, value, value._with(otherwise)), value.dtype)


def call(name: str, *args: Expr) -> Expr:
    """Calls a function: sqrt floor ceil roundeven trunc fabs fma copysign, min max (NaN wins), abs for integers."""
    return Expr("call", args, args[0].dtype, name)


def minimum(a: Expr, b: Expr | float) -> Expr:
    return call("min", a, a._with(b))


def maximum(a: Expr, b: Expr | float) -> Expr:
    return call("max", a, a._with(b))


def fma(a: Expr, b: Expr | float, c: Expr | float) -> Expr:
    return call("fma", a, a._with(b), a._with(c))


def clamp(x: Expr, lo: Expr | float | None, hi: Expr | float | None) -> Expr:
    """Clamps so that NaN stays NaN."""
    if lo is not None:
        x = select(x < lo, x._with(lo), x)
    if hi is not None:
        x = select(x > hi, x._with(hi), x)
    return x


def reduce(kind: str, variables: Sequence[Var], body: Expr, init: Expr | float, strict: bool = False) -> Expr:
    """Folds `body` over `variables` (the last is innermost). kind: add mul min max and or. `strict` keeps the order."""
    return Expr("reduce", (body, body._with(init)), body.dtype, (kind, tuple(variables), strict))


def indices(expr: Expr) -> list[Index]:
    """Every `Index` in an expression."""
    return [i for e in walk(expr) for i in own_indices(e)]


def own_indices(e: Expr) -> list[Index]:
    if e.op == "load":
        return [e.value[1]]
    return [e.value] if e.op == "index" else []


def walk(expr: Expr) -> list[Expr]:
    """Every node of an expression once, also those inside dynamic indices."""
    seen: dict[int, Expr] = {}
    stack = [expr]
    while stack:
        e = stack.pop()
        if id(e) in seen:
            continue
        seen[id(e)] = e
        stack.extend(e.args)
        for i in own_indices(e):
            stack.extend(_dynamics(i))
        if e.op == "acc":
            for i in e.value[1]:
                stack.extend(_dynamics(i))
    return list(seen.values())


def _dynamics(index: Index) -> list[Expr]:
    out: list[Expr] = []
    for atom, _ in index.terms:
        if isinstance(atom, Dynamic):
            out.append(atom.expr)
        elif not isinstance(atom, Var):
            out += _dynamics(atom.index)
    return out
