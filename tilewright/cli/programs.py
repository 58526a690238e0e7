"""Programs as commands get them: from a file, or compiled from a model now."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import tilewright as tw
from tilewright.api.options import ProgramOptions
from tilewright.cli import arguments, fixed_values
from tilewright.cli.memory_options import MemoryOptions
from tilewright.cli.terminal import Working, stdout_for_json
from tilewright.errors import UsageError
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import CpuStep, NpuStep, Program
from tilewright.store.files import check_readable

if TYPE_CHECKING:
    from tilewright.api.source import ModelSource


@dataclass(frozen=True, kw_only=True)
class Request(MemoryOptions):
    """The program a command works on: a file, and how a model in it is compiled.

    Attributes:
        model: file with a model or a compiled program.
        config: preset or file of the configuration; None for `base`.
        shapes, values, states, entries: as --shape, --value, --state and --entry give them.
        trust: as for `tilewright.load`.
        options: how a model is compiled, but for what the options above say.
    """

    model: Path
    config: str | None = None
    shapes: tuple[tuple[str, list[int]], ...] = ()
    values: tuple[tuple[str, str], ...] = ()
    states: tuple[str, ...] = ()
    entries: tuple[tuple[str, dict[str, list[int]]], ...] = ()
    trust: bool = False
    options: ProgramOptions = field(default=ProgramOptions(), metadata={"of": ProgramOptions})

    @functools.cached_property
    def given_shapes(self) -> dict[str, list[int]]:
        """Shapes by input. Raises `UsageError` for an input given twice."""
        return arguments.same_input_once(self.shapes)

    @functools.cached_property
    def constants(self) -> dict[str, np.ndarray]:
        """Values of inputs that are fixed when compiling. Raises `UsageError` for what does not fit."""
        return fixed_values.parse(self.model, self.values)

    @functools.cached_property
    def machine(self) -> NpuConfig:
        """The configuration that a model is compiled for."""
        return NpuConfig.load(self.config or "base")

    @functools.cached_property
    def is_program(self) -> bool:
        """True for a compiled program. Raises `UsageError` if there is no such file."""
        check_readable(self.model)
        return Program.is_program(self.model)

    @functools.cached_property
    def compiled(self) -> Program:
        """The compiled program in the file."""
        return tw.load(self.model, trust=self.trust)

    def open(self, json_path: str | None = None, staged: bool = False) -> tuple[Program, bool]:
        """The program in the file, or the one compiled from the model.

        Args:
            staged: as for `tilewright.compile_program`.

        Returns:
            The program, and whether it was compiled now. The configuration does not change a program that is already
            compiled; the device checks it.
        """
        given = self.given_shapes
        if not self.is_program:
            return self.compile(given, json_path, staged), True
        options = {
            "--shape": given, "--value": self.values, "--state": self.states, "--rising": self.options.rising,
            "--last": self.options.last, "--for": self.options.objective, "--kernels": self.options.kernels,
        }  # fmt: skip
        for option, chosen in options.items():
            if chosen:
                raise UsageError(f"{self.model} is compiled already: {option} has no effect on it")
        return self.compiled, False

    def compile(self, shapes: dict[str, list[int]], json_path: str | None = None, staged: bool = False) -> Program:
        """The model compiled for these shapes of its inputs; `staged` as for `tilewright.compile_program`."""
        if len(dict(self.entries)) < len(self.entries):
            raise UsageError(f"entry points need names of their own, not {', '.join(n for n, _ in self.entries)}")
        with Working(f"compiling {self.model.name}") as working, stdout_for_json(json_path):
            chosen = replace(self.chosen, staged=staged, progress=working.fraction)
            return tw.compile_program(self.model, self.machine, shapes, chosen=chosen)

    @functools.cached_property
    def chosen(self) -> ProgramOptions:
        """All options of a compilation."""
        clock, memory = self.clock_and_memory(self.machine)
        return replace(
            self.options,
            constants=self.constants,
            states=arguments.states_of(self.states),
            entries=dict(self.entries),
            clock_mhz=ProgramOptions.clock_mhz if clock is None else clock.mhz,
            memory=memory,
        )

    def source(self) -> ModelSource:
        """The model as the importers read it."""
        return self.chosen.source(self.model, self.given_shapes or None)


def cpu_ops(program: Program) -> list[str]:
    """The model's nodes that run on the CPU."""
    return [op for step in program.steps if isinstance(step, CpuStep) for op in step.ops]


def npu_turns(program: Program) -> int:
    """Number of NPU starts in a run: 1 if nothing between its first and its last layer leaves the NPU."""
    return sum(isinstance(step, NpuStep) for step in program.steps)


def on_the_npu(found: Mapping[str, Any]) -> str:
    """Describes the share of the work that the NPU does, from `totals`, and in how many turns where there are
    several."""
    turns = f", in {found['npu_turns']} turns" if found["npu_turns"] > 1 else ""
    return f"{found['npu_mac_fraction']:.2%} on the NPU{turns}"


def totals(program: Program) -> dict[str, Any]:
    """Size and split of a program, for JSON."""
    return {
        "model": program.name,
        "config": program.config.name,
        "fingerprint": program.config.fingerprint,
        "macs": program.macs,
        "npu_macs": program.npu_macs,
        "npu_mac_fraction": program.npu_macs / program.macs if program.macs else 0.0,
        "cpu_ops": cpu_ops(program),
        "npu_turns": npu_turns(program),
        "instructions": len(program.instructions) // 16,
        "constant_bytes": len(program.constants),
        "arena_bytes": program.arena_bytes,
        "host_bytes": program.host_bytes,
        "compile_seconds": program.compile_seconds,
    }
