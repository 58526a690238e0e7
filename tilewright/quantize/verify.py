"""The last step: what was written must load and run in onnxruntime and in our compiler, and both must agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from isa.program import Program
from tilewright.api.compilation import compile
from tilewright.checking.model import check
from tilewright.checking.report import CheckReport
from tilewright.errors import TilewrightError, UsageError
from tilewright.quantize.memory import give_back
from tilewright.quantize.observe import run, session
from tilewright.quantize.recipe import Progress, Sample


@dataclass(frozen=True)
class Verified:
    """What running a quantised model both ways has shown.

    Attributes:
        report: our compiler's outputs beside those of onnxruntime.
        npu_macs, macs: multiply-accumulates on the NPU, and all; 0 where the model is compiled while it runs.
    """

    report: CheckReport
    npu_macs: int
    macs: int

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"npu_macs": self.npu_macs, "macs": self.macs, "check": self.report.to_dict()}

    def __str__(self) -> str:
        text = f"loads and runs in both: {self.report.summary()}"
        return f"{text}; {self.npu_macs / self.macs:.1%} of the MACs on the NPU" if self.macs else text


def verify(model: onnx.ModelProto, sample: Sample, progress: Progress | None = None) -> Verified:
    """Loads a quantised model in onnxruntime and in our compiler, and runs both.

    Raises:
        UsageError: one of them refuses it; the message says which and why.
    """
    report = progress or (lambda text, done: None)
    report("running the result: onnxruntime", 0.0)
    for name, value in run(session(model), sample).items():
        if isinstance(value, np.ndarray) and value.dtype.kind == "f" and np.isnan(value).any():
            raise UsageError(f"the quantised model gives NaN in output {name!r}")
    give_back()
    shapes = {name: list(value.shape) for name, value in sample.items()}
    try:
        compiling = lambda stage, done: report(f"compiling: {stage}", done)
        program = compile(model, "base", shapes, effort=0, cache=False, progress=compiling)
        report("running the result: Tilewright, beside onnxruntime", 0.9)
        found = check(model, sample, program=program)
        give_back()
    except TilewrightError as error:
        raise UsageError(f"the quantised model does not run in Tilewright: {error}") from error
    macs = (program.npu_macs, program.macs) if isinstance(program, Program) else (0, 0)
    return Verified(found, *macs)
