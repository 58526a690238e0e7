"""Stages: the kernel calls of a segment, each one LLVM function over some buffers."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec import Struct, field

from tilewright.compiler.cpu.expr import Assignment, Buffer, Var
from tilewright.compiler.cpu.ir.module import Module
from tilewright.compiler.cpu.loops.assign import emit_assign, emit_rows
from tilewright.compiler.cpu.loops.function import Function
from tilewright.compiler.cpu.schedule import LoopSchedule, Schedules


class Call(Struct, frozen=True):
    """A call of a function of the module, by its name, with the buffers that are its parameters."""

    name: str
    buffers: list[Buffer]


class Emission(Struct):
    """The destination that stages are written to.

    Attributes:
        module: receives the functions.
        schedules: schedules of the kernels.
        homes: buffers that lie in the memory of others.
    """

    module: Module
    schedules: Schedules
    homes: Mapping[Buffer, Buffer] = field(default_factory=dict)


class Stage(Protocol):
    """A kernel call.

    Attributes:
        label: name for people.
        temps: buffers of the workspace that are in use while it runs, besides those of its parameters.
    """

    label: str
    temps: list[Buffer]

    def emit(self, into: Emission) -> Call:
        """Writes the function of the stage."""


class LoopStage(Struct, eq=False):
    """A loop stage: assignments over rectangular domains, in order, as one function."""

    label: str
    parts: list[Assignment]
    temps: list[Buffer] = field(default_factory=list)
    schedule: LoopSchedule = field(default_factory=LoopSchedule)

    def emit(self, into: Emission) -> Call:
        def write(f: Function) -> None:
            for part in self.parts:
                emit_assign(f, part)

        return _scheduled(self, into, write)


class RowStage(Struct, eq=False):
    """A row stage: for every point of `outer`, assignments in order; values of one point are in local memory."""

    label: str
    outer: list[Var]
    parts: list[Assignment]
    temps: list[Buffer] = field(default_factory=list)
    schedule: LoopSchedule = field(default_factory=LoopSchedule)

    def emit(self, into: Emission) -> Call:
        return _scheduled(self, into, lambda f: emit_rows(f, self.outer, self.parts))


class KernelStage(Struct, eq=False):
    """A kernel that an operator writes itself.

    Attributes:
        write: writes the kernel.
        threaded: True if it divides its work among the threads itself.
    """

    label: str
    write: Callable[[Function], None]
    temps: list[Buffer] = field(default_factory=list)
    threaded: bool = False

    def emit(self, into: Emission) -> Call:
        f = Function(into.module, homes=into.homes)
        with contextlib.nullcontext() if self.threaded else f.sharing.single_thread():
            self.write(f)
        return Call(f.define("kernel"), list(f.params))


def _scheduled(stage: LoopStage | RowStage, into: Emission, write: Callable[[Function], None]) -> Call:
    """Writes a stage by the schedule found for it. Its signature is its text by the default schedule."""
    default = LoopSchedule()
    f = Function(into.module, default, into.homes)
    write(f)
    signature = f"loop {hashlib.sha256(f.definition('NAME').encode()).hexdigest()[:24]}"
    stage.schedule = into.schedules.get(signature, default)
    if stage.schedule != default:
        f = Function(into.module, stage.schedule, into.homes)
        write(f)
    return Call(f.define("loop" if f.plain else "vector"), list(f.params))


def describe(stage: Stage) -> str:
    """Describes a stage: its operation, its domain, and its schedule where that is not the default."""
    if isinstance(stage, RowStage):
        text = f"{stage.label}: {'x'.join(str(v.extent) for v in stage.outer) or '1'} rows"
    elif isinstance(stage, LoopStage):
        domains = " + ".join("x".join(str(v.extent) for v in p.variables) or "1" for p in stage.parts[:3])
        text = f"{stage.label}: loop over {domains}"
    else:
        return f"{stage.label}: kernel"
    return text if stage.schedule == LoopSchedule() else f"{text}; {stage.schedule}"
