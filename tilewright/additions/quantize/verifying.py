"""The process that loads and runs a quantised model in both runtimes; see `verify`.

python -m tilewright.quantize.verifying FOLDER     reads model and sample there, writes the result or a message
"""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path

import numpy as np
import onnx

from tilewright.api.compilation import compile
from tilewright.checking.model import check
from tilewright.errors import TilewrightError, UsageError
from tilewright.isa.program import NpuStep, Program
from tilewright.measure.off_npu import causes
from tilewright.quantize import first_steps
from tilewright.quantize.memory import separate_blocks, trim_heap
from tilewright.quantize.observe import run, session
from tilewright.quantize.recipe import Progress, Sample
from tilewright.quantize.verify import MODEL, RESULT, SAMPLE, Verified


def verify_here(model: onnx.ModelProto, sample: Sample, progress: Progress | None = None) -> Verified:
    """Runs `verify.verify` in this process."""
    report = progress or (lambda text, done: None)
    report("running the result: onnxruntime", 0.0)
    scans = first_steps.scans_of(model)
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    whole.graph.output.extend(onnx.ValueInfoProto(name=first_steps.scanned_by(scan)) for scan in scans)
    values = run(session(whole), sample)
    del whole
    for name, value in values.items():
        if isinstance(value, np.ndarray) and value.dtype.kind == "f" and np.isnan(value).any():
            raise UsageError(f"the quantised model gives NaN in output {name!r}")
    steps = {scan.name: len(values[first_steps.scanned_by(scan)]) for scan in scans}
    steps = {name: count for name, count in steps.items() if count > first_steps.STEPS}
    model = first_steps.first_steps(model, steps) if steps else model
    del values
    trim_heap()
    shapes = {name: list(value.shape) for name, value in sample.items()}
    try:
        compiling = lambda stage, done: report(f"compiling: {stage}", done)
        program = compile(model, "base", shapes, effort=0, cache=False, progress=compiling)
        report("running the result: Tilewright, beside onnxruntime", 0.9)
        found = check(model, sample, program=program)
        trim_heap()
    except TilewrightError as error:
        raise UsageError(f"the quantised model does not run in Tilewright: {error}") from error
    most = max(steps.values(), default=0)
    if not isinstance(program, Program):
        return Verified(found, 0, 0, steps=most)
    turns = sum(isinstance(step, NpuStep) for step in program.steps)
    return Verified(found, program.npu_macs, program.macs, turns, tuple(causes(program)), most)


def main(folder: Path) -> None:
    """Verifies what is in the folder; progress goes to standard output, a JSON list of text and fraction a line."""
    separate_blocks()
    model = onnx.load(str(folder / MODEL))
    sample = pickle.loads((folder / SAMPLE).read_bytes())
    found: Verified | str
    try:
        found = verify_here(model, sample, lambda text, done: print(json.dumps([text, done]), flush=True))
    except UsageError as error:
        found = str(error)
    (folder / RESULT).write_bytes(pickle.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
