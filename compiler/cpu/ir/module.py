"""The functions of one segment as text, with the tables of constants and declarations of intrinsics they use.

Functions are named by the hash of their text, so equal ones, of one segment or of many, are one.
"""

from __future__ import annotations

import hashlib
import re

import numpy as np

from tilewright.compiler.cpu.target import Target

_REFERENCE = re.compile(r"@[\w.]+")


class Module:
    """All functions of one segment.

    Args:
        target: machine they are compiled for.
        threads: number of threads that run each function together.
    """

    def __init__(self, target: Target, threads: int = 1) -> None:
        self.target = target
        self.threads = threads
        self.declarations: dict[str, str] = {}
        self.globals: dict[str, str] = {}
        self.functions: dict[str, str] = {}  # by name with @
        self.counters: dict[str, int] = {}  # bytes that the functions' threads need, by name

    def declare(self, name: str, text: str) -> str:
        """Declares a function defined elsewhere; returns its name."""
        self.declarations[name] = text
        return name

    def data(self, array: np.ndarray) -> str:
        """Adds a constant array to the object; equal ones are shared."""
        raw = np.ascontiguousarray(array).tobytes()
        name = f"@d{hashlib.sha256(raw).hexdigest()[:20]}"
        if name not in self.globals:
            text = "\\" * bool(raw) + raw.hex("\\").upper()  # a backslash before each byte
            self.globals[name] = f'{name} = internal constant [{len(raw)} x i8] c"{text}", align 64'
        return name

    def define(self, text: str, stem: str) -> str:
        """Adds a function written with the name NAME, or finds the equal one; returns its name."""
        name = f"{stem}_{hashlib.sha256(text.encode()).hexdigest()[:24]}"
        self.functions[f"@{name}"] = text.replace("@NAME(", f"@{name}(", 1)
        return name

    def unit(self, definition: str) -> str:
        """The module of one function, with declarations of the functions it calls and the tables it uses."""
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


def _declaration(definition: str) -> str:
    """The `declare` line for a `define`."""
    head = definition[: definition.index(")") + 1]
    return re.sub(r" %[\w.]+", "", head.replace("define", "declare", 1))
