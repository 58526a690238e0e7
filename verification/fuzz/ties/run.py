"""Runs batches of cases in one file each; a batch that differs is halved until single cases are left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

import tilewright as tw
from tilewright.checking.onnxruntime_reference import reference_of
from tilewright.compiler.importer.tflite.schema import read
from verification.fuzz.ties import onnx_cases, tflite_cases
from verification.fuzz.ties.onnx_model import TyingModel
from verification.fuzz.ties.tflite_model import TyingFile

#: Where batches run, in turn.
PLACES: tuple[dict[str, Any], ...] = (
    {"config": "tiny", "effort": 0},
    {"cpu_only": True},
    {"config": "base", "effort": 0},
)
#: Refusals that the documentation names, by what their messages say.
REFUSALS = {
    "is accepted, as LiteRT computes in 32 bits": "beyond LiteRT's 32 bits",
    "results before the limits of 16 bits": "beyond LiteRT's 32 bits",
    "of that of the result; below 128 is accepted": "factor of 128 and more at 16 bits",
}
#: How a reference says that it is not the one to compare with: other cases of the file would be rounded otherwise.
WITHOUT_XNNPACK = "without XNNPACK"
FALLEN_BACK = ("without graph optimisations", WITHOUT_XNNPACK)
#: Scales whose sums of products leave float32, and what `_beyond_float32` puts in their place.
HUGE, TAMED = np.float32(1e37), np.float32(1e30)
_MOVES = ("QuantizeLinear", "DequantizeLinear", "Cast")


@dataclass(frozen=True)
class Batch:
    """Some cases in one file.

    Attributes:
        format: "onnx" or "tflite".
        dtype: of activations.
        seed: of the batch; case `k` draws from `(seed, k)`.
        cases: their numbers.
    """

    format: str
    dtype: str
    seed: int
    cases: tuple[int, ...]

    def names(self) -> list[str]:
        return [self._name(k) for k in self.cases]

    def _table(self) -> dict[str, Any]:
        if self.format == "tflite":
            wide = {n: tflite_cases.CASES[n] for n in tflite_cases.WIDE}
            return wide if self.dtype == "int16" else tflite_cases.CASES
        wide = {n: onnx_cases.ALL[n] for n in onnx_cases.SIXTEEN_BITS}
        return wide if self.dtype in ("int16", "uint16") else onnx_cases.ALL

    def _name(self, k: int) -> str:
        """Cases follow each other through the table, which batches enter at different places."""
        names = sorted(self._table())
        return names[(7 * self.seed + k) % len(names)]

    def build(self) -> tuple[Any, dict[str, np.ndarray], int]:
        """Model, inputs, and how many operators besides QuantizeLinear and DequantizeLinear it has."""
        table = self._table()
        made: TyingModel | TyingFile
        made = TyingFile(self.dtype) if self.format == "tflite" else TyingModel(np.dtype(self.dtype))
        for k in self.cases:
            made.begin((self.seed, k))
            table[self._name(k)](made, int(made.rng.integers(1 << 16)))
        model = made.build()
        if isinstance(model, onnx.ModelProto):
            return model, made.feeds(), sum(n.op_type not in _MOVES for n in model.graph.node)
        return model, made.feeds(), len(read(model).ops)


@dataclass
class Result:
    """Counts and faults of some batches.

    Attributes:
        operators: that ran and were compared.
        borders: elements that may differ by what their tensors' reasons allow, and do.
        skipped: cases that the reference refuses.
        documented: cases that Tilewright refuses or gives other results of, by the border that docs/tflite.md or
            docs/numerics.md names.
        faults: one text for each case that differs, is refused or ends in an error.
    """

    operators: int = 0
    elements: int = 0
    borders: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    documented: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


def run(batch: Batch, result: Result) -> None:
    """Compiles, runs and compares a batch as `--check` does, and adds what it gave to `result`."""
    model, feeds, operators = batch.build()
    fallen_back, reference = False, ""
    try:
        report = tw.check(model, feeds, cache=False, **PLACES[batch.seed % len(PLACES)])
        problem, reference = "" if report.ok else _differences(report), report.reference
        fallen_back = len(batch.cases) > 1 and any(text in report.reference for text in FALLEN_BACK)
        problem = report.reference if fallen_back else problem
    except Exception as error:  # a file that cannot be compiled or run is a finding like any other
        problem = f"{type(error).__name__}: {error}"
    if not problem:
        result.operators += operators
        result.elements += report.elements
        result.borders += sum(r.mismatches for r in report.rows if r.status == "border")
    elif len(batch.cases) > 1:
        before = len(result.faults), result.skipped.total(), result.documented.total()
        middle = len(batch.cases) // 2
        for half in (batch.cases[:middle], batch.cases[middle:]):
            run(Batch(batch.format, batch.dtype, batch.seed, half), result)
        if before == (len(result.faults), result.skipped.total(), result.documented.total()) and not fallen_back:
            result.faults.append(f"{_command(batch)}  together only: {problem}")
    elif WITHOUT_XNNPACK in reference:  # "The kernel that LiteRT takes" in docs/tflite.md
        result.documented[WITHOUT_XNNPACK] += 1
    elif named := _documented(problem) or _beyond_float32(model, feeds, batch) or _beyond_16_bits(model):
        result.documented[named] += 1
    elif not _reference_runs(model, feeds):
        result.skipped[batch.names()[0]] += 1
    else:
        result.faults.append(f"{_command(batch)}  {batch.names()[0]}: {problem}")


def _documented(problem: str) -> str:
    """Returns the border that a refusal is, or nothing."""
    return next((name for text, name in REFUSALS.items() if text in problem), "")


def _beyond_float32(model: Any, feeds: Mapping[str, np.ndarray], batch: Batch) -> str:
    """Returns the border of sums that a scale takes beyond float32: with a scale whose sums fill the range of the
    result just as well, but fit float32, the same case must be equal."""
    if not isinstance(model, onnx.ModelProto):
        return ""
    tamed, huge = onnx.ModelProto(), False
    tamed.CopyFrom(model)
    for constant in tamed.graph.initializer:
        values = onnx.numpy_helper.to_array(constant)
        if values.dtype == np.float32 and (values > HUGE).any():
            huge = True
            constant.CopyFrom(onnx.numpy_helper.from_array(np.minimum(values, TAMED), constant.name))
    same = huge and tw.check(tamed, feeds, cache=False, **PLACES[batch.seed % len(PLACES)]).ok
    return "sums beyond float32" if same else ""


def _differences(report: tw.CheckReport) -> str:
    return "; ".join(
        f"{r.name}: {r.mismatches} of {r.elements} differ, by at most {r.max_abs_difference:g}"
        for r in report.rows
        if r.status == "mismatch"
    )


def _command(batch: Batch) -> str:
    numbers = ",".join(map(str, batch.cases))
    return (
        f"python -m verification.fuzz.ties --{batch.format} --dtype {batch.dtype} --seed {batch.seed} --cases {numbers}"
    )


def _reference_runs(model: Any, feeds: Mapping[str, np.ndarray]) -> bool:
    try:
        reference_of(model).run(dict(feeds))
    except Exception:
        return False
    return True


def _beyond_16_bits(model: Any) -> str:
    """The border of TFLite's sums and products that leave 16 bits before they are limited: LiteRT's wrap around."""
    if isinstance(model, onnx.ModelProto):
        return ""
    file = read(model)
    for op in file.ops:
        if op.name not in ("ADD", "SUB", "MUL"):
            continue
        quants = [file.tensors[i].quant for i in (*op.inputs, *op.outputs)]
        a, b, y = (float(np.max(q.scale)) if q is not None else 0.0 for q in quants)
        most = 255 * 255 * a * b if op.name == "MUL" else 255 * (a + b)
        if y and most / y >= 2**15:
            return "sums and products beyond 16 bits"
    return ""
