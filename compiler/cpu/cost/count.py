"""Counts the machine operations of a kernel in its LLVM text: loops there have constant bounds.

The count is of the text before LLVM optimises: addresses, constants broadcast over a vector and casts of bits are free,
and an operation on a vector counts once for each register of the target that it fills.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.compiler.cpu.ir.types import element_of, lanes_of
from tilewright.isa.program_parts import WORK_KINDS

_HEAD = re.compile(r"@[\w.]+\(([^)]*)\)")
_LABEL = re.compile(r"([\w.]+):$")
_RESULT = re.compile(r"(%[\w.]+) = (.*)")
_CALL = re.compile(r"call (<\d+ x \w+>|\w+) (?:asm )?(@[\w.]+)?\(?(.*?)\)?$")
_VECTOR = re.compile(r"<\d+ x \w+>")
_PHI = re.compile(r"phi i64 \[ ([^,]+), %[\w.]+ \]")
_LOOPS = re.compile(r"(L\d+|C\d+)\.(head|body|latch|exit)")
_STEP = re.compile(r"%n(?:ext|(L\d+)) = add nuw nsw i64 %\w+, (\d+)")
_WHEN = re.compile(r"br i1 (%[\w.]+), label %(W\d+)\.then")
_BITS = {"float": 32, "double": 64, "half": 16, "ptr": 64}
_FREE = (
    "}",
    "getelementptr",
    "phi",
    "br ",
    "ret ",
    "bitcast",
    "ptrtoint",
    "inttoptr",
    "alloca",
    "insertelement",
    "fence",
)
_DIVIDES = ("fdiv", "sdiv", "udiv", "srem", "urem", "frem")
_FREE_CALLS = ("@llvm.prefetch", "@llvm.assume", "@llvm.lifetime", "@llvm.x86.sse2.pause")
#: Products of a block of 16 x 16 sums of 64 values in matrix registers, in operations on vectors of 64 bytes.
_MATRIX_PRODUCT = 16

Env = dict[str, float]  # values of names, as far as they are known


@dataclass(frozen=True)
class Work:
    """Machine operations of one run of a kernel by one thread.

    Attributes:
        vector: arithmetic on vector registers.
        shuffle: elements moved within vector registers.
        scalar: arithmetic on one element.
        plain: operations of loops over elements that LLVM may put into vectors, and single bytes moved.
        divide: quotients and roots, registers or elements.
        memory: loads and stores.
        gather: elements loaded from separate addresses into a vector.
        turns: loop iterations.
    """

    vector: float = 0.0
    shuffle: float = 0.0
    scalar: float = 0.0
    plain: float = 0.0
    divide: float = 0.0
    memory: float = 0.0
    gather: float = 0.0
    turns: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(**{kind: getattr(self, kind) + getattr(other, kind) for kind in WORK_KINDS})

    def __mul__(self, times: float) -> Work:
        return Work(**{kind: getattr(self, kind) * times for kind in WORK_KINDS})


def work_of(name: str, functions: Mapping[str, str], vector_bits: int) -> Work:
    """Counts the operations of one call of a function of a module.

    Args:
        name: name of the function, with @.
        functions: definitions by name.
        vector_bits: width of the target's registers.
    """
    return _Count(functions, vector_bits).of(name, ())


class _Count:
    def __init__(self, functions: Mapping[str, str], vector_bits: int) -> None:
        self.functions, self.vector_bits = functions, vector_bits
        self.of = functools.cache(self._of)

    def _of(self, name: str, arguments: tuple[float | None, ...]) -> Work:
        head, *lines = self.functions[name].splitlines()
        env: Env = {}
        found = _HEAD.search(head)
        parameters = [p.split()[-1] for p in found.group(1).split(", ")] if found and found.group(1) else []
        env.update({p: v for p, v in zip(parameters, arguments) if v is not None})
        plain = name.startswith("@loop_")
        steps = {m[1] or "": float(m[2]) for m in _STEP.finditer("\n".join(lines))}
        total = dict.fromkeys(WORK_KINDS, 0.0)
        times: float = 1.0
        outer: list[float] = []
        negated: set[str] = set()  # conditions that are the opposite of others
        for line in map(str.strip, lines):
            label = _LABEL.match(line)
            if label:
                loop = _LOOPS.fullmatch(label.group(1))
                if label.group(1) == "loop":  # of a register tile, over k
                    times = max(-(-env.get("%k", 1.0) // steps.get("", 1.0)), 1.0)
                    total["turns"] += times
                elif label.group(1) == "exit":
                    times = 1.0
                elif re.fullmatch(r"W\d+\.end", label.group(1)):
                    times = outer.pop()
                elif loop and loop.group(2) == "head":
                    outer.append(times)
                elif loop and loop.group(2) == "body":
                    n = loop.group(1)
                    first, end = env.get(f"{n}.first", 0.0), env.get(f"{n}.end", 1.0)
                    step = steps.get(n, 1.0)
                    trips = max(-(-(end - first) // step), 0.0)
                    env[f"%i{n}"] = first + (max(trips - 1, 0) // 2) * step
                    times *= trips
                    total["turns"] += times
                elif loop and loop.group(2) == "exit":
                    times = outer.pop()
                continue
            when = _WHEN.match(line)
            if when:  # of two ways to do the same, one runs
                outer.append(times)
                times = 0.0 if when.group(1) in negated else times
                continue
            result = _RESULT.match(line)
            what = result.group(2) if result else line
            if result:
                _evaluate(result.group(1), what, env)
                if what.startswith("xor i1") and what.endswith("true"):
                    negated.add(result.group(1))
            kind, amount, called = self._kind(what, env)
            if called is not None:
                for key in WORK_KINDS:
                    total[key] += getattr(called, key) * times
            elif kind:
                total["plain" if plain and kind in ("scalar", "memory") else kind] += amount * times
        return Work(**total)

    def _kind(self, what: str, env: Env) -> tuple[str, float, Work | None]:
        """The kind of an instruction and its number of machine operations, or the work of the function it calls."""
        if what.startswith(_FREE) or ("zeroinitializer" in what and what.startswith("shufflevector")):
            return "", 0.0, None
        registers = max((self._registers(t) for t in _VECTOR.findall(what)), default=0.0)
        if what.startswith(("load i8,", "store i8 ")):
            return "plain", 1.0, None
        if what.startswith(("load", "store", "atomicrmw")):
            return "memory", registers or 1.0, None
        if "call " in what:
            return self._call(what, env, registers)
        if what.startswith(_DIVIDES):
            if not registers and what.rpartition(", ")[2].isdecimal():  # a product and shifts
                return ("", 0.0, None) if " i64 " in what else ("scalar", 3.0, None)
            return "divide", registers or 1.0, None
        if what.startswith(("shufflevector", "extractelement")):
            return "shuffle", registers, None
        if registers:
            return "vector", registers, None
        # Arithmetic of indices is mostly moved out of loops and into addresses.
        return ("", 0.0, None) if " i64 " in what else ("scalar", 1.0, None)

    def _call(self, what: str, env: Env, registers: float) -> tuple[str, float, Work | None]:
        found = _CALL.search(what)
        name = found.group(2) if found else None
        if name is None or name.startswith(_FREE_CALLS):
            return "", 0.0, None
        assert found is not None
        if name in self.functions:
            given = tuple(_value(a.split()[-1], env) for a in found.group(3).split(", "))
            return "", 0.0, self.of(name, given)
        if name.startswith("@llvm.masked.gather"):
            return "gather", float(lanes_of(found.group(1))), None
        if name.startswith("@llvm.masked.") or name.startswith(("@llvm.x86.tileload", "@llvm.x86.tilestore")):
            return "memory", registers or 16.0, None
        if name.startswith("@llvm.x86.tdp"):
            return "vector", float(_MATRIX_PRODUCT), None
        if name.startswith("@llvm.sqrt"):
            return "divide", registers or 1.0, None
        return ("vector", registers, None) if registers else ("scalar", 0.0 if ".i64" in name else 1.0, None)

    def _registers(self, type_: str) -> float:
        """The number of registers a vector fills; 0 for vectors of comparison results."""
        element = element_of(type_)
        bits = _BITS.get(element) or int(element[1:])
        return 0.0 if bits == 1 else max(lanes_of(type_) * bits / self.vector_bits, 1.0)


def _value(text: str, env: Env) -> float | None:
    try:
        return float(int(text))
    except ValueError:
        return env.get(text)


def _evaluate(name: str, what: str, env: Env) -> None:
    """Records the value of an i64 as far as it is known, and the bounds of loops."""
    phi = _PHI.match(what)
    loop = re.fullmatch(r"%i(L\d+)", name)
    if phi and loop:
        env[f"{loop.group(1)}.first"] = _value(phi.group(1), env) or 0.0
        return
    compare = re.fullmatch(r"%c([LC]\d+)", name)
    if compare and what.startswith("icmp slt i64"):
        end = _value(what.rpartition(", ")[2], env)
        n = compare.group(1)
        if n.startswith("C"):  # the parts that a thread takes of its share
            env[f"{n}.first"] = env.get(f"%i{n}", 0.0)
        if end is not None:
            env[f"{n}.end"] = end
        return
    if " i64 " not in what:
        return
    call = _CALL.search(what) if what.startswith("call") else None
    if call and call.group(2):
        how = call.group(2).split(".")[1]
        operands = [a.split()[-1] for a in call.group(3).split(", ")]
    else:
        how = what.split()[0]
        operands = [a.split()[-1] for a in what.partition(" i64 ")[2].split(", ")]
    if how == "atomicrmw":
        env[name] = 0.0
        return
    values = [_value(a, env) for a in operands]
    if len(values) != 2 or None in values:
        return
    a, b = (v for v in values if v is not None)
    known = {
        "add": a + b, "sub": a - b, "mul": a * b, "smin": min(a, b), "smax": max(a, b), "umin": min(a, b),
        "udiv": a // b if b else 0.0, "sdiv": a // b if b else 0.0, "urem": a % b if b else 0.0,
        "shl": a * 2 ** min(b, 62),
    }  # fmt: skip
    if how in known:
        env[name] = known[how]
