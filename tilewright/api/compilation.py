"""`compile` and `compile_program`."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.compiler.errors import OpenShapeError, StagingError
from tilewright.compiler.options import CompileOptions
from tilewright.errors import UsageError
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import Program
from tilewright.isa.timing import DEFAULT_MEMORY, MemoryTiming
from tilewright.store import program_cache, trust
from tilewright.store.files import check_readable, is_tflite
from tilewright.tuning.log import compiler_digest, open_log
from tilewright.tuning.objective import Objective

if TYPE_CHECKING:
    import onnx

    from tilewright.dynamic.model import DynamicModel


def compile(
    model: str | Path | bytes | onnx.ModelProto,
    config: NpuConfig | str | Path = "base",
    shapes: Mapping[str, Sequence[int]] | None = None,
    keep: str = "outputs",
    *,
    constants: Mapping[str, Any] | None = None,
    **options: Any,
) -> Program | DynamicModel:
    """Compiles a model: to one program where everything is known now, else to a `DynamicModel`, which compiles its
    parts while it runs. Both run with `Device(...).run(model, inputs)`.

    Args:
        constants: values of inputs to fix now, such as axes or sizes that decide shapes; no inputs of the result.
        model, config, shapes, keep, options: as for `compile_program`. With keep="all", a host or `print_after` the
            model must be static.

    Raises:
        TilewrightError: model or configuration cannot be compiled; one line with node, value and what is accepted.
    """
    try:
        return compile_program(model, config, shapes, keep, constants=constants, staged=True, batch=None, **options)
    except (StagingError, OpenShapeError):
        if keep != "outputs" or options.get("host") or options.get("print_after") or is_tflite(model):
            raise
    from tilewright.dynamic.model import DynamicModel  # the importer and onnx: 0.6 s that one program need not wait for

    chosen = {key: value for key, value in options.items() if key in ("effort", "cpu_only", "memory", "cache")}
    return DynamicModel(model, config, shapes, constants=constants, **chosen)


def compile_program(
    model: str | Path | bytes | onnx.ModelProto,
    config: NpuConfig | str | Path = "base",
    shapes: Mapping[str, Sequence[int]] | None = None,
    keep: str = "outputs",
    *,
    constants: Mapping[str, Any] | None = None,
    states: Mapping[str, str] | str | None = None,
    entries: Mapping[str, Mapping[str, Sequence[int]]] | None = None,
    staged: bool = False,
    batch: int | None = 1,
    host: str | None = None,
    clock_mhz: float | None = None,
    memory: MemoryTiming | None = None,
    cpu_only: bool = False,
    threads: int = 1,
    effort: int = 1,
    print_after: Sequence[str] = (),
    progress: Callable[[str, float], None] | None = None,
    cache: bool = True,
    tuning: str | Path | None = None,
    objective: str | None = None,
) -> Program:
    """Compiles a model to one program, which can be saved.

    Args:
        model: ONNX or TFLite file, its bytes, or an ONNX ModelProto (left unchanged).
        config: preset name, `.json` or `.toml` file, or `NpuConfig`.
        shapes: shape per input, needed where the model leaves dimensions open.
        keep: "outputs", or "all" to keep every quantised tensor in memory, to be looked at after a run.
        constants: values of inputs to fix now, by name.
        states: inputs of an ONNX model that become states of the program, which it keeps from run to run, such as the
            cache of keys and values of a language model: the output that sets each for the next run, by the name of
            the input; "auto" for inputs called past... with outputs called present....
        entries: shapes of inputs, beside `shapes`, of each entry point by its name: computations of one program that
            share constants and states, such as "prefill" and "decode" of a language model. `Device.run` names one.
        batch: size of batches that an ONNX model and `shapes` leave open: a first dimension without a size, unless its
            name says that it is none. The program has a note of it. None refuses them as other open dimensions.
        staged: long loops and large branches are refused (StagingError), not unrolled and run in vain.
        host: machine the CPU kernels are for ("aarch64-linux", ...; see `tilewright.compiler.cpu.target.HOSTS`), None
            for this one. With a host the program carries the C header of its runtime; see `tilewright.export_c`.
        clock_mhz: of the NPU: with a host, light ops run where they are done sooner. None for 100.
        memory: that schedules are made for, such as that of a board; None for the default of the simulators. The values
            are the same with every memory.
        cpu_only: leave the NPU out.
        threads: that share the work of every CPU kernel, 1..64; the results are the same for every number. Not with a
            host.
        effort: how long to search for schedules, 0..3; 2 and 3 measure candidates with the cycle-level simulator.
        print_after: names of passes after which the graph is printed.
        progress: called with what is being done and the fraction done.
        tuning: log of schedules found by `tilewright tune`, applied where they save cycles; None for $TILEWRIGHT_TUNING
            or the user's, "off" for none. Each is for one machine beside one memory.
        objective: what schedules are compared by at efforts 2 and 3, and whose log of the user is meant: "cycles" (the
            default), "energy" or "energy-delay". For cycles, weights are coded where that
            saves time (`NpuConfig.weight_codes`), otherwise where it saves bytes.

    Raises:
        OpenShapeError: the model leaves dimensions open that `shapes` does not give.
        StagingError: shapes depend on values that are only known while the model runs.
        TilewrightError: model or configuration cannot be compiled; one line with node, value and what is accepted.
    """
    goal = Objective.named(objective or Objective.CYCLES)
    options = CompileOptions(
        keep=keep, effort=effort, cpu_only=cpu_only, host=host, threads=threads, print_after=tuple(print_after),
        small_weights=goal is not Objective.CYCLES,
        clock_mhz=clock_mhz if clock_mhz is not None and host is not None else CompileOptions.clock_mhz,
        memory=memory or DEFAULT_MEMORY,
    )  # fmt: skip
    if entries and (keep != "outputs" or host is not None or print_after):
        raise UsageError(
            "entry points are for programs of this machine that keep outputs: no keep, host or print_after"
        )
    if entries and tuning not in (None, "off"):
        raise UsageError("schedules of a log (tuning) are for programs without entry points")
    if entries and objective not in (None, "cycles"):
        raise UsageError(f"entry points are compiled for cycles, not for {objective}")
    if isinstance(model, str | Path):
        if not Path(model).exists():
            raise UsageError(f"no such model file: {model}")
        check_readable(model)
    chosen = config if isinstance(config, NpuConfig) else NpuConfig.load(config)
    start = time.perf_counter()
    given = dict(shapes) if shapes else None
    untuned = keep != "outputs" or cpu_only or print_after
    log = None if untuned else open_log(tuning, goal)
    if log is not None and objective is not None:
        log.require(goal)
    name = None
    if cache and not print_after:
        fixed = {n: (str(np.asarray(v).dtype), np.asarray(v).tolist()) for n, v in (constants or {}).items()}
        kept = dict(states) if isinstance(states, Mapping) else states
        points = [(n, {k: list(v) for k, v in found.items()}) for n, found in (entries or {}).items()]
        found_by = fixed, kept, points, asdict(options), log.digest() if log is not None else "", _compared_by(goal)
        sized = () if batch in (None, 1) else (batch,)
        name = program_cache.key(model, chosen.to_dict(), given, *found_by, *sized)
    found = program_cache.find(name) if name is not None else None
    if found is not None and not (batch is None and _has_open_batch(found)):
        found.compile_seconds = time.perf_counter() - start
        return found
    # The compiler takes 0.8 s to import: a program from the cache need not wait for it.
    from tilewright.api.build import ModelSource, build_entries, build_tuned, builder

    source = ModelSource(model, given, constants, staged, states, batch)
    plain = functools.partial(builder(source, chosen, replace(options, effort=min(effort, 1))), None)
    build = builder(source, chosen, options, progress, goal.measure(plain, options.memory) if effort > 1 else None)
    if entries:
        program = build_entries(source, entries, chosen, options, progress)
    elif log is not None and log.findings:
        program = build_tuned(build, log, memory=options.memory, trust=effort <= 1)
    else:
        program = build(None)
    trust.sign(program)
    program.compile_seconds = time.perf_counter() - start
    if name is not None:
        program_cache.keep(name, program)
    return program


def _has_open_batch(program: Program) -> bool:
    """Whether the model leaves a batch open that has a size in the program."""
    if not program.notes:
        return False
    # The compiler's operators, which a program from the cache need not wait for.
    from tilewright.compiler.stages.notes import OPEN_BATCH

    return any(note.startswith(OPEN_BATCH) for note in program.notes)


def _compared_by(objective: Objective) -> str:
    """What a kept program depends on where schedules are not compared by cycles."""
    return "" if objective is Objective.CYCLES else f"{objective} {compiler_digest(objective)}"
