"""Compiles the functions of segments to object code.

They are compiled one by one, so equal kernels, of one segment or of many, are compiled once; `elf.join` makes one
object of a segment's functions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from tilewright.compiler.cpu.ir.module import Module
from tilewright.compiler.cpu.object import cache, elf
from tilewright.compiler.llvm.job import Job
from tilewright.compiler.llvm.parallel import emitting


def jobs_of(module: Module, entry: str) -> list[Job]:
    """The compile jobs of a segment.

    Args:
        module: its functions; those named `loop_...` are plain loops.
        entry: definition of the entry point, which calls the functions.
    """
    machine = module.target.machine
    jobs = [Job(machine, module.unit(text), name.startswith("@loop")) for name, text in module.functions.items()]
    return [*jobs, Job(machine, module.unit(entry), False)]


@contextlib.contextmanager
def compiling(segments: Sequence[tuple[Sequence[Job], str]]) -> Iterator[Callable[[], list[bytes]]]:
    """Compiles segments while the block runs, in other processes where the work is large enough.

    Args:
        segments: jobs, and name of the entry point.

    Yields:
        A function that waits for their ELF objects, in order.
    """
    keys = {job.key: job for jobs, _ in segments for job in jobs}
    found = {key: cache.objects.find(key) for key in keys}
    missing = [job for key, job in keys.items() if found[key] is None]
    with emitting(missing) as emitted:

        def objects() -> list[bytes]:
            have = {key: code for key, code in found.items() if code is not None}
            for job, code in zip(missing, emitted(), strict=True):
                cache.objects.keep(job.key, code)
                have[job.key] = code
            return [elf.join([have[job.key] for job in jobs], symbol) for jobs, symbol in segments]

        yield objects


def compile_module(module: Module, symbol: str, entry: str) -> bytes:
    """The ELF object of a segment.

    Args:
        symbol: name of the entry point.
        entry: its definition.
    """
    with compiling([(jobs_of(module, entry), symbol)]) as objects:
        return objects()[0]
