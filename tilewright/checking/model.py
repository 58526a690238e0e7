"""`check`: a compiled model against onnxruntime (TFLite: LiteRT), outputs or every quantised tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from tilewright.api.compilation import compile, compile_program
from tilewright.checking.differences import Difference, Rule
from tilewright.checking.dynamic_model import check_outputs
from tilewright.checking.onnxruntime_reference import Reference, reference_of
from tilewright.checking.report import CheckReport, TensorRow
from tilewright.checking.ties import away_from_ties
from tilewright.checking.tolerance import Conditioning, Tolerance
from tilewright.compiler.errors import OpenShapeError, StagingError
from tilewright.compiler.graph.ops.kernel import NodeKernel
from tilewright.compiler.graph.ops.quantized_op import BEHIND, ROUNDS_TWICE
from tilewright.dynamic.model import DynamicModel
from tilewright.errors import UsageError
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import Program, TensorInfo
from tilewright.runtime.devices import Device, Runner
from tilewright.runtime.executor import RunResult
from tilewright.runtime.forcing import kept_tensors, sharing
from tilewright.runtime.inputs import check_inputs, random_inputs
from tilewright.store.files import is_mlir, is_tflite

if TYPE_CHECKING:
    from tilewright.checking.iree_reference import IreeReference
    from tilewright.checking.litert_reference import LiteRtReference

#: How far a border tensor may be off for its reason to count: one step, in few elements. The last bit of a float flips
#: a rounding in about one of 1e4 elements; more is a wrong rule, not a rounding.
BORDER_STEP = 1
BORDER_SHARE = 0.002
BORDER_FEW = 4
#: The same where another border before it, in the same step and so out of reach, was off already.
NESTED_STEP = 2
NESTED_SHARE = 0.05
#: Runs one after the other of a program that keeps something from one to the next.
STATE_STEPS = 20


def check(
    model: str | Path | bytes | onnx.ModelProto,
    inputs: Mapping[str, np.ndarray] | np.ndarray | None = None,
    *,
    config: NpuConfig | str | Path = "base",
    shapes: Mapping[str, Sequence[int]] | None = None,
    keep: str = "outputs",
    device: str | Runner = "functional",
    program: Program | DynamicModel | None = None,
    seed: int = 0,
    tolerance: Tolerance | str | float | None = None,
    **options: Any,
) -> CheckReport:
    """Compiles and runs a model and compares it with the reference runtime.

    Args:
        model: ONNX or TFLite file, its bytes, or an ONNX ModelProto.
        inputs: by name; by default `random_inputs` with `seed`.
        config, shapes: as for `compile`.
        keep: "outputs", or "all" to compare every quantised tensor too.
        device: a name or a `Device`.
        program: the compiled model, if there is one already (with the default keep="outputs").
            Without it, sizes the model leaves open are those of the inputs. Of a model compiled in parts only outputs
            are compared.
        tolerance: of floats, as `Tolerance.parse` reads it, a number being relative to the largest magnitude in the
            tensor; by default rounding as `tilewright.checking.tolerance` explains it.
        options: for `compile`.

    Raises:
        TilewrightError: the model cannot be compiled, run, or run by the reference. Differences do not raise: see the
            report's `ok` and `mismatches`.
    """
    if keep not in ("outputs", "all"):
        raise UsageError(f'keep must be "outputs" or "all", not {keep!r}')
    given = tolerance if isinstance(tolerance, Tolerance | None) else Tolerance.parse(str(tolerance))
    if program is not None:
        config = program.config
    runner = Device(device) if isinstance(device, str) else device
    normal = program or _compiled(model, config, shapes, inputs, options)
    if not isinstance(normal, Program):
        if keep == "all" or not isinstance(inputs, Mapping):
            raise UsageError(f"{normal.name} is compiled in parts: give its inputs by name, and compare outputs only")
        return check_outputs(model, normal, inputs, runner, given)
    arrays = random_inputs(normal, seed) if inputs is None else check_inputs(normal, inputs)
    reference = _reference_of(model, options.get("kernels") or (), arrays)
    fixed = {name: np.asarray(value) for name, value in (options.get("constants") or {}).items()}
    if normal.states:
        if isinstance(reference, Reference):
            raise UsageError(f"{normal.name} keeps states from run to run; compile it without states to check one run")
        return _check_steps(model, reference, runner, normal, arrays, keep, given, config, options)
    expected = reference.run({**fixed, **arrays})
    reference.release()
    got = runner.run_detailed(normal, arrays).outputs
    rule = rule_of(reference, {**fixed, **arrays}, expected, given)
    rows = [_output_row(info, got[info.name], expected, rule) for info in normal.outputs]
    report = CheckReport(reference.name, keep, rows, tolerance=str(rule))
    if keep == "all" or not report.ok:  # the tensor with a reason may be one that the normal program has not in memory
        shapes = shapes or {t.name: t.shape for t in normal.inputs}
        kept = compile_program(model, config, shapes, keep="all", **options)
        report = check_all(reference, runner, kept, arrays, expected, got, rule)
        report.mode = keep
    return report


def _reference_of(
    model: str | Path | bytes | onnx.ModelProto, kernels: Sequence[NodeKernel], arrays: Mapping[str, np.ndarray]
) -> Reference | LiteRtReference | IreeReference:
    """The reference runtime of a model, of which kernels may run some nodes."""
    if not any(kernel.runs_nodes for kernel in kernels) or is_tflite(model) or is_mlir(model):
        return reference_of(model)
    from tilewright.checking.kernel_reference import KernelReference  # the importer of ONNX

    return KernelReference(model, kernels, {name: array.shape for name, array in arrays.items()})


def _check_steps(
    model: str | Path | bytes | onnx.ModelProto,
    reference: LiteRtReference | IreeReference,
    runner: Runner,
    program: Program,
    arrays: Mapping[str, np.ndarray],
    keep: str,
    given: Tolerance | None,
    config: NpuConfig | str | Path,
    options: dict[str, Any],
) -> CheckReport:
    """`check` of a program with states: the outputs of `STATE_STEPS` runs from the first one on, each with the same
    inputs, and with keep="all" every quantised tensor of the first one."""
    expected = reference.run(arrays, STATE_STEPS)
    runner.reset_state(program)
    runs = [runner.run(program, arrays) for _ in range(STATE_STEPS)]
    got = {name: np.stack([run[name] for run in runs]) for name in expected}
    runner.reset_state(program)
    measured = None
    if reference.floats_only():
        measured = Conditioning(lambda inputs: reference.run(inputs, STATE_STEPS), arrays, expected)
    rule = Rule(given, reference.roundings(), measured)
    rows = [_output_row(info, got[info.name], expected, rule) for info in program.outputs]
    report = CheckReport(reference.name, keep, rows, tolerance=str(rule), runs=STATE_STEPS)
    if keep == "all":
        first = {name: values[0] for name, values in expected.items()}
        shapes = {t.name: t.shape for t in program.inputs}
        kept = compile_program(model, config, shapes, keep="all", **options)
        inner = check_all(reference, runner, kept, arrays, first, runs[0])
        inner.rows = [*[row for row in inner.rows if row.name not in first], *rows]
        inner.runs = STATE_STEPS
        return inner
    return report


def _compiled(
    model: str | Path | bytes | onnx.ModelProto,
    config: NpuConfig | str | Path,
    shapes: Mapping[str, Sequence[int]] | None,
    inputs: Mapping[str, np.ndarray] | np.ndarray | None,
    options: dict[str, Any],
) -> Program | DynamicModel:
    """One program if the shapes of the inputs make it one, else a dynamic model."""
    try:
        batch = None if isinstance(inputs, Mapping) else 1  # the inputs say it
        return compile_program(model, config, shapes, batch=batch, **options)
    except OpenShapeError:
        if not isinstance(inputs, Mapping):
            raise
    except StagingError:
        return compile(model, config, shapes, **options)
    return compile(model, config, {n: np.shape(v) for n, v in inputs.items()}, **options)


def rule_of(
    reference: Reference | LiteRtReference | IreeReference,
    inputs: Mapping[str, np.ndarray],
    expected: Mapping[str, np.ndarray],
    given: Tolerance | None,
) -> Rule:
    """The rule for comparing outputs of a run with `expected`, those of the reference."""
    measured = Conditioning(reference.run, inputs, expected) if reference.floats_only() else None
    return Rule(given, reference.roundings(), measured)


def _output_row(info: TensorInfo, got: np.ndarray, expected: Mapping[str, np.ndarray], rule: Rule) -> TensorRow:
    if info.name not in expected:
        raise UsageError(f"the reference has no output {info.name!r}; is the program of this model?")
    d = rule.compare(info.name, got, expected[info.name])
    status = "mismatch" if d.mismatches else "equal"
    return TensorRow(
        info.name, info.where, info.dtype, tuple(info.shape), d.elements, d.mismatches, d.maximum, status, info.reason,
        note=d.note, range=d.range, limit=d.limit,
    )  # fmt: skip


def check_all(
    reference: Reference | LiteRtReference | IreeReference,
    runner: Runner,
    kept: Program,
    inputs: Mapping[str, np.ndarray],
    expected: Mapping[str, np.ndarray],
    normal: Mapping[str, np.ndarray],
    rule: Rule | None = None,
) -> CheckReport:
    """Compares every tensor a keep="all" program keeps.

    Args:
        kept: the program.
        expected: the reference's outputs.
        normal: outputs of the normally compiled program.
        rule: how tensors are compared, by default that of the reference's network.
    """
    rule = rule or rule_of(reference, inputs, expected, None)
    report = CheckReport(reference.name, "all", tolerance=str(rule))
    infos = {n: t for n, t in kept_tensors(kept.tensors).items() if t.dtype in ("int8", "uint8", "int16", "uint16")}
    infos = {n: t for n, t in infos.items() if n not in {s.end.name for s in kept.states}}
    infos = {n: replace(t, reason=t.reason or reference.reason) for n, t in infos.items()}
    infos = {n: t for n, t in infos.items() if n not in inputs and (n not in expected or is_border(t))}
    values, missing = reference.intermediates(list(infos), inputs)
    report.skipped.update(missing)
    report.skipped.update({t.name: "never in memory" for t in kept.tensors if not t.buffer and t.name not in expected})
    inside = [n for n in reference.quantised_tensors() if n not in expected]
    report.quantised = len(inside)
    report.fused = [n for n in inside if n not in values]
    report.borders = {n: t.reason for n, t in infos.items() if is_border(t)}
    behind = reference.downstream(report.borders)

    runner.reset_state(kept)
    free = runner.run_detailed(kept, inputs)
    compare = lambda name, found: rule.compare(name, found[name], values[name])
    plain = {name: compare(name, runner.tensors([name])) for name in infos if name in values}  # one at a time: memory

    force = {n: values[n] for n in report.borders if n in values and _can_force(kept, infos[n], values[n])}
    runner.reset_state(kept)
    forced = runner.run_detailed(kept, inputs, force=force) if force else free

    for name, info in infos.items():
        if name not in values:
            continue
        found = forced.observed if force and name in forced.observed else runner.tensors([name])
        row = _row(info, compare(name, found) if force else plain[name], plain[name])
        row.depends_on = [b for b in behind.get(name, []) if b != name]
        if name in force:
            off = {r.name for r in report.rows if r.status == "border"}
            unproven = _unproven(reference, info, row, found[name], values[name], inputs)
            before, twice = off.intersection(behind.get(name, [])), reference.rounded_twice(name)
            _judge_border(row, forced, before, unproven, name in expected, twice)
        elif row.free_differences and name not in behind:
            row.status, row.mismatches = "mismatch", max(row.mismatches, row.free_differences)
        report.rows.append(row)
        del values[name]
    for info in kept.outputs:
        row = _final_row(info, forced.outputs, free.outputs, normal, expected, behind, rule)
        if row.status == "mismatch" or info.name not in force:
            report.rows.append(row)
    return report


def _unproven(
    reference: Reference | LiteRtReference | IreeReference,
    info: TensorInfo,
    row: TensorRow,
    got: np.ndarray,
    expected: np.ndarray,
    inputs: Mapping[str, np.ndarray],
) -> int | None:
    """Number of differing elements of a border whose float is not next to a tie. None where the reference does not show
    the floats that are rounded."""
    names = reference.floats_of(info.name) if row.mismatches and not row.note else []
    floats = reference.intermediates(names, inputs)[0] if names else {}
    return next((away_from_ties(info, got, expected, floats[n]) for n in names if n in floats), None)


def is_border(info: TensorInfo) -> bool:
    """Whether the tensor may be off by a step: floats rounded to integers by the CPU, or a rule that the machine does
    not have exactly, as the importer says."""
    return bool(info.reason)


def _can_force(program: Program, info: TensorInfo, value: np.ndarray) -> bool:
    same = str(value.dtype) == info.dtype and value.shape == tuple(info.shape)
    return same and sharing(program.buffers, info.buffer) is None


def _row(info: TensorInfo, local: Difference, free: Difference) -> TensorRow:
    return TensorRow(
        info.name, info.where, info.dtype, tuple(info.shape), local.elements, local.mismatches, local.maximum,
        "mismatch" if local.mismatches else "equal", info.reason, free.mismatches, free.maximum, note=local.note,
        range=local.range, limit=local.limit,
    )  # fmt: skip


def _judge_border(
    row: TensorRow, forced: RunResult, off: set[str], unproven: int | None, is_output: bool, twice: float
) -> None:
    """Decides whether what a border tensor is off by is what its reason allows.

    Where the reference shows the floats before the rounding, that is one step where these lie next to a tie, and
    nothing else. Where it does not, it is one step in few elements; of an output of the model nothing, unless its
    reason is `ROUNDS_TWICE` or `BEHIND`.

    Args:
        off: borders before it that were off.
        unproven: elements that differ away from a tie, None where that is not known.
        twice: the share that a second rounding may change.
    """
    if forced.unwritten.get(row.name):
        row.status, row.note = "mismatch", "parts of it are never written"
        row.mismatches = max(row.mismatches, forced.unwritten[row.name])
        return
    if not row.mismatches or row.note:
        return
    step = forced.step_of.get(row.name)
    nested = [name for name in off if forced.step_of.get(name) == step]
    behind = bool(nested) or BEHIND in row.reason
    if unproven is not None and not (behind and unproven):
        row.status = "mismatch" if unproven else "border"
        row.note = f"{unproven} of them are not next to a tie" if unproven else ""
        return
    if is_output and not any(text in row.reason for text in (BEHIND, ROUNDS_TWICE)):
        return
    share, limit = (NESTED_SHARE, NESTED_STEP) if behind else (max(BORDER_SHARE, twice), BORDER_STEP)
    if row.mismatches <= max(BORDER_FEW, share * row.elements) and row.max_abs_difference <= limit:
        row.status = "border"
        row.note = f"also behind {', '.join(sorted(nested))} of the same step" if nested else ""


def _final_row(
    info: TensorInfo,
    forced: Mapping[str, np.ndarray],
    free: Mapping[str, np.ndarray],
    normal: Mapping[str, np.ndarray],
    expected: Mapping[str, np.ndarray],
    behind: Mapping[str, list[str]],
    rule: Rule,
) -> TensorRow:
    """A graph output: equal under forcing; in the plain run too, unless borders are before it, and then the normally
    compiled program must at least give what the one that keeps everything gives."""
    name = info.name
    row = _row(info, *(rule.compare(name, found[name], expected[name]) for found in (forced, normal)))
    row.depends_on = behind.get(name, [])
    against = rule.compare(name, normal[name], free[name])
    if row.depends_on and against.mismatches:
        row.status, row.mismatches = "mismatch", max(row.mismatches, against.mismatches)
        row.note = 'the program compiled with keep="all" gives other outputs than the normal one'
    elif not row.depends_on and row.free_differences:
        row.status, row.mismatches = "mismatch", max(row.mismatches, row.free_differences)
        row.max_abs_difference = max(row.max_abs_difference, row.free_max)
    return row
