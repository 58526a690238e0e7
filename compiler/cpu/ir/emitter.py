"""`Emitter`: a `Writer` that also writes expressions and accesses to buffers, over scalars or over vectors.

In vector mode (`Emitter.vector`) the same expressions are written for several neighbouring elements of the innermost
loop at once; values that do not depend on that loop stay scalar and are broadcast.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tilewright.compiler.cpu.expr import (
    FLOATS,
    SIZES,
    Atom,
    Buffer,
    Dynamic,
    Expr,
    Index,
    Lookup,
    Quotient,
    Remainder,
    Var,
    index_vars,
)
from tilewright.compiler.cpu.expr.mathlib import scaled
from tilewright.compiler.cpu.ir.casts import cast, constant
from tilewright.compiler.cpu.ir.expansions import expand
from tilewright.compiler.cpu.ir.module import Module
from tilewright.compiler.cpu.ir.threads import COUNTERS, PART, Sharing, private_bytes
from tilewright.compiler.cpu.ir.types import llvm_type, suffix, vector
from tilewright.compiler.cpu.ir.writer import Number, Operand, Writer, i64, pointer_to

FAR_BYTES = 16 << 20  # inputs and results from this size on are walked through with prefetches
AHEAD = 2048  # bytes
_INT_OPS = {"div": "sdiv", "rem": "srem", "shr": "ashr"}
_UNSIGNED_OPS = {"div": "udiv", "rem": "urem", "shr": "lshr"}


class Emitter(Writer):
    """One LLVM function of expressions over buffers, which are its parameters.

    Args:
        module: receives the declarations and tables that the function uses.
        homes: buffers that lie in the memory of others.

    Attributes:
        params: the buffers used so far, by the names of the parameters.
        locals: memory of the function's private buffers.
        variables: current values of the loop variables.
        memo: names of the values of expressions.
        sharing: division of the work among threads.
        streaming: vectors are stored past the caches.
        streamed: True if some vectors were stored so.
        mask: the lanes that exist, None for all.
    """

    def __init__(self, module: Module, homes: Mapping[Buffer, Buffer] | None = None) -> None:
        super().__init__(module)
        self.homes = homes or {}
        self.params: dict[Buffer, str] = {}
        self.locals: dict[Buffer, Operand] = {}
        self.variables: dict[Var, Operand] = {}
        self.memo: dict[Expr, Operand] = {}
        self.sharing = Sharing(self)
        self.streaming = False
        self.streamed = False
        self.mask: Operand | None = None
        self._lanes = 0  # in vector mode, how many elements at once
        self._lane: Var | None = None  # the loop whose neighbouring elements they are
        self._scalars: dict[Expr, Operand] = {}  # in vector mode, the memo of scalar values
        self._depends: dict[Expr, bool] = {}

    def reduction(self, e: Expr) -> Operand:
        """The value of a `reduce`, which needs loops."""
        raise NotImplementedError

    # Buffers.

    def pointer(self, buffer: Buffer) -> Operand:
        """The pointer to a buffer's first element."""
        if buffer.role == "baked":
            assert buffer.data is not None
            return pointer_to(self.module.data(buffer.data))
        if buffer in self.locals:
            return self.locals[buffer]
        buffer = self.homes.get(buffer, buffer)
        several = buffer.private and self.module.threads > 1
        if buffer not in self.params:
            name = self.params[buffer] = f"%p{len(self.params)}"
            if several:
                self.allocas.append(f"  {name}.at = mul i64 {PART}, {private_bytes(buffer)}")
                self.allocas.append(f"  {name}.own = getelementptr i8, ptr {name}, i64 {name}.at")
        return pointer_to(self.params[buffer] + (".own" if several else ""))

    def element(self, buffer: Buffer, offset: Number) -> Operand:
        """The pointer to an element of a buffer."""
        return self.at(llvm_type(buffer.dtype, True), self.pointer(buffer), offset, flags="inbounds")

    def read(self, buffer: Buffer, offset: Number) -> Operand:
        """Loads an element of a buffer."""
        v = self.load(llvm_type(buffer.dtype, True), self.element(buffer, offset), SIZES[buffer.dtype])
        return self.icmp("ne", v, 0) if buffer.dtype == "b" else v

    def write(self, buffer: Buffer, offset: Number, value: Operand) -> None:
        """Stores an element; in vector mode, its neighbours too."""
        if self._lanes:
            self._write_vector(buffer, offset, value)
            return
        if buffer.dtype == "b":
            value = self.convert("zext", value, "i8")
        self.store(value, self.element(buffer, offset), SIZES[buffer.dtype])

    # Vectors.

    @contextmanager
    def vector(self, lane: Var, lanes: int, mask: Operand | None = None) -> Iterator[None]:
        """Switches to vector mode: values are `lanes` elements from `lane`'s current value on; with a mask only some
        are read and written.
        """
        outside = self.memo, self._scalars, self._depends
        self._scalars, self.memo, self._depends = self.memo, {}, {}
        self._lane, self._lanes, self.mask = lane, lanes, mask
        yield
        self.memo, self._scalars, self._depends = outside
        self._lane, self._lanes, self.mask = None, 0, None

    def number(self, value: Any, dtype: str) -> Operand:
        """A constant; in vector mode in all lanes."""
        return constant(value, dtype, self._lanes)

    def _varies(self, e: Expr) -> bool:
        """True if the value depends on the lane."""
        if e not in self._depends:
            index = e.value[1] if e.op == "load" else e.value if e.op == "index" else None
            own = index is not None and self._lane in index_vars(index)
            self._depends[e] = own or any(self._varies(a) for a in e.args)
        return self._depends[e]

    @contextmanager
    def _scalar(self) -> Iterator[None]:
        """Switches back to scalars for values that are the same in all lanes."""
        lanes, inside = self._lanes, self.memo
        self._lanes, self.memo = 0, self._scalars
        yield
        self._lanes, self.memo = lanes, inside

    def _spread(self, e: Expr) -> Operand:
        with self._scalar():
            v = self.value(e)
        return self.splat(v, self._lanes)

    def read_vector(self, buffer: Buffer, index: Index) -> Operand:
        """The elements from an index on, one per lane."""
        t = vector(llvm_type(buffer.dtype, True), self._lanes)
        size, p = SIZES[buffer.dtype], self.element(buffer, self.index(index))
        if self.mask is not None:
            full = self.declared(f"@llvm.masked.load.{suffix(t)}.p0", t, "ptr", "i32", self.mask.type, t)
            v = self.call(full, t, [p, Operand(str(size), "i32"), self.mask, Operand("zeroinitializer", t)])
        else:
            v = self.load(t, p, size)
            self._fetch_ahead(buffer, p, False)
        return self.icmp("ne", v, Operand("zeroinitializer", t)) if buffer.dtype == "b" else v

    def _fetch_ahead(self, buffer: Buffer, p: Operand, write: bool) -> None:
        """Prefetches the next data of a long walk through memory: the processor's own guesses end at every page."""
        target = self.module.target
        if buffer.nbytes < FAR_BYTES or buffer.role not in ("input", "output") or not target.has_masks:
            return
        fetch = self.declared("@llvm.prefetch.p0", "void", "ptr", "i32", "i32", "i32")
        self.run(fetch, [self.at("i8", p, AHEAD), *(Operand(str(k), "i32") for k in (int(write), 3, 1))])

    def _write_vector(self, buffer: Buffer, offset: Number, value: Operand) -> None:
        t = vector(llvm_type(buffer.dtype, True), self._lanes)
        if buffer.dtype == "b":
            value = self.convert("zext", value, t)
        size, p = SIZES[buffer.dtype], self.element(buffer, offset)
        if self.mask is not None:
            full = self.declared(f"@llvm.masked.store.{suffix(t)}.p0", "void", t, "ptr", "i32", self.mask.type)
            self.run(full, [value, p, Operand(str(size), "i32"), self.mask])
        elif self.streaming:
            self.do(f"store {t} {value}, ptr {p}, align 64, !nontemporal !0")
        else:
            self._fetch_ahead(buffer, p, True)
            self.store(value, p, size)

    def _index_vector(self, index: Index) -> Operand:
        """The values of an affine index, one per lane."""
        assert self._lane is not None
        steps = ", ".join(f"i64 {k * (index.coefficient(self._lane) or 0)}" for k in range(self._lanes))
        first = self.splat(self.index(index), self._lanes)
        return self.add(first, Operand(f"<{steps}>", first.type), "")

    # Loops.

    @contextmanager
    def scope(self) -> Iterator[None]:
        saved = dict(self.memo)
        yield
        self.memo = saved

    @contextmanager
    def loops(
        self, variables: Sequence[Var], bounds: Mapping[Var, Number] | None = None, divide: Var | None = None
    ) -> Iterator[None]:
        """A loop nest; `bounds` gives run-time extents; threads share the loop over `divide`, which is outermost."""
        if not variables:
            yield
            return
        v = divide if divide is not None else variables[0]
        variables = [v, *(other for other in variables if other is not v)]
        extent = (bounds or {}).get(v, v.extent)
        with self.sharing.divided(v.extent) if v is divide else self.loop(0, extent) as i:
            self.variables[v] = i
            with self.loops(variables[1:], bounds):
                yield

    # Indices and values.

    def index(self, index: Index) -> Operand:
        """The index of the first lane."""
        if self._lanes:
            with self._scalar():
                return self.index(index)
        total: Operand | None = None
        for atom, c in sorted(index.terms, key=lambda term: (_order(term[0]), term[1])):
            v = self._atom(atom)
            v = v if c == 1 else self.mul(v, c)
            total = v if total is None else self.add(total, v)
        if total is None:
            return i64(index.const)
        return self.add(total, index.const) if index.const else total

    def _atom(self, atom: Atom) -> Operand:
        if isinstance(atom, Var):
            return self.variables[atom]
        if isinstance(atom, Dynamic):
            return self.value(atom.expr)
        i = self.index(atom.index)
        if isinstance(atom, Lookup):
            table = pointer_to(self.module.data(np.asarray(atom.table, np.int32)))
            return self.convert("sext", self.load("i32", self.at("i32", table, i, flags="inbounds"), 4), "i64")
        lowest, lift = atom.index.range()[0], 0
        if lowest < 0:
            # Floor division: C's division truncates, so shift the dividend to be non-negative.
            lift = -(lowest // atom.divisor)
            i = self.add(i, lift * atom.divisor)
        if isinstance(atom, Remainder):
            return self.urem(i, atom.divisor)
        assert isinstance(atom, Quotient)
        q = self.udiv(i, atom.divisor)
        return self.sub(q, lift) if lift else q

    def value(self, e: Expr) -> Operand:
        """Writes an expression, each shared node once."""
        if e.op == "const":
            return self.number(e.value, e.dtype)
        if e in self.memo:
            return self.memo[e]
        out = self._spread(e) if self._lanes and not self._varies(e) else self._write_expression(e)
        self.memo[e] = out
        return out

    def _write_expression(self, e: Expr) -> Operand:
        if e.op == "load":
            return self.read_vector(*e.value) if self._lanes else self.read(e.value[0], self.index(e.value[1]))
        if e.op == "index":
            return self._index_vector(e.value) if self._lanes else self.index(e.value)
        if e.op == "guard":
            return self._guard(e)
        if e.op == "reduce":
            return self.reduction(e)
        a = [self.value(x) for x in e.args]
        kind = e.args[0].dtype
        if e.op == "fold":
            return self.fold(e.value[0], e.dtype, a[0], a[1], e.value[1])
        floating, unsigned = kind in FLOATS, kind[0] == "u" or kind == "b"
        if e.op in ("add", "sub", "mul", "div") and floating:
            return self.binary(f"f{e.op}", a[0], a[1])
        if e.op in ("add", "sub", "mul", "div", "rem", "and", "or", "xor", "shl", "shr"):
            return self.binary((_UNSIGNED_OPS if unsigned else _INT_OPS).get(e.op, e.op), a[0], a[1])
        if e.op == "neg":
            return self.fneg(a[0]) if floating else self.sub(self.number(0, kind), a[0], "")
        if e.op == "cmp":
            if floating:
                return self.fcmp("une" if e.value == "ne" else f"o{e.value}", a[0], a[1])
            sign = "" if e.value in ("eq", "ne") else "u" if unsigned else "s"
            return self.icmp(f"{sign}{e.value}", a[0], a[1])
        if e.op == "select":
            return self.select(a[0], a[1], a[2])
        if e.op == "bitcast":
            return self.convert("bitcast", a[0], vector(llvm_type(e.dtype), self._lanes))
        if e.op == "cast":
            return cast(self, a[0], kind, e.dtype)
        if e.op == "call":
            return self._call(e, a)
        raise AssertionError(e.op)

    def _call(self, e: Expr, a: list[Operand]) -> Operand:
        name, kind = e.value, e.args[0].dtype
        if name == "scale2":
            return self._scale(e, a)
        if name in ("min", "max"):
            sign = "u" if kind[0] == "u" or kind == "b" else "s"
            name = f"{name}imum" if kind in FLOATS else f"{sign}{name}"
        if name == "abs":
            return self.intrinsic("abs", a[0], Operand("false", "i1"))
        return self.intrinsic(name, *a)

    def intrinsic(self, name: str, *args: Number) -> Operand:
        given = [a for a in args if isinstance(a, Operand)]
        written_out = expand(self, name, *given) if len(given) == len(args) else None
        return written_out or super().intrinsic(name, *args)

    def _scale(self, e: Expr, a: list[Operand]) -> Operand:
        """The value of a[0] * 2^a[1]."""
        bits = 8 * SIZES[e.dtype]
        if self._lanes * bits != 512 or not self.module.target.has_masks:
            return self.value(scaled(*e.args))
        t, mask = a[0].type, f"i{self._lanes}"
        name = f"@llvm.x86.avx512.mask.scalef.p{'s' if bits == 32 else 'd'}.512"
        self.declared(name, t, t, t, t, mask, "i32")
        zero, every, current = Operand("zeroinitializer", t), Operand("-1", mask), Operand("4", "i32")
        return self.call(name, t, [a[0], a[1], zero, every, current])

    def _guard(self, e: Expr) -> Operand:
        condition, otherwise = self.value(e.args[0]), self.value(e.args[2])
        n = self.fresh("G")
        before = self.block
        self.branch(condition, f"{n}.then", f"{n}.end")
        self.label(f"{n}.then")
        with self.scope():
            v = self.value(e.args[1])
        last = self.block
        self.jump(f"{n}.end")
        self.label(f"{n}.end")
        return self.phi(llvm_type(e.dtype), [(v, last), (otherwise, before)])

    def fold(self, kind: str, dtype: str, a: Operand, b: Operand, strict: bool) -> Operand:
        """Writes one step of a reduction. `top` is a maximum that passes over NaN."""
        if kind == "top":
            return self.select(self.fcmp("ogt", b, a), b, a)
        if kind in ("min", "max"):
            sign = "u" if dtype[0] == "u" else "s"
            return self.intrinsic(f"{kind}imum" if dtype in FLOATS else f"{sign}{kind}", a, b)
        if dtype in FLOATS:
            return self.binary(f"f{kind}", a, b, "" if strict else "reassoc nsz contract")
        return self.binary(kind, a, b)

    def across(self, kind: str, dtype: str, v: Operand, lanes: int) -> Operand:
        """Folds the lanes of a vector, halves first."""
        while lanes > 1:
            half = lanes // 2
            parts = [self.shuffle(v, None, range(first, first + half)) for first in (0, half)]
            v, lanes = self.fold(kind, dtype, parts[0], parts[1], False), half
        return self.first_of(v)

    def definition(self, name: str) -> str:
        """The text of the finished function; the buffers are its parameters, in the order of `params`."""
        if self.streamed and self.module.target.triple.startswith("x86"):  # for other threads to see it
            fence = self.declared("@llvm.x86.sse.sfence", "void")
            self.run(fence, [])
            self.streamed = False
        names = [f"ptr noalias {p}" for p in self.params.values()]
        self.sharing.finish()
        more = [f"i64 {PART}", f"ptr noalias {COUNTERS}"] if self.module.threads > 1 else []
        parameters = ", ".join([*names, *more])
        return self.text(f"hidden void @{name}({parameters}) #0")


def _order(atom: Atom) -> tuple[int, int]:
    """A deterministic sort key: loop-invariant parts first, so that they are hoisted as one sum."""
    if isinstance(atom, Var):
        return (0, atom.name)
    return (1, 0) if not isinstance(atom, Dynamic) else (2, 0)
