"""Target machines of the kernels: triple, CPU, features, and the facts that the micro-kernels need."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property

from tilewright.compiler.errors import CompileError
from tilewright.compiler.llvm.job import Machine
from tilewright.compiler.llvm.processor import this_processor


def _allow_amx() -> bool:
    """Requests permission from Linux to use the matrix registers (arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA)."""
    if not sys.platform.startswith("linux"):
        return False
    return bool(ctypes.CDLL(None).syscall(158, 0x1023, 18) == 0)


def poisoned() -> bool:
    """True if the environment requests poisoned workspaces."""
    return os.environ.get("TILEWRIGHT_POISON", "") not in ("", "0")


@dataclass(frozen=True, kw_only=True)
class Target:
    """A CPU to compile for.

    Attributes:
        triple: LLVM target triple, four-part.
        cpu: LLVM CPU name, empty for the generic one.
        features: LLVM feature string (`+avx2,+fma,...`).
        abi: ABI name (RISC-V needs `lp64d`), else empty.
        vector_bits: width of the vectors the micro-kernels use, bits.
        vector_registers: number of such registers; bounds the register tile.
        has_fma: fused multiply-add is one instruction.
        has_doubles: arithmetic of float64 is instructions.
        has_vnni: `vpdpbusd` exists at `vector_bits`.
        has_amx: int8 products of matrix registers exist, and the system lets this process use them.
        optimise: LLVM optimises. Without, kernels compile in a fraction of the time and run slower.
    """

    triple: str
    cpu: str = ""
    features: str = ""
    abi: str = ""
    vector_bits: int = 128
    vector_registers: int = 16
    has_fma: bool = True
    has_doubles: bool = True
    has_vnni: bool = False
    has_amx: bool = False
    optimise: bool = True

    @staticmethod
    @cache
    def host() -> Target:
        """The machine this process runs on, with all its features."""
        found = this_processor()
        on = {name for name, there in found.features.items() if there}
        triple = found.triple
        bits, registers, vnni = 128, 16, False
        if triple.startswith("x86_64"):
            if {"avx512f", "avx512bw", "avx512vl", "avx512dq"} <= on:
                bits, registers, vnni = 512, 32, "avx512vnni" in on
            elif "avx2" in on:
                bits, registers, vnni = 256, 16, "avxvnni" in on
        elif triple.startswith("aarch64"):
            registers = 32
        return Target(
            triple=triple,
            cpu=found.cpu,
            features=found.flags,
            vector_bits=bits,
            vector_registers=registers,
            has_fma="fma" in on or triple.startswith("aarch64"),
            has_vnni=vnni,
            has_amx=vnni and bits == 512 and {"amx-tile", "amx-int8"} <= on and _allow_amx(),
        )

    @staticmethod
    def named(name: str) -> Target:
        """A machine of `HOSTS`, whichever this one is. Raises `CompileError` for another name."""
        if name not in HOSTS:
            raise CompileError(f"host must be one of {', '.join(HOSTS)}, not {name!r}")
        return HOSTS[name]

    @property
    def needed(self) -> list[str]:
        """Instruction-set extensions that code for this machine may use, by LLVM's names, sorted."""
        on = {f[1:] for f in self.features.split(",") if f.startswith("+")} | set(LEVELS.get(self.cpu, ()))
        if self.triple.startswith("x86_64"):
            on = {f for f in on if f.startswith(_X86_ARITHMETIC)}
        return sorted(on | ({"amx-tile", "amx-int8"} if self.has_amx else set()))

    @staticmethod
    def missing(needed: Iterable[str]) -> list[str]:
        """The extensions that the processor of this process lacks."""
        found = this_processor().features
        allowed = Target.host().has_amx
        return sorted(f for f in needed if not found.get(f, False) or (f.startswith("amx-") and not allowed))

    @cached_property
    def machine(self) -> Machine:
        """The target as LLVM's machine."""
        return Machine(triple=self.triple, cpu=self.cpu, features=self.features, abi=self.abi, optimise=self.optimise)

    @property
    def lanes(self) -> int:
        """float32 (and int32) lanes of one vector."""
        return self.vector_bits // 32

    @property
    def has_masks(self) -> bool:
        """True if loads and stores of some lanes are one instruction, for every width of element."""
        return self.vector_bits == 512

    @property
    def explicit_vectors(self) -> bool:
        """True if loops are written in vectors; otherwise they are left to LLVM's vectoriser."""
        return self.has_fma and self.vector_bits >= 128 and self.triple.startswith(("x86_64", "aarch64"))


# Features that arithmetic is compiled to; the other features are the operating system's concern.
_X86_ARITHMETIC = ("sse", "ssse", "avx2", "avx5", "avxv", "fma", "f16c", "bmi", "lzcnt", "popcnt", "movbe", "gfni")
#: Extensions behind the names of levels (x86-64 psABI).
LEVELS = {
    "x86-64-v3": ("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt",
                  "movbe"),
}  # fmt: skip

#: Machines that programs are compiled for ahead of time: the least of each kind that the kernels need.
HOSTS = {
    "x86_64-linux": Target(triple="x86_64-unknown-linux-gnu", cpu="x86-64-v3", vector_bits=256),
    "aarch64-linux": Target(triple="aarch64-unknown-linux-gnu", cpu="cortex-a53", vector_registers=32),
    # Zynq-7000. Its float unit has no fused multiply-add.
    "armv7-linux": Target(triple="armv7a-unknown-linux-gnueabihf", cpu="cortex-a9", features="+neon", has_fma=False),
    # RV64GC: no vectors, so a vector of the micro-kernels is one register.
    "riscv64-linux": Target(
        triple="riscv64-unknown-linux-gnu", features="+m,+a,+f,+d,+c", abi="lp64d", vector_bits=32, vector_registers=32
    ),
    # RV32IM without a system: the core of a board without a host. Floats are computed by calls.
    "riscv32-none": Target(
        triple="riscv32-unknown-none-elf",
        features="+m",
        abi="ilp32",
        vector_bits=32,
        vector_registers=16,
        has_fma=False,
        has_doubles=False,
    ),
}
