"""Functions to object code, by LLVM.

They are compiled one by one, so equal kernels, of one segment or of many, are compiled once; `elf.join` makes one
object of a segment's functions.
"""

from __future__ import annotations

import hashlib

import llvmlite
import llvmlite.binding as llvm

from compiler.cpu.ir.module import Module
from compiler.cpu.object import cache, elf
from compiler.cpu.object.masked_stores import single_lanes_written_out
from compiler.cpu.target import Target

PIPELINES = {
    True: "O3 with SLP, single lanes written out",
    False: "O2 without SLP, single lanes written out",
}  # part of the cache's key; by whether a kernel is plain loops


def compile_module(module: Module, symbol: str, entry: str) -> bytes:
    """The segment's ELF object.

    Args:
        module: its functions; those named `loop_...` are plain loops.
        symbol: name of the entry point.
        entry: its definition, which calls the functions.
    """
    target = module.target
    parts = [_object(target, module.unit(text), name.startswith("@loop")) for name, text in module.functions.items()]
    return elf.join([*parts, _object(target, module.unit(entry), False)], symbol)


def _object(target: Target, text: str, plain: bool) -> bytes:
    what = (
        llvmlite.__version__,
        llvm.llvm_version_info,
        PIPELINES[plain] if target.optimise else "as written",
        target.triple,
        target.cpu,
        target.features,
        target.abi,
        text,
    )
    key = hashlib.sha256("\0".join(map(str, what)).encode()).hexdigest()
    return cache.objects.get(key, lambda: emit(target, text, plain))


def emit(target: Target, text: str, plain: bool) -> bytes:
    """Optimises and emits one function.

    Args:
        target: machine to compile for.
        text: module of the function.
        plain: it is loops over scalars, which may want unrolling into vectors. Kernels written in vectors are as
            fast without, and compile in a third of the time.
    """
    machine = target.machine()
    module = llvm.parse_assembly(text)
    module.data_layout = str(machine.target_data)
    module.verify()
    if target.optimise:
        options = llvm.create_pipeline_tuning_options(speed_level=3 if plain else 2)
        options.loop_vectorization = True
        options.slp_vectorization = plain
        builder = llvm.create_pass_builder(machine, options)
        passes = builder.getModulePassManager()
        passes.run(module, builder)
    if "@llvm.masked.store" in text:
        optimised = str(module)
        written_out = single_lanes_written_out(optimised)
        if written_out != optimised:
            module = llvm.parse_assembly(written_out)
            module.verify()
    return bytes(machine.emit_object(module))
