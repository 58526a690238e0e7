"""`Function`: one LLVM function of a kernel, with reductions and a schedule."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.compiler.cpu.expr import Buffer, Expr
from tilewright.compiler.cpu.ir.emitter import Emitter
from tilewright.compiler.cpu.ir.module import Module
from tilewright.compiler.cpu.ir.writer import Operand
from tilewright.compiler.cpu.loops.reduce import emit_reduce
from tilewright.compiler.cpu.schedule import LoopSchedule


class Function(Emitter):
    """One LLVM function of a kernel being written.

    Args:
        module: receives declarations and tables of the function.
        schedule: schedule of its loops.
        homes: buffers that lie in the memory of others.

    Attributes:
        plain: True if it has loops over scalars that LLVM should vectorise.
    """

    def __init__(
        self, module: Module, schedule: LoopSchedule | None = None, homes: Mapping[Buffer, Buffer] | None = None
    ) -> None:
        super().__init__(module, homes)
        self.schedule = schedule or LoopSchedule()
        self.plain = False

    def reduction(self, e: Expr) -> Operand:
        value, plain = emit_reduce(self, e, self.schedule)
        self.plain |= plain
        return value

    def define(self, stem: str) -> str:
        """Adds the finished function to the module; returns its name."""
        name = self.module.define(self.definition("NAME"), stem)
        self.module.counters[name] = self.sharing.nbytes
        return name
