"""A function to compile, and the machine to compile it for."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass

import llvmlite
from msgspec import Struct

from tilewright.compiler.llvm.processor import this_processor

_PIPELINES = {
    True: "O3 with SLP, single lanes written out",
    False: "O2 without SLP, single lanes written out",
}  # part of the key; by whether a kernel is plain loops


class Machine(Struct, frozen=True, kw_only=True):
    """The machine that LLVM compiles for: see `tilewright.compiler.cpu.target.Target`."""

    triple: str
    cpu: str
    features: str
    abi: str
    optimise: bool


@dataclass(frozen=True)
class Job:
    """A function to compile.

    Attributes:
        text: module of the function.
        plain: True for loops over scalars, which may want unrolling into vectors. Kernels written in vectors are as
            fast without, and compile in a third of the time.
    """

    machine: Machine
    text: str
    plain: bool

    @functools.cached_property
    def key(self) -> str:
        """A hash that is equal for jobs of equal results."""
        m = self.machine
        pipeline = _PIPELINES[self.plain] if m.optimise else "as written"
        what = (
            llvmlite.__version__, this_processor().llvm, pipeline, m.triple, m.cpu, m.features, m.abi, self.text,
        )  # fmt: skip
        return hashlib.sha256("\0".join(map(str, what)).encode()).hexdigest()

    @property
    def seconds(self) -> float:
        """The estimated compile time in seconds."""
        return 0.003 + len(self.text) * (12e-6 if self.plain else 1.8e-6)
