"""`emit`: compiles one function to object code."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass

import llvmlite
import llvmlite.binding as llvm

from tilewright.compiler.llvm.masked_stores import single_lanes_written_out

_PIPELINES = {
    True: "O3 with SLP, single lanes written out",
    False: "O2 without SLP, single lanes written out",
}  # part of the key; by whether a kernel is plain loops


@functools.cache
def initialise() -> None:
    """Registers all targets of LLVM, once."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The machine that LLVM compiles for: see `tilewright.compiler.cpu.target.Target`."""

    triple: str
    cpu: str
    features: str
    abi: str
    optimise: bool

    def create(self) -> llvm.TargetMachine:
        """Creates LLVM's target machine, position independent, so that the object links and loads anywhere."""
        initialise()
        target = llvm.Target.from_triple(self.triple)
        return target.create_target_machine(
            cpu=self.cpu, features=self.features, opt=3 if self.optimise else 0, reloc="pic", codemodel="default",
            abiname=self.abi,
        )  # fmt: skip


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
            llvmlite.__version__, llvm.llvm_version_info, pipeline, m.triple, m.cpu, m.features, m.abi, self.text,
        )  # fmt: skip
        return hashlib.sha256("\0".join(map(str, what)).encode()).hexdigest()

    @property
    def seconds(self) -> float:
        """The estimated compile time in seconds."""
        return 0.003 + len(self.text) * (12e-6 if self.plain else 1.8e-6)


def emit(job: Job) -> bytes:
    """Optimises and emits one function: an ELF relocatable."""
    machine = job.machine.create()
    module = llvm.parse_assembly(job.text)
    module.data_layout = str(machine.target_data)
    module.verify()
    if job.machine.optimise:
        options = llvm.create_pipeline_tuning_options(speed_level=3 if job.plain else 2)
        options.loop_vectorization = True
        options.slp_vectorization = job.plain
        builder = llvm.create_pass_builder(machine, options)
        passes = builder.getModulePassManager()
        passes.run(module, builder)
    if "@llvm.masked.store" in job.text:
        optimised = str(module)
        written_out = single_lanes_written_out(optimised)
        if written_out != optimised:
            module = llvm.parse_assembly(written_out)
            module.verify()
    return bytes(machine.emit_object(module))
