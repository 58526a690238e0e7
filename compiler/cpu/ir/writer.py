"""`Writer`: one LLVM function, written instruction by instruction. It knows nothing of expressions and buffers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from tilewright.compiler.cpu.ir.module import Module
from tilewright.compiler.cpu.ir.types import element_of, lanes_of, suffix, vector


@dataclass(frozen=True, slots=True)
class Operand:
    """A value in the function being written: its name or constant text, and its LLVM type."""

    text: str
    type: str

    def __str__(self) -> str:
        return self.text


Number = int | Operand  # an int stands for a constant of the other operand's type


def i64(value: int) -> Operand:
    """An i64 constant."""
    return Operand(str(value), "i64")


def pointer_to(name: str) -> Operand:
    """The pointer of this name: a parameter, or data of the module."""
    return Operand(name, "ptr")


class Writer:
    """One LLVM function being written: straight-line operations, loops, branches.

    Args:
        module: takes the declarations and tables that the function uses.
        indent: indentation of every instruction.
    """

    def __init__(self, module: Module, indent: str = "  ") -> None:
        self.module = module
        self.indent = indent
        self.lines: list[str] = []
        self.allocas: list[str] = []
        self.count = 0
        self.block = "entry"

    # Any instruction.

    def op(self, text: str, type_: str, name: str = "") -> Operand:
        """Writes an instruction with a result, called `name` if given; for operations without a method here."""
        if not name:
            self.count += 1
            name = f"t{self.count}"
        self.lines.append(f"{self.indent}%{name} = {text}")
        return Operand(f"%{name}", type_)

    def do(self, text: str) -> None:
        """Writes an instruction without a result."""
        self.lines.append(self.indent + text)

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self.block = name

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    # Arithmetic.

    def binary(self, name: str, a: Number, b: Number, flags: str = "", called: str = "") -> Operand:
        """Writes the operation `name` on two operands of one type; two ints are of 64 bits."""
        type_ = a.type if isinstance(a, Operand) else b.type if isinstance(b, Operand) else "i64"
        return self.op(f"{name} {flags}{' ' if flags else ''}{type_} {a}, {b}", type_, called)

    def add(self, a: Number, b: Number, flags: str = "nsw", called: str = "") -> Operand:
        return self.binary("add", a, b, flags, called)

    def sub(self, a: Number, b: Number, flags: str = "nsw") -> Operand:
        return self.binary("sub", a, b, flags)

    def mul(self, a: Number, b: Number, flags: str = "nsw", called: str = "") -> Operand:
        return self.binary("mul", a, b, flags, called)

    def udiv(self, a: Number, b: Number) -> Operand:
        return self.binary("udiv", a, b)

    def urem(self, a: Number, b: Number) -> Operand:
        return self.binary("urem", a, b)

    def fadd(self, a: Operand, b: Operand) -> Operand:
        return self.binary("fadd", a, b)

    def fsub(self, a: Operand, b: Operand) -> Operand:
        return self.binary("fsub", a, b)

    def fmul(self, a: Operand, b: Operand) -> Operand:
        return self.binary("fmul", a, b)

    def fdiv(self, a: Operand, b: Operand) -> Operand:
        return self.binary("fdiv", a, b)

    def fneg(self, v: Operand) -> Operand:
        return self.op(f"fneg {v.type} {v}", v.type)

    def and_(self, a: Operand, b: Number) -> Operand:
        return self.binary("and", a, b)

    def or_(self, a: Operand, b: Number) -> Operand:
        return self.binary("or", a, b)

    def xor(self, a: Operand, b: Number) -> Operand:
        return self.binary("xor", a, b)

    def negated(self, condition: Operand) -> Operand:
        """The negation of an i1."""
        return self.op(f"xor i1 {condition}, true", "i1")

    def shl(self, a: Operand, b: Number) -> Operand:
        return self.binary("shl", a, b)

    def lshr(self, a: Operand, b: Number) -> Operand:
        return self.binary("lshr", a, b)

    def ashr(self, a: Operand, b: Number) -> Operand:
        return self.binary("ashr", a, b)

    def icmp(self, how: str, a: Operand, b: Number, called: str = "") -> Operand:
        return self.op(f"icmp {how} {a.type} {a}, {b}", vector("i1", lanes_of(a.type)), called)

    def fcmp(self, how: str, a: Operand, b: Operand) -> Operand:
        return self.op(f"fcmp {how} {a.type} {a}, {b}", vector("i1", lanes_of(a.type)))

    def select(self, condition: Operand, a: Operand, b: Operand) -> Operand:
        return self.op(f"select {condition.type} {condition}, {a.type} {a}, {a.type} {b}", a.type)

    def convert(self, how: str, v: Operand, type_: str, called: str = "") -> Operand:
        """Converts `v` to a type: zext, sext, trunc, bitcast, fptosi, ..."""
        return self.op(f"{how} {v.type} {v} to {type_}", type_, called)

    # Vectors.

    def insert(self, v: Operand, lanes: int, called: str = "") -> Operand:
        """A vector whose first element is `v`, the others undefined."""
        full = vector(v.type, lanes)
        return self.op(f"insertelement {full} poison, {v.type} {v}, i64 0", full, called)

    def splat(self, v: Operand, lanes: int, names: tuple[str, str] = ("", "")) -> Operand:
        """A vector whose elements are all `v`."""
        first = self.insert(v, lanes, names[0])
        picks = f"<{lanes} x i32> zeroinitializer"
        return self.op(f"shufflevector {first.type} {first}, {first.type} poison, {picks}", first.type, names[1])

    def shuffle(self, a: Operand, b: Operand | None, picks: Sequence[int]) -> Operand:
        """The elements of `a` and `b` (of `a` alone) at the given places."""
        chosen = f"<{len(picks)} x i32> <{', '.join(f'i32 {p}' for p in picks)}>"
        other = "poison" if b is None else b
        type_ = vector(element_of(a.type), len(picks))
        return self.op(f"shufflevector {a.type} {a}, {a.type} {other}, {chosen}", type_)

    def first_of(self, v: Operand) -> Operand:
        """The first element of a vector."""
        return self.op(f"extractelement {v.type} {v}, i64 0", element_of(v.type))

    # Memory.

    def alloca(self, type_: str, count: int = 1, align: int = 64) -> Operand:
        """Allocates memory local to the function."""
        name = f"%{self.fresh('a')}"
        self.allocas.append(f"  {name} = alloca [{count} x {type_}], align {align}")
        return pointer_to(name)

    def at(self, type_: str, pointer: Operand, offset: Number, called: str = "", flags: str = "") -> Operand:
        """The pointer to element `offset` of an array of a type."""
        return self.op(
            f"getelementptr {flags}{' ' if flags else ''}{type_}, ptr {pointer}, i64 {offset}", "ptr", called
        )

    def load(self, type_: str, pointer: Operand, align: int = 0, called: str = "") -> Operand:
        return self.op(f"load {type_}, ptr {pointer}{f', align {align}' if align else ''}", type_, called)

    def store(self, v: Operand, pointer: Operand, align: int = 0) -> None:
        self.do(f"store {v.type} {v}, ptr {pointer}{f', align {align}' if align else ''}")

    # Calls.

    def call(self, name: str, type_: str, args: Sequence[Operand], called: str = "") -> Operand:
        """Writes a call with a result, by the name with @."""
        return self.op(f"call {type_} {name}({', '.join(f'{a.type} {a}' for a in args)})", type_, called)

    def run(self, name: str, args: Sequence[Operand]) -> None:
        """Writes a call without a result."""
        self.do(f"call void {name}({', '.join(f'{a.type} {a}' for a in args)})")

    def declared(self, name: str, type_: str, *parameters: str) -> str:
        """Declares a function defined elsewhere; returns its name."""
        return self.module.declare(name, f"declare {type_} {name}({', '.join(parameters)})")

    def intrinsic(self, name: str, *args: Number) -> Operand:
        """Calls `llvm.name`; the result has the first operand's type."""
        type_ = next(a.type for a in args if isinstance(a, Operand))
        given = [a if isinstance(a, Operand) else Operand(str(a), type_) for a in args]
        full = self.declared(f"@llvm.{name}.{suffix(type_)}", type_, *(a.type for a in given))
        return self.call(full, type_, given)

    # Control.

    def jump(self, block: str) -> None:
        self.do(f"br label %{block}")

    def branch(self, condition: Operand, yes: str, no: str) -> None:
        self.do(f"br i1 {condition}, label %{yes}, label %{no}")

    def scope(self) -> AbstractContextManager[None]:
        """A context for code that may not run: values remembered inside are forgotten afterwards."""
        return nullcontext()

    @contextmanager
    def loop(self, low: Number, high: Number, step: int = 1) -> Iterator[Operand]:
        """Writes `for i in range(low, high, step)`; yields i."""
        n = self.fresh("L")
        before = self.block
        self.jump(f"{n}.head")
        self.label(f"{n}.head")
        i = self.phi("i64", [(low, before), (f"%n{n}", f"{n}.latch")], f"i{n}")
        self.branch(self.icmp("slt", i, high, f"c{n}"), f"{n}.body", f"{n}.exit")
        self.label(f"{n}.body")
        with self.scope():
            yield i
        self.jump(f"{n}.latch")
        self.label(f"{n}.latch")
        self.add(i, step, "nuw nsw", f"n{n}")
        self.jump(f"{n}.head")
        self.label(f"{n}.exit")

    @contextmanager
    def when(self, condition: Operand) -> Iterator[None]:
        """Writes the code inside so that it runs only if the condition holds."""
        n = self.fresh("W")
        self.branch(condition, f"{n}.then", f"{n}.end")
        self.label(f"{n}.then")
        with self.scope():
            yield
        self.jump(f"{n}.end")
        self.label(f"{n}.end")

    def phi(self, type_: str, choices: Sequence[tuple[Number | str, str]], called: str = "") -> Operand:
        """The value of the block that control came from: (value, block) pairs."""
        pairs = ", ".join(f"[ {v}, %{block} ]" for v, block in choices)
        return self.op(f"phi {type_} {pairs}", type_, called)

    def text(self, head: str) -> str:
        """The text of the finished definition.

        Args:
            head: linkage, name and parameters, and attributes.
        """
        body = "\n".join(["entry:", *self.allocas, *self.lines, f"{self.indent}ret void"])
        return f"define {head} {{\n{body}\n}}\n"
