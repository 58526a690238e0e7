"""The last step: what was written must load and run in onnxruntime and in our compiler, and both must agree.

It runs in a process of its own (`verifying`): compiler and LLVM take more memory than all that was done before, and
what a runtime may crash on is an error here, not the end.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tilewright.checking.report import CheckReport
from tilewright.common import temporary
from tilewright.errors import UsageError
from tilewright.measure.off_npu import Cause, as_json, table
from tilewright.quantize.first_steps import STEPS
from tilewright.quantize.recipe import Progress, Sample

MODEL, SAMPLE, RESULT = "model.onnx", "sample.pickle", "result.pickle"
"""File names in the folder that both processes use."""

_CAUSES = 5  # printed


@dataclass(frozen=True)
class Verified:
    """Results of a quantised model run by our compiler and by onnxruntime.

    Attributes:
        report: our compiler's outputs beside those of onnxruntime.
        npu_macs, macs: multiply-accumulates on the NPU, and all; 0 where the model is compiled while it runs.
        turns: how often the NPU is started in a run; 0 as before.
        causes: what keeps MACs off the NPU.
        steps: of the longest recurrent layer, if only its first `first_steps.STEPS` were compiled and counted; else 0.
    """

    report: CheckReport
    npu_macs: int
    macs: int
    turns: int = 0
    causes: tuple[Cause, ...] = ()
    steps: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Returns the findings for JSON."""
        return {
            "npu_macs": self.npu_macs, "macs": self.macs, "turns": self.turns, "off_npu": as_json(self.causes),
            "check": self.report.to_dict(),
        } | ({"first_steps": STEPS, "steps": self.steps} if self.steps else {})  # fmt: skip

    def __str__(self) -> str:
        steps = f" (of {self.steps} steps the first {STEPS})" if self.steps else ""
        text = f"loads and runs in both{steps}: {self.report.summary()}"
        if not self.macs:
            return text
        turns = f" in {self.turns} turn{'' if self.turns == 1 else 's'}" if self.turns else ""
        off = "".join(f"\n  {share} not: {count} x {cause}" for cause, count, share in table(self.causes[:_CAUSES]))
        return f"{text}; {self.npu_macs / self.macs:.1%} of the MACs on the NPU{turns}{off}"


def verify(model: onnx.ModelProto, sample: Sample, progress: Progress | None = None) -> Verified:
    """Loads a quantised model in onnxruntime and in our compiler, and runs both.

    Raises:
        UsageError: one of them refuses it; the message says which and why.
    """
    with temporary.Folder(prefix="tilewright-quantize-") as folder:
        Path(folder, MODEL).write_bytes(model.SerializeToString())
        Path(folder, SAMPLE).write_bytes(pickle.dumps({name: np.asarray(value) for name, value in sample.items()}))
        ending = _run(folder, progress or (lambda text, done: None))
        result = Path(folder, RESULT)
        found = pickle.loads(result.read_bytes()) if result.exists() else None  # written by our own code
    if isinstance(found, Verified):
        return found
    raise UsageError(found or f"the quantised model does not run in Tilewright: the process that ran it {ending}")


def _run(folder: str, progress: Progress) -> str:
    """Runs `verifying` in a process, passing on its progress; returns how the process ended, as text."""
    paths = os.pathsep.join(path for path in sys.path if path)
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tilewright.quantize.verifying", folder],
            stdout=subprocess.PIPE, stderr=errors, text=True, env=os.environ | {"PYTHONPATH": paths},
        )  # fmt: skip
        try:
            assert process.stdout is not None
            for line in process.stdout:
                with contextlib.suppress(ValueError):  # a library that prints
                    text, done = json.loads(line)
                    progress(text, done)
            code = process.wait()
        finally:
            process.kill()
            process.wait()
        errors.seek(0)
        last = errors.read().decode(errors="replace").strip().splitlines()
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with code {code}: {last[-1] if last else 'without a word'}"
