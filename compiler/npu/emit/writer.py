"""Writer: puts runs and the settings before them into the image, and counts their work."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.compiler.npu.emit.hazards import MEMORY_GRAIN, Access
from tilewright.compiler.npu.emit.loops import Loop
from tilewright.compiler.npu.emit.sequence import Registers, Run, Sequencer, Setting
from tilewright.isa.config import NpuConfig
from tilewright.isa.encoding import Op
from tilewright.isa.instructions import Engine
from tilewright.isa.timing import DEFAULT_MEMORY, MemoryTiming


class Writer:
    """Writes one model's instruction image, step by step.

    Args:
        config: the machine.
        arena_bytes: size of the arena region, for hazard tracking.
        dry: only count `work`: nothing is emitted.
        memory: as the program will find it.

    Attributes:
        work: steps or cycles of the bus per engine so far, and one for each run of bytes.
    """

    def __init__(
        self, config: NpuConfig, arena_bytes: int, dry: bool = False, memory: MemoryTiming = DEFAULT_MEMORY
    ) -> None:
        self.config = config
        self.dry = dry
        self._intervals = {Engine.LOAD: memory.read_interval, Engine.STORE: memory.write_interval}
        self.work = dict.fromkeys(Engine, 0)
        self._sequencer = (
            None
            if dry
            else Sequencer(
                config,
                {
                    "act": config.act_rows,
                    "wgt": config.wgt_tiles,
                    "prm": config.prm_rows,
                    "lut": config.lut_tables,
                    "acc": config.acc_rows * config.block_out,  # elements: GEMM and VECTOR rows differ in width
                    "memory": -(-arena_bytes // MEMORY_GRAIN) + 1,
                },
                memory,
            )
        )
        self.image: list[Op] = []
        self.read_bytes = 0
        self.write_bytes = 0
        self._registers = Registers()  # in the order of the program
        self._settings: list[Setting] = []  # before the next run
        self._counted = dict.fromkeys(Engine, 0)  # work of runs so far

    # Steps and positions.

    @property
    def position(self) -> int:
        """Number of the next run of the step; 0 where only work is counted."""
        return len(self._sequencer) if self._sequencer is not None else 0

    def end_step(self) -> list[int]:
        """Writes an NPU step and closes it with END. Gives for each run, and the end, where it begins in the image,
        with what was fetched ahead at that time. State and hazards start afresh."""
        if self._sequencer is None:
            return []
        first = len(self.image)
        finished, begins = self._sequencer.take()
        self.image += finished
        self._registers.forget()
        return [first + begin for begin in (*begins, len(finished) - 1)]

    # Work.

    def _count_bus(self, engine: Engine, nbytes: int, runs: int) -> None:
        """Adds the cycles of a transfer, and one for the start of each run."""
        beats = -(-nbytes // self.config.bus_bytes)
        self.work[engine] += math.ceil(beats * self._intervals[engine]) + runs

    # Configuration state.

    def _nest(self, name: str, levels: int, nest: Sequence[Loop], strides: tuple[str, ...]) -> None:
        """Sets the loop levels of an engine; levels that an earlier nest left behind are set to one iteration."""
        for level in range(levels):
            if level < len(nest):
                count, *steps = nest[level]
                self._set(name, level, level=level, count=count, **dict(zip(strides, steps, strict=True)))
            elif self._registers.get(name, level)["count"] != 1:
                self._set(name, level, level=level, count=1)

    def _set(self, name: str, key: int = 0, **values: int) -> None:
        """Sets a register before the next run, unless it has these values. `key` tells levels apart."""
        setting = Setting(name, key, values)
        if self._registers.change(setting) or name.startswith("LOAD"):
            self._settings.append(setting)

    def _run(self, operation: Op, reads: Sequence[Access], writes: Sequence[Access]) -> None:
        """Adds a run to the step; its work is what has been counted since the run of the engine before."""
        assert self._sequencer is not None
        engine = operation.instruction.engine
        work = self.work[engine] - self._counted[engine]
        self._counted[engine] = self.work[engine]
        settings = self._vector_settings() if engine == Engine.VECTOR else self._settings
        self._sequencer.add(Run(settings, engine, operation, reads, writes, work))
        self._settings = []

    def _vector_settings(self) -> list[Setting]:
        """Returns the values of all registers of VECTOR: a run may be written elsewhere than in its turn."""
        nest = [("VECTOR_LOOP", level) for level in range(self.config.vector_loops)]
        return [
            Setting(name, key, self._registers.get(name, key))
            for name, key in (*nest, ("VECTOR_POST", 0), ("VECTOR_ADD", 0))
        ]
