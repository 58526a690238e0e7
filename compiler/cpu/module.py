"""The functions of one segment, and their object code.

Functions are named by the hash of their text and compiled one by one, so equal kernels, of one segment or of many, are
compiled once; `elf.join` makes one object of a segment's functions.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import llvmlite
import llvmlite.binding as llvm
import numpy as np

from compiler.cpu import cache, elf
from compiler.cpu.expr import Buffer
from compiler.cpu.lower import Function
from compiler.cpu.schedule import Schedules
from compiler.cpu.target import Target

PIPELINES = {
    True: "O3 with SLP",
    False: "O2 without SLP",
}  # part of the cache's key; by whether a kernel is plain loops
PRIVATE = 1024  # bytes; threads' copies of a buffer start at multiples of it
_REFERENCE = re.compile(r"@[\w.]+")


class Module:
    """All functions of one segment, then its object code.

    Args:
        target: machine to compile for.
        schedules: of the kernels.
        threads: that run each function together.
    """

    def __init__(self, target: Target, schedules: Schedules | None = None, threads: int = 1) -> None:
        self.target = target
        self.threads = threads
        self.schedules = schedules or Schedules()
        self.homes: dict[Buffer, Buffer] = {}  # buffers that are in the memory of others
        self.declarations: dict[str, str] = {}
        self.globals: dict[str, str] = {}
        self.functions: dict[str, str] = {}  # by name with @

    @staticmethod
    def private_bytes(buffer: Buffer) -> int:
        """From one thread's copy of a private buffer to the next: whole lines, and room to read behind the end."""
        return -(-buffer.nbytes // PRIVATE) * PRIVATE + PRIVATE

    def intrinsic(self, name: str, type_: str, suffix: str, args: Sequence[str]) -> str:
        """A call of `llvm.name`; arguments are of `type_` but for flags, written `i1 ...`."""
        typed = [(a[:2], a) if a.startswith("i1 ") else (type_, f"{type_} {a}") for a in args]
        full = f"@llvm.{name}.{suffix}"
        self.declarations[full] = f"declare {type_} {full}({', '.join(t for t, _ in typed)})"
        return f"call {type_} {full}({', '.join(a for _, a in typed)})"

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
                "!0 = !{i32 1}",
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
