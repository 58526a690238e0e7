"""The last step: what was written must load and run in onnxruntime and in our compiler, and both must agree."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from tilewright.checking.model import check
from tilewright.checking.report import CheckReport
from tilewright.errors import TilewrightError, UsageError
from tilewright.quantize.observe import run, session
from tilewright.quantize.recipe import Sample


@dataclass(frozen=True)
class Verified:
    """What came out of running a quantised model both ways.

    Attributes:
        report: our compiler's outputs beside those of onnxruntime.
        npu_macs, macs: multiply-accumulates on the NPU, and all of those in quantised layers and others.
    """

    report: CheckReport
    npu_macs: int
    macs: int


def verify(model: onnx.ModelProto, sample: Sample) -> Verified:
    """Loads a quantised model in onnxruntime and in our compiler, and runs both.

    Raises:
        UsageError: one of them refuses it; the message says which and why.
    """
    outputs = run(session(model), sample)
    for name, value in outputs.items():
        if isinstance(value, np.ndarray) and value.dtype.kind == "f" and np.isnan(value).any():
            raise UsageError(f"the quantised model gives NaN in output {name!r}")
    from isa.program import Program
    from tilewright.api.compilation import compile

    shapes = {name: list(value.shape) for name, value in sample.items()}
    try:
        program = compile(model, "base", shapes, effort=0, cache=False)
        report = check(model, sample, program=program)
    except TilewrightError as error:
        raise UsageError(f"the quantised model does not run in Tilewright: {error}") from error
    macs = (program.npu_macs, program.macs) if isinstance(program, Program) else (0, 0)
    return Verified(report, *macs)
