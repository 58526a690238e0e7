"""Outputs of a dynamic model against the reference runtime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.checking.differences import Difference, Rule
from tilewright.checking.onnxruntime_reference import reference_of
from tilewright.checking.report import CheckReport, TensorRow
from tilewright.checking.tolerance import Conditioning, Tolerance
from tilewright.dynamic.model import DynamicModel
from tilewright.dynamic.values import Value, as_value
from tilewright.errors import UsageError
from tilewright.runtime.devices import Runner


def check_outputs(
    reference_model: Any, model: DynamicModel, inputs: Mapping[str, Any], runner: Runner, given: Tolerance | None = None
) -> CheckReport:
    """Runs both and compares every output; of a sequence every element.

    Args:
        reference_model: what the dynamic model was made from.
        given: tolerance of floats, None for the default.

    Raises:
        TilewrightError: one of them cannot be run.
    """
    reference = reference_of(reference_model)
    expected = reference.run({**model.constants, **inputs})
    got = model.run(runner, inputs).outputs
    tensors = all(isinstance(v, np.ndarray) for some in (inputs, expected) for v in some.values())
    measured = Conditioning(reference.run, inputs, expected) if tensors and reference.floats_only() else None
    rule = Rule(given, reference.roundings(), measured)
    report = CheckReport(reference.name, "outputs", tolerance=str(rule))
    for name in model.outputs:
        if name not in expected:
            raise UsageError(f"the reference has no output {name!r}; is the program of this model?")
        report.rows += _rows(name, got[name], as_value(expected[name]), rule)
    return report


def _rows(name: str, got: Value, expected: Value, rule: Rule) -> list[TensorRow]:
    if isinstance(got, list) and isinstance(expected, list) and len(got) == len(expected):
        return [row for k, (a, b) in enumerate(zip(got, expected)) for row in _rows(f"{name}[{k}]", a, b, rule)]
    if not isinstance(got, np.ndarray) or not isinstance(expected, np.ndarray):
        same = got is None and expected is None
        count = 0 if same else 1
        return [TensorRow(name, "cpu", "", (), count, count, 0.0, "equal" if same else "mismatch")]
    if got.dtype == np.object_ and expected.dtype == np.object_ and got.shape == expected.shape:
        found = Difference(got.size, int(np.count_nonzero(got != expected)), 0.0)
    else:
        found = rule.compare(name, got, expected)
    status = "mismatch" if found.mismatches else "equal"
    return [
        TensorRow(name, "cpu", got.dtype.name, got.shape, found.elements, found.mismatches, found.maximum, status,
                  note=found.note, range=found.range, limit=found.limit)
    ]  # fmt: skip
