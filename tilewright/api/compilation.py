"""`compile` and `compile_program`."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.api.options import ProgramOptions
from tilewright.common.options import collect, keywords
from tilewright.compiler.errors import OpenShapeError, StagingError
from tilewright.compiler.stages.note_forms import OPEN_BATCH
from tilewright.errors import UsageError
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import Program
from tilewright.store import program_cache, trust
from tilewright.store.files import check_readable, is_tflite
from tilewright.tuning.log import TuningLog, compiler_digest
from tilewright.tuning.objective import Objective

if TYPE_CHECKING:
    import onnx

    from tilewright.dynamic.model import DynamicModel


@keywords(ProgramOptions)
def compile(
    model: str | Path | bytes | onnx.ModelProto,
    config: NpuConfig | str | Path = "base",
    shapes: Mapping[str, Sequence[int]] | None = None,
    keep: str = "outputs",
    **options: Any,
) -> Program | DynamicModel:
    """Compiles a model: to one program where everything is known now, else to a `DynamicModel`, which compiles its
    parts while it runs. Both run with `Device(...).run(model, inputs)`.

    Args:
        model, config, shapes, keep: as for `compile_program`.
        options: fields of `tilewright.api.options.ProgramOptions`. With keep="all", `keep_weights`, a host,
            `kernels`, a `schedule` or `print_after` the model must be static. `constants` are no inputs of the result.

    Raises:
        TilewrightError: model or configuration cannot be compiled; one line with node, value and what is accepted.
    """
    chosen = collect(ProgramOptions, {"keep": keep, "staged": True, "batch": None} | options, "compile")
    try:
        return compile_program(model, config, shapes, keep, chosen)
    except (StagingError, OpenShapeError):
        if (
            keep != "outputs"
            or chosen.host
            or chosen.print_after
            or chosen.keep_weights
            or chosen.kernels
            or chosen.schedule
            or is_tflite(model)
        ):
            raise
    from tilewright.dynamic.model import DynamicModel  # the importer and onnx: 0.6 s that one program need not wait for

    return DynamicModel(
        model, config, shapes, constants=chosen.constants, effort=chosen.effort, cpu_only=chosen.cpu_only,
        memory=chosen.memory, cache=chosen.cache,
    )  # fmt: skip


@keywords(ProgramOptions)
def compile_program(
    model: str | Path | bytes | onnx.ModelProto,
    config: NpuConfig | str | Path = "base",
    shapes: Mapping[str, Sequence[int]] | None = None,
    keep: str = "outputs",
    chosen: ProgramOptions | None = None,
    **options: Any,
) -> Program:
    """Compiles a model to one program, which can be saved.

    Args:
        model: ONNX, TFLite or MLIR (TOSA) file, its bytes, MLIR text with line breaks, or an ONNX ModelProto
            (left unchanged).
        config: preset name, `.json` or `.toml` file, or `NpuConfig`.
        shapes: shape per input, needed where the model leaves dimensions open.
        keep: "outputs", or "all" to keep every quantised tensor in memory, to be looked at after a run.
        chosen: options as an object, which `options` change.
        options: fields of `tilewright.api.options.ProgramOptions`, such as `effort`, `host`, `memory` or `constants`.

    Raises:
        OpenShapeError: the model leaves dimensions open that `shapes` does not give.
        StagingError: shapes depend on values that are only known while the model runs.
        TilewrightError: model or configuration cannot be compiled; one line with node, value and what is accepted.
    """
    given = options if chosen is not None and keep == "outputs" else options | {"keep": keep}
    o = collect(ProgramOptions, given, "compile_program", chosen)
    o.check_entries()
    if isinstance(model, str | Path) and "\n" not in str(model):
        if not Path(model).exists():
            raise UsageError(f"no such model file: {model}")
        check_readable(model)
    machine = config if isinstance(config, NpuConfig) else NpuConfig.load(config)
    start = time.perf_counter()
    fixed = dict(shapes) if shapes else None
    log = o.log()
    name = None
    if o.cache and not o.print_after and not o.kernels and o.schedule is None:
        by_log = log.digest() if log is not None else "", _compared_by(o.goal)
        name = program_cache.key(model, machine.to_dict(), fixed, *o.key(), *by_log)
    program = program_cache.find(name) if name is not None else None
    if program is None or (o.batch is None and _has_open_batch(program)):
        program = _built(model, machine, fixed, o, log)
        if name is not None:
            program_cache.keep(name, program)
    program.compile_seconds = time.perf_counter() - start
    return program


def _built(
    model: str | Path | bytes | onnx.ModelProto,
    config: NpuConfig,
    shapes: Mapping[str, Sequence[int]] | None,
    o: ProgramOptions,
    log: TuningLog | None,
) -> Program:
    """The program, compiled now and signed."""
    # The compiler takes 0.8 s to import: a program from the cache need not wait for it.
    from tilewright.api.build import build_entries, build_scheduled, build_tuned, builder

    source, options = o.source(model, shapes), o.compiler
    plain = functools.partial(builder(source, config, replace(options, effort=min(o.effort, 1))), None)
    compared_by = o.goal.measure(plain, options.memory) if o.effort > 1 else None
    build = builder(source, config, options, o.progress, compared_by)
    if o.schedule is not None:
        program = build_scheduled(build, o.schedule)
    elif o.entries:
        program = build_entries(source, o.entries, config, options, o.progress)
    elif log is not None and log.findings:
        program = build_tuned(build, log, memory=options.memory, trust=o.effort <= 1)
    else:
        program = build(None)
    trust.sign(program)
    return program


def _has_open_batch(program: Program) -> bool:
    """Whether the model leaves a batch open that has a size in the program."""
    if not program.notes:
        return False
    return any(note.startswith(OPEN_BATCH) for note in program.notes)


def _compared_by(objective: Objective) -> str:
    """The part of a cached program's key that names the objective; "" for cycles."""
    return "" if objective is Objective.CYCLES else f"{objective} {compiler_digest(objective)}"
