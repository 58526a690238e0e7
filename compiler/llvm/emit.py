"""`emit`: compiles one function to object code."""

from __future__ import annotations

import functools

import llvmlite.binding as llvm

from tilewright.compiler.llvm.job import Job, Machine
from tilewright.compiler.llvm.masked_stores import single_lanes_written_out


@functools.cache
def initialise() -> None:
    """Registers all targets of LLVM, once."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()


def emit(job: Job) -> bytes:
    """Optimises and emits one function: an ELF relocatable."""
    machine = _target_machine(job.machine)
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


def _target_machine(machine: Machine) -> llvm.TargetMachine:
    """Creates LLVM's target machine, position independent, so that the object links and loads anywhere."""
    initialise()
    return llvm.Target.from_triple(machine.triple).create_target_machine(
        cpu=machine.cpu, features=machine.features, opt=3 if machine.optimise else 0, reloc="pic",
        codemodel="default", abiname=machine.abi,
    )  # fmt: skip
