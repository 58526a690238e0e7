"""Float TFLite models, quantised by Google's ai-edge-quantizer (the extra `tflite`), checked as ONNX models are."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.api.compilation import compile
from tilewright.checking.litert_reference import LiteRtReference
from tilewright.checking.model import check as check_model
from tilewright.common import store
from tilewright.common.installation import install_extra
from tilewright.common.options import collect, keywords
from tilewright.common.quiet import quiet
from tilewright.common.shown import Shown
from tilewright.compiler.importer.tflite.schema import FileModel, FileTensor
from tilewright.compiler.importer.tflite.schema import read as read_file
from tilewright.errors import TilewrightError, UsageError
from tilewright.isa.program import Program
from tilewright.measure.off_npu import causes
from tilewright.quantize.accuracy import TARGET
from tilewright.quantize.finite import Finite
from tilewright.quantize.metric import Comparison, Outputs, Run, compare, read_labels
from tilewright.quantize.model_inputs import Input
from tilewright.quantize.options import QuantizeOptions
from tilewright.quantize.recipe import Progress, Sample, Samples
from tilewright.quantize.sample_values import LARGEST
from tilewright.quantize.samples import Data, samples_of, split, which
from tilewright.quantize.sqnr import BEST, Noise, Report, resized
from tilewright.quantize.tflite_prepare import prepare_tflite
from tilewright.quantize.verify import Verified
from tilewright.store.files import write_bytes


@dataclass(frozen=True, repr=False)
class QuantizedTflite(Shown):
    """A quantised TFLite model: the bytes of its file, and what running it showed. `noise` has no layers."""

    data: bytes
    verified: Verified | None = None
    comparison: Comparison | None = None
    noise: Report | None = None

    def serialized(self) -> bytes:
        """The file."""
        return self.data

    def save(self, path: str | Path) -> None:
        """Writes the file."""
        write_bytes(Path(path), self.data)

    def facts(self) -> dict[str, Any]:
        """Returns facts about the model, for `repr` and notebooks."""
        check = {"check": self.verified.report.summary()} if self.verified is not None else {}
        return {"form": "tflite", "activation": "int8", "bytes": len(self.data)} | check

    def to_dict(self) -> dict[str, Any]:
        """Returns facts for JSON, as `tilewright quantize --json` prints them."""
        found: dict[str, Any] = {"bytes": len(self.data), "activation": "int8", "form": "tflite"}
        if self.verified is not None:
            found["verified"] = self.verified.to_dict()
        if self.comparison is not None:
            found["check"] = asdict(self.comparison)
        if self.noise is not None:
            found["sqnr"] = self.noise.to_dict()
        return found

    def lines(self) -> list[str]:
        """Returns the lines that the command prints."""
        found = [str(x) for x in (self.verified, self.comparison, self.noise) if x is not None]
        short = [name for name, x in (self.noise.outputs if self.noise else {}).items() if x < TARGET]
        if short:
            found.append(
                f"warning: {', '.join(short)} did not reach {TARGET:g} dB: an output file that ends in .onnx "
                "(`as_onnx`) has ranges of least error and fitted weights, and keeps in floats what needs them"
            )
        return found


@keywords(QuantizeOptions)
def quantize_tflite(model: str | Path | bytes, data: Data, **options: Any) -> QuantizedTflite:
    """Quantises a float TFLite model: int8 weights, one scale per output channel, and int8 activations.

    Args:
        model: file or its bytes.
        data: calibration data; see `samples.samples_of`.
        options: fields of `QuantizeOptions`, but for those of ONNX models.

    Raises:
        UsageError: ai-edge-quantizer is not installed, the model is quantised already, the data does not fit, or
            LiteRT or our compiler refuses the result.
    """
    o = collect(QuantizeOptions, options, "quantize_tflite")
    o.check_tflite()
    raw = bytes(model) if isinstance(model, bytes) else read_bytes(Path(model))
    given = float_model(raw)
    inputs = {t.name: _input(t) for t in (given.tensors[i] for i in given.inputs)}
    samples = samples_of(data, inputs, o.images)
    calibration, held = split(samples, o.held_back)
    known = read_labels(Path(o.labels), len(samples)) if o.labels is not None else None

    written = _quantized(raw, given, calibration, o.progress)
    verified = _verify(written, held[0]) if o.check else None
    comparison = None
    if o.metric is not None:
        comparison = compare(o.metric, LiteRtReference(raw).run, _run_floats(written, given), held, known, o.progress)
    noise = _noise(LiteRtReference(raw).run, _run_floats(written, given), held) if o.check else None
    return QuantizedTflite(written, verified, comparison, noise)


def read_bytes(path: Path) -> bytes:
    """A file's bytes. Raises `UsageError` if it cannot be read."""
    try:
        return store.read(path)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None


def float_model(raw: bytes) -> FileModel:
    """A float model's file. Raises `UsageError` if it is quantised already."""
    found = read_file(raw)
    made = [found.tensors[i] for op in found.ops for i in op.outputs]
    done = next((t for t in made if t.quant is not None and t.dtype in (np.int8, np.uint8, np.int16)), None)
    if done is not None:
        raise UsageError(f"the model is quantised already: its tensor {done.name!r} is {done.dtype}")
    return found


def _input(tensor: FileTensor) -> Input:
    if tensor.dtype is None:
        raise UsageError(f"input {tensor.name!r} has the type {tensor.type_name}, which is not accepted")
    sizes = tensor.signature or tensor.shape
    return Input(np.dtype(tensor.dtype), tuple(None if n < 0 else n for n in sizes))


def _quantized(raw: bytes, given: FileModel, samples: Samples, progress: Progress | None) -> bytes:
    try:
        with quiet(printing=True):
            from ai_edge_litert.interpreter import Interpreter
            from ai_edge_quantizer import quantizer, recipe
    except ImportError as error:
        command = install_extra("tflite")
        raise UsageError(
            f"TFLite models are quantised by ai-edge-quantizer, which is not installed ({error.name}): {command}"
        ) from None
    index = {t.index: t.name for t in given.tensors}
    try:
        with quiet(printing=True):
            raw = prepare_tflite(raw)
            interpreter = Interpreter(model_content=raw)
            key = next(iter(interpreter.get_signature_list()))
            details = interpreter.get_signature_runner(key).get_input_details()
            names = {argument: index[int(detail["index"])] for argument, detail in details.items()}
            del interpreter
            work = quantizer.Quantizer(raw, recipe.static_wi8_ai8())
            found = work.calibrate({key: _Feeds(samples, names, progress)})
            _require_finite(raw, found, samples)
            return bytes(work.quantize(found, enable_progress_report=False).quantized_model)
    except TilewrightError:
        raise
    except Exception as error:  # it raises ValueError, RuntimeError, KeyError and others for what it cannot do
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UsageError(f"ai-edge-quantizer cannot quantise the model: {reason}") from error


def _require_finite(raw: bytes, ranges: dict[str, Any], samples: Samples) -> None:
    """Raises `UsageError` if a tensor overflowed in calibration, and names the first sample whose outputs did, if one
    has."""
    limits = {name: np.array([found.get(side, 0) for side in ("min", "max")]) for name, found in ranges.items()}
    bad = [name for name, both in limits.items() if not (np.abs(both) <= LARGEST).all()]
    if not bad:
        return
    reference = LiteRtReference(raw)
    finite = Finite((), {})
    for index, sample in enumerate(samples):
        for name, value in reference.run(sample).items():
            finite.check(name, value, sample, which(samples, index))
    low, high = (float(side.ravel()[0]) for side in limits[bad[0]])
    raise UsageError(
        f"calibration: in the float model {bad[0]!r} lies within {low:g}..{high:g} for one of {len(samples)} samples; "
        f"numbers within ±{LARGEST:.2g} are accepted: scale samples as when the model runs"
    )


class _Feeds:
    """Iterates over samples, as often as wanted, under the names of the signature's arguments."""

    def __init__(self, samples: Samples, names: dict[str, str], progress: Progress | None) -> None:
        self.samples = samples
        self.names = names
        self.progress = progress or (lambda text, done: None)

    def __len__(self) -> int:
        return len(self.samples)

    def __iter__(self) -> Iterator[Sample]:
        for at, sample in enumerate(self.samples):
            yield {argument: sample[name] for argument, name in self.names.items()}
            with contextlib.redirect_stderr(sys.__stderr__):
                self.progress("calibrating", (at + 1) / len(self.samples))


def _verify(raw: bytes, sample: Sample) -> Verified:
    """Loads the result in LiteRT and in our compiler, and runs both."""
    quantised = read_file(raw)
    inputs = _integers(quantised, sample)
    try:
        LiteRtReference(raw).run(inputs)
        shapes = {name: tuple(value.shape) for name, value in inputs.items()}
        program = compile(raw, "base", shapes, effort=0, cache=False)
        report = check_model(raw, inputs, program=program)
    except TilewrightError as error:
        raise UsageError(f"the quantised model does not run in LiteRT and Tilewright: {error}") from error
    assert isinstance(program, Program)
    return Verified(report, program.npu_macs, program.macs, causes=tuple(causes(program)))


def _noise(before: Run, after: Run, samples: Samples) -> Report:
    """Compares the outputs of the quantised model with those of the float one."""
    whole: dict[str, Noise] = {}
    lowest: dict[str, float] = {}
    equal: dict[str, list[int]] = {}  # elements, and equal ones
    for sample in samples:
        found = after(sample)
        for name, value in before(sample).items():
            if value.dtype.kind != "f":
                size, same = equal.get(name, (0, 0))
                same += int(np.count_nonzero(value == resized(found[name], value.shape)))
                equal[name] = [size + value.size, same]
                continue
            one = Noise()
            one.add(value, found[name])
            whole.setdefault(name, Noise()).join(one)
            lowest[name] = min(lowest.get(name, BEST), one.decibels)
    shares = {name: same / max(1, size) for name, (size, same) in equal.items()}
    return Report({name: noise.decibels for name, noise in whole.items()}, [], len(samples), lowest, shares)


def _integers(model: FileModel, sample: Sample) -> Sample:
    """Quantises a sample of the float model to the inputs of the quantised one."""
    found = {}
    for tensor in (model.tensors[i] for i in model.inputs):
        value, quant = sample[tensor.name], tensor.quant
        if quant is not None and tensor.dtype is not None and value.dtype.kind == "f":
            limits = np.iinfo(tensor.dtype)
            steps = np.rint(value / np.float32(quant.scale)) + int(quant.zero_point)
            value = np.clip(steps, limits.min, limits.max).astype(tensor.dtype)
        found[tensor.name] = value
    return found


def _run_floats(raw: bytes, given: FileModel) -> Run:
    """Returns the quantised model as a function from floats to floats under the float model's names, run by LiteRT."""
    model, reference = read_file(raw), LiteRtReference(raw)
    outputs = [(given.tensors[i].name, model.tensors[k]) for i, k in zip(given.outputs, model.outputs, strict=True)]

    def run(sample: Sample) -> Outputs:
        values, found = reference.run(_integers(model, sample)), {}
        for name, tensor in outputs:
            value, quant = values[tensor.name], tensor.quant
            if quant is not None and value.dtype.kind in "iu":
                value = (value.astype(np.float32) - int(quant.zero_point)) * np.float32(quant.scale)
            found[name] = value
        return found

    return run
