"""One LLVM function: expressions and loops as IR text, over scalars or over vectors of neighbouring elements.

In vector mode (`Function.vector`) the same expressions are written for several elements of the innermost loop at
once; whatever does not depend on that loop stays scalar and is spread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler.cpu.expansions import expand
from compiler.cpu.expr import (
    FLOATS,
    SIZES,
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
from compiler.cpu.in_place import root
from compiler.cpu.llvm_types import literal, llvm_type, suffix
from compiler.cpu.loops import emit_reduce
from compiler.cpu.mathlib import scaled
from compiler.cpu.schedule import LoopSchedule
from compiler.cpu.small_types import INTEGERS

if TYPE_CHECKING:
    from compiler.cpu.module import Module


FAR_BYTES = 16 << 20  # inputs and results from this size on are walked through with prefetches
AHEAD = 2048  # bytes


class Function:
    """One LLVM function being written: straight-line operations, loops, branches."""

    def __init__(self, module: Module, schedule: LoopSchedule | None = None) -> None:
        self.module = module
        self.schedule = schedule or LoopSchedule()
        self.lines: list[str] = []
        self.allocas: list[str] = []
        self.params: dict[Buffer, str] = {}
        self.locals: dict[Buffer, str] = {}
        self.count = 0
        self.block = "entry"
        self.memo: dict[Any, str] = {}
        self.variables: dict[Var, str] = {}
        self.keep: list[Any] = []  # holds what `memo` identifies by id
        self.plain = False  # has loops over scalars that LLVM should vectorise
        self.lanes = 0  # in vector mode, how many elements at once
        self.lane: Var | None = None  # the loop whose neighbouring elements they are
        self.shared = False  # inside a loop that the threads share, or in work of one thread
        self.streaming = False  # vectors are stored past the caches
        self.streamed = False  # some were
        self.mask = ""  # which of them exist, empty for all
        self.scalars: dict[Any, str] = {}  # in vector mode, the memo of scalar values
        self.depends: dict[Expr, bool] = {}

    # Instructions.

    def op(self, text: str) -> str:
        self.count += 1
        self.lines.append(f"  %t{self.count} = {text}")
        return f"%t{self.count}"

    def do(self, text: str) -> None:
        self.lines.append("  " + text)

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self.block = name

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def alloca(self, type_: str, count: int = 1, align: int = 64) -> str:
        name = f"%{self.fresh('a')}"
        self.allocas.append(f"  {name} = alloca [{count} x {type_}], align {align}")
        return name

    def pointer(self, buffer: Buffer) -> str:
        if buffer.role == "baked":
            return self.module.baked(buffer)
        if buffer in self.locals:
            return self.locals[buffer]
        buffer = root(self.module.homes, buffer)
        if buffer not in self.params:
            name = self.params[buffer] = f"%p{len(self.params)}"
            if buffer.private and self.module.threads > 1:
                bytes_ = self.module.private_bytes(buffer)
                self.allocas.append(f"  {name}.at = mul i64 %part, {bytes_}")
                self.allocas.append(f"  {name}.own = getelementptr i8, ptr {name}, i64 {name}.at")
        return self.params[buffer] + (".own" if buffer.private and self.module.threads > 1 else "")

    def element(self, buffer: Buffer, offset: str) -> str:
        """Pointer to an element of a buffer."""
        return self.op(
            f"getelementptr inbounds {llvm_type(buffer.dtype, True)}, ptr {self.pointer(buffer)}, i64 {offset}"
        )

    def intrinsic(self, name: str, type_: str, *args: str, short: str | None = None) -> str:
        written_out = expand(self, name, type_, args)
        return written_out or self.op(self.module.intrinsic(name, type_, short or suffix(type_), args))

    # Vectors.

    @contextmanager
    def vector(self, lane: Var, lanes: int, mask: str = "") -> Iterator[None]:
        """Values are `lanes` elements from `lane`'s current value on; with a mask only some are read and written."""
        outside = self.memo, self.scalars, self.depends
        self.scalars, self.memo, self.depends = self.memo, {}, {}
        self.lane, self.lanes, self.mask = lane, lanes, mask
        yield
        self.memo, self.scalars, self.depends = outside
        self.lane, self.lanes, self.mask = None, 0, ""

    def type(self, dtype: str) -> str:
        """The type of a value: a vector in vector mode."""
        t = llvm_type(dtype)
        return f"<{self.lanes} x {t}>" if self.lanes else t

    def number(self, value: Any, dtype: str) -> str:
        """A constant of that type."""
        text = literal(value, dtype)
        return f"splat ({llvm_type(dtype)} {text})" if self.lanes else text

    def _varies(self, e: Expr) -> bool:
        """Its value depends on the lane."""
        if e not in self.depends:
            index = e.value[1] if e.op == "load" else e.value if e.op == "index" else None
            own = index is not None and self.lane in index_vars(index)
            self.depends[e] = own or any(self._varies(a) for a in e.args)
        return self.depends[e]

    @contextmanager
    def _scalar(self) -> Iterator[None]:
        """Back to scalars for what is the same in all lanes."""
        lanes, inside = self.lanes, self.memo
        self.lanes, self.memo = 0, self.scalars
        yield
        self.lanes, self.memo = lanes, inside

    def _spread(self, e: Expr) -> str:
        with self._scalar():
            v = self.value(e)
        return self.splat(v, llvm_type(e.dtype))

    def splat(self, v: str, type_: str) -> str:
        vec = f"<{self.lanes} x {type_}>"
        first = self.op(f"insertelement {vec} poison, {type_} {v}, i64 0")
        return self.op(f"shufflevector {vec} {first}, {vec} poison, <{self.lanes} x i32> zeroinitializer")

    def load_vector(self, buffer: Buffer, index: Index) -> str:
        t = f"<{self.lanes} x {llvm_type(buffer.dtype, True)}>"
        size, p = SIZES[buffer.dtype], self.element(buffer, self.index(index))
        if self.mask:
            full = self.module.declare(
                f"@llvm.masked.load.{suffix(t)}.p0",
                f"declare {t} @llvm.masked.load.{suffix(t)}.p0(ptr, i32, <{self.lanes} x i1>, {t})",
            )
            v = self.op(f"call {t} {full}(ptr {p}, i32 {size}, <{self.lanes} x i1> {self.mask}, {t} zeroinitializer)")
        else:
            v = self.op(f"load {t}, ptr {p}, align {size}")
            self._fetch_ahead(buffer, p, False)
        return self.op(f"icmp ne {t} {v}, zeroinitializer") if buffer.dtype == "b" else v

    def _fetch_ahead(self, buffer: Buffer, p: str, write: bool) -> None:
        """Asks for what a long walk through memory needs next: the processor's own guesses end at every page."""
        target = self.module.target
        if buffer.nbytes < FAR_BYTES or buffer.role not in ("input", "output") or not target.has_masks:
            return
        fetch = self.module.declare("@llvm.prefetch.p0", "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        ahead = self.op(f"getelementptr i8, ptr {p}, i64 {AHEAD}")
        self.do(f"call void {fetch}(ptr {ahead}, i32 {int(write)}, i32 3, i32 1)")

    def _store_vector(self, buffer: Buffer, offset: str, value: str) -> None:
        t = f"<{self.lanes} x {llvm_type(buffer.dtype, True)}>"
        if buffer.dtype == "b":
            value = self.op(f"zext <{self.lanes} x i1> {value} to {t}")
        size, p = SIZES[buffer.dtype], self.element(buffer, offset)
        if not self.mask:
            if not self.streaming:
                self._fetch_ahead(buffer, p, True)
            how = "align 64, !nontemporal !0" if self.streaming else f"align {size}"
            self.do(f"store {t} {value}, ptr {p}, {how}")
            return
        full = self.module.declare(
            f"@llvm.masked.store.{suffix(t)}.p0",
            f"declare void @llvm.masked.store.{suffix(t)}.p0({t}, ptr, i32, <{self.lanes} x i1>)",
        )
        self.do(f"call void {full}({t} {value}, ptr {p}, i32 {size}, <{self.lanes} x i1> {self.mask})")

    def _index_vector(self, index: Index) -> str:
        """An affine index as values, one per lane."""
        assert self.lane is not None
        steps = ", ".join(f"i64 {k * (index.coefficient(self.lane) or 0)}" for k in range(self.lanes))
        vec = f"<{self.lanes} x i64>"
        return self.op(f"add {vec} {self.splat(self.index(index), 'i64')}, <{steps}>")

    @contextmanager
    def loop(self, low: str | int, high: str | int, step: int = 1) -> Iterator[str]:
        """`for i in range(low, high, step)`; yields i."""
        n = self.fresh("L")
        before = self.block
        i, following, cond = f"%i{n}", f"%n{n}", f"%c{n}"
        self.do(f"br label %{n}.head")
        self.label(f"{n}.head")
        self.do(f"{i} = phi i64 [ {low}, %{before} ], [ {following}, %{n}.latch ]")
        self.do(f"{cond} = icmp slt i64 {i}, {high}")
        self.do(f"br i1 {cond}, label %{n}.body, label %{n}.exit")
        self.label(f"{n}.body")
        saved = dict(self.memo)
        yield i
        self.memo = saved
        self.do(f"br label %{n}.latch")
        self.label(f"{n}.latch")
        self.do(f"{following} = add nuw nsw i64 {i}, {step}")
        self.do(f"br label %{n}.head")
        self.label(f"{n}.exit")

    # Threads: every one runs the whole function; loops are divided among them, the rest is done by the first.

    @contextmanager
    def divided(self, extent: int, step: int = 1) -> Iterator[str]:
        """`loop(0, extent, step)` shared among the threads."""
        threads = self.module.threads
        if threads == 1 or self.shared:
            with self.loop(0, extent, step) as i:
                yield i
            return
        turns = -(-extent // step)
        ends = []
        for part in ("%part", self.op("add nuw nsw i64 %part, 1")):
            share = self.op(f"udiv i64 {self.op(f'mul nuw nsw i64 {part}, {turns}')}, {threads}")
            ends.append(self.op(f"mul nuw nsw i64 {share}, {step}"))
        self.shared = True
        with self.loop(ends[0], ends[1], step) as i:
            yield i
        self.shared = False

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Done by the first thread only, unless this is a thread's share already."""
        if self.module.threads == 1 or self.shared:
            yield
            return
        self.shared = True
        with self.when(self.op("icmp eq i64 %part, 0")):
            yield
        self.shared = False

    @contextmanager
    def everyone(self) -> Iterator[None]:
        """Done whole by every thread that comes here."""
        shared, self.shared = self.shared, True
        yield
        self.shared = shared

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        n = self.fresh("W")
        self.do(f"br i1 {condition}, label %{n}.then, label %{n}.end")
        self.label(f"{n}.then")
        saved = dict(self.memo)
        yield
        self.memo = saved
        self.do(f"br label %{n}.end")
        self.label(f"{n}.end")

    @contextmanager
    def loops(
        self, variables: Sequence[Var], bounds: dict[Var, str] | None = None, divide: Var | None = None
    ) -> Iterator[None]:
        """A loop nest; `bounds` gives run-time extents, the threads share the loop over `divide`."""
        if not variables:
            yield
            return
        v = variables[0]
        extent = (bounds or {}).get(v, v.extent)
        with self.divided(v.extent) if v is divide else self.loop(0, extent) as i:
            self.variables[v] = i
            with self.loops(variables[1:], bounds, divide):
                yield

    # Indices and values.

    def index(self, index: Index) -> str:
        """The index of the first lane."""
        if self.lanes:
            with self._scalar():
                return self.index(index)
        total: str | None = None
        key = lambda term: (self.atom_order(term[0]), term[1])
        for atom, c in sorted(index.terms, key=key):
            v = self.atom(atom)
            v = v if c == 1 else self.op(f"mul nsw i64 {v}, {c}")
            total = v if total is None else self.op(f"add nsw i64 {total}, {v}")
        if total is None:
            return str(index.const)
        return self.op(f"add nsw i64 {total}, {index.const}") if index.const else total

    def atom_order(self, atom: Any) -> tuple:
        """A deterministic order: loop-invariant parts first, so that they are hoisted as one sum."""
        if isinstance(atom, Var):
            return (0, atom.name)
        return (1, 0) if not isinstance(atom, Dynamic) else (2, 0)

    def atom(self, atom: Any) -> str:
        if isinstance(atom, Var):
            return self.variables[atom]
        if isinstance(atom, Dynamic):
            return self.value(atom.expr)
        i = self.index(atom.index)
        if isinstance(atom, Lookup):
            table = np.asarray(atom.table, np.int32)
            p = self.op(f"getelementptr inbounds i32, ptr {self.module.data(table)}, i64 {i}")
            return self.op(f"sext i32 {self.op(f'load i32, ptr {p}, align 4')} to i64")
        if atom.index.range()[0] < 0:
            # Floor division: C's division truncates, so shift the dividend to be non-negative.
            lift = -(atom.index.range()[0] // atom.divisor)
            i = self.op(f"add nsw i64 {i}, {lift * atom.divisor}")
        else:
            lift = 0
        if isinstance(atom, Remainder):
            return self.op(f"urem i64 {i}, {atom.divisor}")
        assert isinstance(atom, Quotient)
        q = self.op(f"udiv i64 {i}, {atom.divisor}")
        return self.op(f"sub nsw i64 {q}, {lift}") if lift else q

    def load(self, buffer: Buffer, offset: str, extra: str = "") -> str:
        size = SIZES[buffer.dtype]
        text = f"load {llvm_type(buffer.dtype, True)}, ptr {self.element(buffer, offset)}, align {size}{extra}"
        v = self.op(text)
        return self.op(f"icmp ne i8 {v}, 0") if buffer.dtype == "b" else v

    def store(self, buffer: Buffer, offset: str, value: str) -> None:
        if self.lanes:
            self._store_vector(buffer, offset, value)
            return
        if buffer.dtype == "b":
            value = self.op(f"zext i1 {value} to i8")
        p = self.element(buffer, offset)
        self.do(f"store {llvm_type(buffer.dtype, True)} {value}, ptr {p}, align {SIZES[buffer.dtype]}")

    def value(self, e: Expr) -> str:
        """Emits an expression, each shared node once."""
        if e.op == "const":
            return self.number(e.value, e.dtype)
        if e in self.memo:
            return self.memo[e]
        out = self._spread(e) if self.lanes and not self._varies(e) else self._emit(e)
        self.memo[e] = out
        return out

    def _emit(self, e: Expr) -> str:
        if self.lanes and e.op == "load":
            return self.load_vector(*e.value)
        if self.lanes and e.op == "index":
            return self._index_vector(e.value)
        if e.op == "load":
            return self.load(e.value[0], self.index(e.value[1]))
        if e.op == "index":
            return self.index(e.value)
        if e.op == "guard":
            return self._guard(e)
        if e.op == "reduce":
            return emit_reduce(self, e)
        a = [self.value(x) for x in e.args]
        kind = e.args[0].dtype
        if e.op == "fold":
            return self.fold(e.value[0], e.dtype, a[0], a[1], e.value[1])
        t = self.type(kind)
        floating, unsigned = kind in FLOATS, kind[0] == "u" or kind == "b"
        if e.op in ("add", "sub", "mul", "div"):
            name = f"f{e.op}" if floating else {"div": "udiv" if unsigned else "sdiv"}.get(e.op, e.op)
            return self.op(f"{name} {t} {a[0]}, {a[1]}")
        if e.op == "rem":
            return self.op(f"{'urem' if unsigned else 'srem'} {t} {a[0]}, {a[1]}")
        if e.op == "neg":
            return self.op(f"fneg {t} {a[0]}" if floating else f"sub {t} {self.number(0, kind)}, {a[0]}")
        if e.op in ("and", "or", "xor", "shl"):
            return self.op(f"{e.op} {t} {a[0]}, {a[1]}")
        if e.op == "shr":
            return self.op(f"{'lshr' if unsigned else 'ashr'} {t} {a[0]}, {a[1]}")
        if e.op == "cmp":
            if floating:
                return self.op(f"fcmp {'une' if e.value == 'ne' else 'o' + e.value} {t} {a[0]}, {a[1]}")
            sign = "" if e.value in ("eq", "ne") else "u" if unsigned else "s"
            return self.op(f"icmp {sign}{e.value} {t} {a[0]}, {a[1]}")
        if e.op == "select":
            t = self.type(e.dtype)
            return self.op(f"select {self.type('b')} {a[0]}, {t} {a[1]}, {t} {a[2]}")
        if e.op == "bitcast":
            return self.op(f"bitcast {t} {a[0]} to {self.type(e.dtype)}")
        if e.op == "cast":
            return self.cast(a[0], kind, e.dtype)
        if e.op == "call":
            name = e.value
            if name == "scale2":
                return self._scale(e, a)
            if name in ("min", "max"):
                name = f"{name}imum" if floating else f"{'u' if unsigned else 's'}{name}"
            if name == "abs":
                return self.intrinsic("abs", t, a[0], "i1 false")
            return self.intrinsic(name, t, *a)
        raise AssertionError(e.op)

    def _scale(self, e: Expr, a: list[str]) -> str:
        """a[0] * 2^a[1]."""
        bits = 8 * SIZES[e.dtype]
        if self.lanes * bits != 512 or not self.module.target.has_masks:
            return self.value(scaled(*e.args))
        t, mask = self.type(e.dtype), f"i{self.lanes}"
        name = f"@llvm.x86.avx512.mask.scalef.p{'s' if bits == 32 else 'd'}.512"
        self.module.declare(name, f"declare {t} {name}({t}, {t}, {t}, {mask}, i32)")
        return self.op(f"call {t} {name}({t} {a[0]}, {t} {a[1]}, {t} zeroinitializer, {mask} -1, i32 4)")

    def cast(self, v: str, source: str, to: str) -> str:
        s, t = self.type(source), self.type(to)
        if source in INTEGERS:
            return self._cast_from_nibble(v, source, to)
        if to in INTEGERS:
            return self.op(f"and i8 {self.cast(v, source, 'u8')}, {2 ** int(to[1:]) - 1}")
        if "bf16" in (source, to):
            return self._cast_bf16(v, source, to)
        if to == "b":
            zero = self.number(0, source)
            return self.op(f"fcmp une {s} {v}, {zero}" if source in FLOATS else f"icmp ne {s} {v}, {zero}")
        if {source, to} == {"f16", "f64"} or (source == "f16" and to not in FLOATS):
            return self.cast(self.cast(v, source, "f32"), "f32", to)  # the direct conversion is a library call
        if to == "f16" and source not in FLOATS:
            return self.cast(self.cast(v, source, "f32"), "f32", to)
        if source in FLOATS and to in FLOATS:
            return self.op(f"{'fpext' if SIZES[source] < SIZES[to] else 'fptrunc'} {s} {v} to {t}")
        if source in FLOATS:
            if to == "u64":
                return self.op(f"fptoui {s} {v} to {t}")
            wide = 32 if SIZES[to] < 4 or to == "i32" else 64  # as x86 does it: convert wide, then drop bits
            w = self.type(f"i{wide}")
            v = self.op(f"fptosi {s} {v} to {w}")
            return v if t == w else self.op(f"trunc {w} {v} to {t}")
        unsigned = source[0] == "u" or source == "b"
        if to in FLOATS:
            return self.op(f"{'ui' if unsigned else 'si'}tofp {s} {v} to {t}")
        if SIZES[to] == SIZES[source] and source != "b":
            return v
        if SIZES[to] < SIZES[source]:
            return self.op(f"trunc {s} {v} to {t}")
        return self.op(f"{'zext' if unsigned else 'sext'} {s} {v} to {t}")

    def _cast_from_nibble(self, v: str, source: str, to: str) -> str:
        """From an integer below a byte: its upper bits are zero."""
        if source[0] == "u":
            return self.cast(v, "u8", to) if to != "u8" else v
        free = 8 - int(source[1:])
        v = self.op(f"ashr i8 {self.op(f'shl i8 {v}, {free}')}, {free}")
        return self.cast(v, "i8", to) if to != "i8" else v

    def _cast_bf16(self, v: str, source: str, to: str) -> str:
        if source == "bf16":
            wide = self.op(f"zext i16 {v} to i32")
            f = self.op(f"bitcast i32 {self.op(f'shl i32 {wide}, 16')} to float")
            return f if to == "f32" else self.cast(f, "f32", to)
        f = v if source == "f32" else self.cast(v, source, "f32")
        bits = self.op(f"bitcast float {f} to i32")
        odd = self.op(f"and i32 {self.op(f'lshr i32 {bits}, 16')}, 1")
        rounded = self.op(f"add i32 {self.op(f'add i32 {bits}, 32767')}, {odd}")
        quiet = self.op(f"or i32 {bits}, 4194304")
        nan = self.op(f"fcmp uno float {f}, {f}")
        bits = self.op(f"select i1 {nan}, i32 {quiet}, i32 {rounded}")
        return self.op(f"trunc i32 {self.op(f'lshr i32 {bits}, 16')} to i16")

    def _guard(self, e: Expr) -> str:
        condition, otherwise = self.value(e.args[0]), self.value(e.args[2])
        n = self.fresh("G")
        before = self.block
        self.do(f"br i1 {condition}, label %{n}.then, label %{n}.end")
        self.label(f"{n}.then")
        saved = dict(self.memo)
        v = self.value(e.args[1])
        self.memo = saved
        last = self.block
        self.do(f"br label %{n}.end")
        self.label(f"{n}.end")
        return self.op(f"phi {llvm_type(e.dtype)} [ {v}, %{last} ], [ {otherwise}, %{before} ]")

    def fold(self, kind: str, dtype: str, a: str, b: str, strict: bool) -> str:
        """One step of a reduction. `top` is a maximum that passes over NaN."""
        t = self.type(dtype)
        if kind == "top":
            more = self.op(f"fcmp ogt {t} {b}, {a}")
            return self.op(f"select {self.type('b')} {more}, {t} {b}, {t} {a}")
        if kind in ("min", "max"):
            unsigned = dtype[0] == "u"
            return self.intrinsic(f"{kind}imum" if dtype in FLOATS else f"{'u' if unsigned else 's'}{kind}", t, a, b)
        if dtype in FLOATS:
            return self.op(f"f{kind} {'' if strict else 'reassoc nsz contract '}{t} {a}, {b}")
        return self.op(f"{kind} {t} {a}, {b}")

    def across(self, kind: str, dtype: str, v: str, lanes: int) -> str:
        """Folds the lanes of a vector, halves first."""
        t = llvm_type(dtype)
        while lanes > 1:
            half = lanes // 2
            parts = []
            for first in (0, half):
                picks = ", ".join(f"i32 {first + k}" for k in range(half))
                vec = f"<{lanes} x {t}>"
                parts.append(self.op(f"shufflevector {vec} {v}, {vec} poison, <{half} x i32> <{picks}>"))
            self.lanes = lanes = half
            v = self.fold(kind, dtype, parts[0], parts[1], False)
        self.lanes = 0
        return self.op(f"extractelement <1 x {t}> {v}, i64 0")

    def text(self, name: str) -> str:
        """The finished definition."""
        names = [f"ptr noalias {p}" for p in self.params.values()]
        params = ", ".join([*names, "i64 %part"] if self.module.threads > 1 else names)
        lines = [*self.allocas, *self.lines]
        if self.streamed and self.module.target.triple.startswith("x86"):  # for other threads to see it
            fence = self.module.declare("@llvm.x86.sse.sfence", "declare void @llvm.x86.sse.sfence()")
            lines.append(f"  call void {fence}()")
        body = "\n".join(["entry:", *lines, "  ret void"])
        return f"define hidden void @{name}({params}) #0 {{\n{body}\n}}\n"
