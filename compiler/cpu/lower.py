"""Expressions and loop nests to LLVM IR text, and IR to object code.

The IR is plain loops over scalars: LLVM's loop vectoriser makes them 512 bit wide, because every pointer is
`noalias` and every stride is a constant. Functions are named by the hash of their text and compiled one by one, so
equal kernels, of one segment or of many, are compiled once; `elf.join` makes one object of a segment's functions.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import numpy as np

from compiler.cpu import cache, elf
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
    Rewriter,
    Var,
    indices,
    load,
    merge,
    walk,
)
from compiler.cpu.small_types import INTEGERS, NUMPY, code_of
from compiler.cpu.target import Target

_TYPES = {"f16": "half", "bf16": "i16", "f32": "float", "f64": "double", "b": "i1", **dict.fromkeys(NUMPY, "i8")}
PIPELINES = {
    True: "O3 with SLP",
    False: "O2 without SLP",
}  # part of the cache's key; by whether a kernel is plain loops
_REFERENCE = re.compile(r"@[\w.]+")
ACC_TILE = 256  # elements of an in-cache accumulator row


def llvm_type(dtype: str, memory: bool = False) -> str:
    if memory and dtype == "b":
        return "i8"
    return _TYPES.get(dtype) or f"i{dtype[1:]}"


def literal(value: Any, dtype: str) -> str:
    """A constant in IR syntax; floats by their exact bits."""
    if dtype in ("f32", "f64"):
        with np.errstate(over="ignore"):
            wide = float(np.float32(value)) if dtype == "f32" else float(value)
        return f"0x{struct.unpack('<Q', struct.pack('<d', wide))[0]:016X}"
    if dtype == "f16":
        return f"0xH{np.float16(value).view(np.uint16):04X}"
    if dtype == "bf16":
        bits = int(np.float32(value).view(np.uint32))
        return str(((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) & 0xFFFF)
    if dtype == "b":
        return "true" if value else "false"
    if dtype in NUMPY:
        return str(code_of(value, dtype))
    bits = 8 * SIZES[dtype]
    v = int(value) & (2**bits - 1)
    return str(v - 2**bits if v >> (bits - 1) else v)


class Function:
    """One LLVM function being written: straight-line operations, loops, branches."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.lines: list[str] = []
        self.allocas: list[str] = []
        self.params: dict[Buffer, str] = {}
        self.locals: dict[Buffer, str] = {}
        self.count = 0
        self.block = "entry"
        self.memo: dict[Any, str] = {}
        self.variables: dict[Var, str] = {}
        self.keep: list[Any] = []  # holds what `memo` identifies by id

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
        return self.params.setdefault(buffer, f"%p{len(self.params)}")

    def element(self, buffer: Buffer, offset: str) -> str:
        """Pointer to an element of a buffer."""
        return self.op(
            f"getelementptr inbounds {llvm_type(buffer.dtype, True)}, ptr {self.pointer(buffer)}, i64 {offset}"
        )

    def intrinsic(self, name: str, type_: str, *args: str, suffix: str | None = None) -> str:
        written_out = expand(self, name, type_, args)
        return written_out or self.op(self.module.intrinsic(name, type_, suffix or _suffix(type_), args))

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
    def loops(self, variables: Sequence[Var], bounds: dict[Var, str] | None = None) -> Iterator[None]:
        """A loop nest; `bounds` gives run-time extents."""
        if not variables:
            yield
            return
        v = variables[0]
        with self.loop(0, (bounds or {}).get(v, v.extent)) as i:
            self.variables[v] = i
            with self.loops(variables[1:], bounds):
                yield

    # Indices and values.

    def index(self, index: Index) -> str:
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
        if buffer.dtype == "b":
            value = self.op(f"zext i1 {value} to i8")
        p = self.element(buffer, offset)
        self.do(f"store {llvm_type(buffer.dtype, True)} {value}, ptr {p}, align {SIZES[buffer.dtype]}")

    def value(self, e: Expr) -> str:
        """Emits an expression, each shared node once."""
        if e.op == "const":
            return literal(e.value, e.dtype)
        if e in self.memo:
            return self.memo[e]
        out = self._emit(e)
        self.memo[e] = out
        return out

    def _emit(self, e: Expr) -> str:
        if e.op == "load":
            return self.load(e.value[0], self.index(e.value[1]))
        if e.op == "index":
            return self.index(e.value)
        if e.op == "guard":
            return self._guard(e)
        if e.op == "reduce":
            return self._reduce(e)
        a = [self.value(x) for x in e.args]
        kind = e.args[0].dtype
        t = llvm_type(kind)
        floating, unsigned = kind in FLOATS, kind[0] == "u" or kind == "b"
        if e.op in ("add", "sub", "mul", "div"):
            name = f"f{e.op}" if floating else {"div": "udiv" if unsigned else "sdiv"}.get(e.op, e.op)
            return self.op(f"{name} {t} {a[0]}, {a[1]}")
        if e.op == "rem":
            return self.op(f"{'urem' if unsigned else 'srem'} {t} {a[0]}, {a[1]}")
        if e.op == "neg":
            return self.op(f"fneg {t} {a[0]}" if floating else f"sub {t} 0, {a[0]}")
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
            t = llvm_type(e.dtype)
            return self.op(f"select i1 {a[0]}, {t} {a[1]}, {t} {a[2]}")
        if e.op == "bitcast":
            return self.op(f"bitcast {t} {a[0]} to {llvm_type(e.dtype)}")
        if e.op == "cast":
            return self.cast(a[0], kind, e.dtype)
        if e.op == "call":
            name = e.value
            if name in ("min", "max"):
                name = f"{name}imum" if floating else f"{'u' if unsigned else 's'}{name}"
            if name == "abs":
                return self.intrinsic("abs", t, a[0], "i1 false")
            return self.intrinsic(name, t, *a)
        raise AssertionError(e.op)

    def cast(self, v: str, source: str, to: str) -> str:
        s, t = llvm_type(source), llvm_type(to)
        if source in INTEGERS:
            return self._cast_from_nibble(v, source, to)
        if to in INTEGERS:
            return self.op(f"and i8 {self.cast(v, source, 'u8')}, {2 ** int(to[1:]) - 1}")
        if "bf16" in (source, to):
            return self._cast_bf16(v, source, to)
        if to == "b":
            return self.op(f"fcmp une {s} {v}, {literal(0, source)}" if source in FLOATS else f"icmp ne {s} {v}, 0")
        if {source, to} == {"f16", "f64"} or (source == "f16" and to not in FLOATS):
            return self.cast(self.cast(v, source, "f32"), "f32", to)  # the direct conversion is a library call
        if to == "f16" and source not in FLOATS:
            return self.cast(self.cast(v, source, "f32"), "f32", to)
        if source in FLOATS and to in FLOATS:
            return self.op(f"{'fpext' if SIZES[source] < SIZES[to] else 'fptrunc'} {s} {v} to {t}")
        if source in FLOATS:
            if to == "u64":
                return self.op(f"fptoui {s} {v} to i64")
            wide = 32 if SIZES[to] < 4 or to == "i32" else 64  # as x86 does it: convert wide, then drop bits
            v = self.op(f"fptosi {s} {v} to i{wide}")
            return v if t == f"i{wide}" else self.op(f"trunc i{wide} {v} to {t}")
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
        t = llvm_type(dtype)
        if kind in ("min", "max"):
            unsigned = dtype[0] == "u"
            return self.intrinsic(f"{kind}imum" if dtype in FLOATS else f"{'u' if unsigned else 's'}{kind}", t, a, b)
        if dtype in FLOATS:
            return self.op(f"f{kind} {'' if strict else 'reassoc nsz contract '}{t} {a}, {b}")
        return self.op(f"{kind} {t} {a}, {b}")

    def _reduce(self, e: Expr) -> str:
        kind, variables, strict = e.value
        t = llvm_type(e.dtype)
        slot = self.alloca(t, 1, 8)
        self.do(f"store {t} {self.value(e.args[1])}, ptr {slot}")
        saved = dict(self.memo)
        with self.loops(variables):
            v = self.value(e.args[0])
            old = self.op(f"load {t}, ptr {slot}")
            self.do(f"store {t} {self.fold(kind, e.dtype, old, v, strict)}, ptr {slot}")
        self.memo = saved
        return self.op(f"load {t}, ptr {slot}")

    def text(self, name: str) -> str:
        """The finished definition."""
        params = ", ".join(f"ptr noalias {p}" for p in self.params.values())
        body = "\n".join(["entry:", *self.allocas, *self.lines, "  ret void"])
        return f"define hidden void @{name}({params}) #0 {{\n{body}\n}}\n"


def emit_assign(f: Function, variables: list[Var], body: Expr, buffer: Buffer, offset: Index) -> None:
    """`buffer[offset] = body` over a rectangular domain."""
    if any(v.extent == 0 for v in variables):
        return
    variables, (body,), offset = merge(variables, [body], offset)
    folds = [e for e in walk(body) if e.op == "reduce"]
    if len(folds) == 1 and variables and _column_wise(folds[0], variables[-1]):
        _assign_by_rows(f, variables, body, folds[0], buffer, offset)
        return
    with f.loops(variables):
        f.store(buffer, f.index(offset), f.value(body))


def _column_wise(fold: Expr, inner: Var) -> bool:
    """The loop variable, not the reduction's, walks memory contiguously."""
    last = fold.value[1][-1]
    reads = list(indices(fold.args[0]))
    if inner.extent < 4 or any(inner in i.terms for i in reads):
        return False
    along = [i.coefficient(inner) for i in reads]
    return any(c is not None and 0 < abs(c) <= 4 for c in along) and not any(i.coefficient(last) == 1 for i in reads)


def _assign_by_rows(f: Function, variables: list[Var], body: Expr, fold: Expr, buffer: Buffer, offset: Index) -> None:
    """Keeps a row of accumulators, so that the vectorised loop is the contiguous one."""
    kind, over, strict = fold.value
    inner, outer = variables[-1], variables[:-1]
    width = min(inner.extent, ACC_TILE)
    acc = Buffer("acc", fold.dtype, width, "local")
    f.locals[acc] = f.alloca(llvm_type(fold.dtype, True), width)
    start, j = Var.new(inner.extent), Var.new(width)
    moved = Rewriter({inner: Index.of(start) + Index.of(j)})
    inside, init = moved(fold.args[0]), moved(fold.args[1])
    here = load(acc, Index.of(j))
    after = Rewriter(moved.variables, lambda e: here if e is fold else None)(body)
    with f.loops(outer), f.loop(0, inner.extent, width) as s:
        f.variables[start] = s
        left = f.op(f"sub nsw i64 {inner.extent}, {s}")
        n = f.intrinsic("smin", "i64", left, str(width)) if inner.extent % width else str(width)
        with f.loops([j], {j: n}):
            f.store(acc, f.index(Index.of(j)), f.value(init))
        with f.loops([*over, j], {j: n}):
            old = f.load(acc, f.variables[j])
            f.store(acc, f.variables[j], f.fold(kind, fold.dtype, old, f.value(inside), strict))
        with f.loops([j], {j: n}):
            f.store(buffer, f.index(moved.index(offset)), f.value(after))


def _suffix(type_: str) -> str:
    return {"float": "f32", "double": "f64", "half": "f16"}.get(type_, type_)


class Module:
    """All functions of one segment, then its object code."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.declarations: dict[str, str] = {}
        self.globals: dict[str, str] = {}
        self.functions: dict[str, str] = {}  # by name with @

    def intrinsic(self, name: str, type_: str, suffix: str, args: Sequence[str]) -> str:
        typed = [a if " " in a else f"{type_} {a}" for a in args]
        full = f"@llvm.{name}.{suffix}"
        self.declarations[full] = f"declare {type_} {full}({', '.join(t.split(' ')[0] for t in typed)})"
        return f"call {type_} {full}({', '.join(typed)})"

    def declare(self, name: str, text: str) -> str:
        self.declarations[name] = text
        return name

    def data(self, array: np.ndarray) -> str:
        """A constant array inside the object; equal ones are shared."""
        raw = np.ascontiguousarray(array).tobytes()
        name = f"@d{hashlib.sha256(raw).hexdigest()[:20]}"
        if name not in self.globals:
            text = "".join(f"\\{b:02X}" for b in raw)
            self.globals[name] = f'{name} = internal constant [{len(raw)} x i8] c"{text}", align 64'
        return name

    def baked(self, buffer: Buffer) -> str:
        assert buffer.data is not None
        return self.data(buffer.data)

    def define(self, function: Function, stem: str = "k") -> str:
        """Adds a finished function, or finds the equal one; returns its name."""
        return self.define_text(function.text("NAME"), stem)

    def define_text(self, text: str, stem: str) -> str:
        """As `define`, for a function written out whole with the name NAME."""
        name = f"{stem}_{hashlib.sha256(text.encode()).hexdigest()[:24]}"
        self.functions[f"@{name}"] = text.replace("@NAME(", f"@{name}(", 1)
        return name

    def unit(self, definition: str) -> str:
        """The module of one function: what it calls is declared, the tables it uses are part of it."""
        bits = self.target.vector_bits
        wide = f'"prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}"' if bits > 128 else ""
        used = list(dict.fromkeys(_REFERENCE.findall(definition)))[1:]
        return "\n".join(
            [
                f'target triple = "{self.target.triple}"',
                *(self.globals[r] for r in used if r in self.globals),
                *(self.declarations[r] for r in used if r in self.declarations),
                *(_declaration(self.functions[r]) for r in used if r in self.functions),
                definition,
                f"attributes #0 = {{ nounwind noinline {wide} }}",
                f"attributes #1 = {{ nounwind {wide} }}",
            ]
        )

    def compile(self, symbol: str, entry: str) -> bytes:
        """The segment's ELF object.

        Args:
            symbol: name of the entry point.
            entry: its definition, which calls the functions.
        """
        parts = [self._object(self.unit(text), name.startswith("@loop")) for name, text in self.functions.items()]
        return elf.join([*parts, self._object(self.unit(entry), False)], symbol)

    def _object(self, text: str, plain: bool) -> bytes:
        t = self.target
        what = (
            llvmlite.__version__,
            llvm.llvm_version_info,
            PIPELINES[plain],
            t.triple,
            t.cpu,
            t.features,
            t.abi,
            text,
        )
        key = hashlib.sha256("\0".join(map(str, what)).encode()).hexdigest()
        return cache.objects.get(key, lambda: self._emit(text, plain))

    def _emit(self, text: str, plain: bool) -> bytes:
        """Optimises and emits one function.

        Args:
            plain: it is loops over scalars, which may want unrolling into vectors. Kernels written in vectors are as
                fast without, and compile in a third of the time.
        """
        machine = self.target.machine()
        module = llvm.parse_assembly(text)
        module.data_layout = str(machine.target_data)
        module.verify()
        options = llvm.create_pipeline_tuning_options(speed_level=3 if plain else 2)
        options.loop_vectorization = True
        options.slp_vectorization = plain
        builder = llvm.create_pass_builder(machine, options)
        passes = builder.getModulePassManager()
        passes.run(module, builder)
        return machine.emit_object(module)


def _declaration(definition: str) -> str:
    """`declare` for a `define`."""
    head = definition[: definition.index(")") + 1]
    return re.sub(r" %[\w.]+", "", head.replace("define", "declare", 1))
