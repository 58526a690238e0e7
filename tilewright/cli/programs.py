"""Programs as commands get them: from a file, or compiled from a model now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tilewright as tw
from isa.program import CpuStep, Program
from tilewright.cli.arguments import same_input_once
from tilewright.cli.terminal import Working, stdout_for_json
from tilewright.errors import UsageError


def open_program(
    model: Path,
    config: str | None,
    shapes: tuple[tuple[str, list[int]], ...] = (),
    *,
    json_path: str | None = None,
    keep: str = "outputs",
    **options: Any,
) -> tuple[Program, bool]:
    """The program in a file, or the one compiled from a model with these options of `tilewright.compile`.

    Returns:
        The program, and whether it was compiled now. `config` and `shapes` do not change a program that is already
        compiled; the device checks the configuration.
    """
    given = same_input_once(shapes)
    if not model.is_file():
        raise UsageError(f"cannot read {model}: {'is a directory' if model.is_dir() else 'no such file'}")
    if Program.is_program(model):
        if given:
            raise UsageError(f"{model} is compiled already: --shape has no effect on it")
        return Program.load(model), False
    with Working(f"compiling {model.name}") as working, stdout_for_json(json_path):
        program = tw.compile_program(model, config or "base", given, keep, progress=working.fraction, **options)
    return program, True


def cpu_ops(program: Program) -> list[str]:
    """The model's nodes that run on the CPU."""
    return [op for step in program.steps if isinstance(step, CpuStep) for op in step.ops]


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
        "instructions": len(program.instructions) // 16,
        "constant_bytes": len(program.constants),
        "arena_bytes": program.arena_bytes,
        "host_bytes": program.host_bytes,
        "compile_seconds": program.compile_seconds,
    }
