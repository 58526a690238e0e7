"""Built: the program of a kernel for some shapes and a machine, with its cycles and reports."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.common.shown import Shown
from tilewright.isa.assembler import disassemble
from tilewright.isa.device import Counters
from tilewright.isa.program import Program
from tilewright.isa.timing import DEFAULT_MEMORY, MemoryTiming
from tilewright.kernel.errors import KernelError
from tilewright.measure.explain import Explanation, explain
from tilewright.runtime.cost import program_cycles
from tilewright.runtime.devices import Device
from tilewright.simulator.timeline import write_timeline

Arrays = np.ndarray | tuple[np.ndarray, ...]


@dataclass(repr=False)
class Built(Shown):
    """A kernel for some shapes, constants and a machine.

    Attributes:
        program: the program, which runs on every device and can be saved.
        tiles: the tile program, an operation a line, with the user's lines as comments.
        memory: timing of the memory that cycles are counted with.
        counters: what the device of the last run counted; None before the first.
    """

    program: Program
    tiles: list[str]
    memory: MemoryTiming = DEFAULT_MEMORY
    counters: Counters | None = field(default=None)

    def facts(self) -> dict[str, Any]:
        """Returns facts, for `repr` and notebooks."""
        return {"name": self.program.name, "config": self.program.config.name, "cycles": self.cycles}

    def run(self, *inputs: Any, device: str = "functional") -> Arrays:
        """Runs it once.

        Args:
            inputs: int8 arrays in the kernel's order.
            device: name of a device, as for `tilewright.Device`: "functional", "cycle", "rtl" or a board.

        Returns:
            The tensors that the kernel returns, a tuple where there are several.
        """
        names = [info.name for info in self.program.inputs]
        if len(inputs) != len(names):
            raise KernelError(f"{self.program.name} takes {len(names)} arrays ({', '.join(names)}), not {len(inputs)}")
        with Device(device) as runner:
            outputs = runner.run(self.program, dict(zip(names, inputs, strict=True)))
            self.counters = runner.counters
        found = tuple(outputs[info.name] for info in self.program.outputs)
        return found[0] if len(found) == 1 else found

    @functools.cached_property
    def cycles(self) -> int:
        """The exact cycles of a run, which do not depend on values."""
        return program_cycles(self.program, self.memory)

    def explain(self) -> Explanation:
        """Returns the account of the cycles: engines, bound, and what was lost to what."""
        return explain(self.program, self.memory)

    def timeline(self, path: str | Path) -> None:
        """Writes what the engines do in each cycle, for Perfetto."""
        found = self.explain()
        write_timeline(Path(path), self.program.ops(), self.program.layers, found.traces)

    def asm(self) -> str:
        """Returns the instructions as assembly."""
        return disassemble(self.program.ops())
