"""Float TFLite models, quantised by Google's ai-edge-quantizer (the extra `tflite`), checked as ONNX models are."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from compiler.importer.tflite.schema import FileModel, FileTensor
from compiler.importer.tflite.schema import read as read_file
from isa.program import Program
from tilewright.api.compilation import compile
from tilewright.checking.litert_reference import LiteRtReference
from tilewright.checking.model import check as check_model
from tilewright.errors import TilewrightError, UsageError
from tilewright.quantize.image_samples import ImageOptions
from tilewright.quantize.metric import Comparison, compare, read_labels
from tilewright.quantize.recipe import Progress, Sample, Samples
from tilewright.quantize.samples import Data, Input, samples_of, split
from tilewright.quantize.verify import Verified

EXTRA = "pip install 'tilewright[tflite]'"


@dataclass(frozen=True)
class QuantizedTflite:
    """A quantised TFLite model: the bytes of its file, and what running it showed."""

    data: bytes
    verified: Verified | None = None
    comparison: Comparison | None = None

    def serialized(self) -> bytes:
        """The file."""
        return self.data

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        found: dict[str, Any] = {}
        if self.verified is not None:
            found["verified"] = self.verified.to_dict()
        if self.comparison is not None:
            found["check"] = asdict(self.comparison)
        return found

    def lines(self) -> list[str]:
        """What a user wants to know, as text."""
        return [str(x) for x in (self.verified, self.comparison) if x is not None]


def quantize_tflite(
    model: str | Path | bytes,
    data: Data,
    *,
    images: ImageOptions | None = None,
    held_back: int | None = None,
    check: bool = True,
    metric: str | None = None,
    labels: str | Path | None = None,
    progress: Progress | None = None,
) -> QuantizedTflite:
    """Quantises a float TFLite model: int8 weights, one scale per output channel, and int8 activations.

    Args:
        model: file or its bytes.
        data, images, held_back, check, metric, labels, progress: as for `tilewright.quantize.quantize`.

    Raises:
        UsageError: ai-edge-quantizer is not installed, the model is quantised already, the data does not fit, or
            LiteRT or our compiler refuses the result.
    """
    raw = bytes(model) if isinstance(model, bytes) else _bytes(Path(model))
    given = _float_model(raw)
    inputs = {t.name: _input(t) for t in (given.tensors[i] for i in given.inputs)}
    samples = samples_of(data, inputs, images)
    calibration, held = split(samples, held_back)
    known = read_labels(Path(labels), len(samples)) if labels is not None else None

    written = _quantized(raw, given, calibration, progress)
    verified = _verify(written, held[0]) if check else None
    comparison = None
    if metric is not None:
        before, after = LiteRtReference(raw), LiteRtReference(written)
        comparison = compare(metric, before.run, after.run, held, known, progress)
    return QuantizedTflite(written, verified, comparison)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None


def _float_model(raw: bytes) -> FileModel:
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
        with _quiet():
            from ai_edge_litert.interpreter import Interpreter
            from ai_edge_quantizer import quantizer, recipe
    except ImportError as error:
        raise UsageError(
            f"TFLite models are quantised by ai-edge-quantizer, which is not installed ({error.name}): {EXTRA}"
        ) from None
    index = {t.index: t.name for t in given.tensors}
    try:
        with _quiet():
            interpreter = Interpreter(model_content=raw)
            keys = list(interpreter.get_signature_list()) or [None]
            details = interpreter.get_signature_runner(keys[0]).get_input_details()
            names = {argument: index[int(detail["index"])] for argument, detail in details.items()}
            del interpreter
            work = quantizer.Quantizer(raw, recipe.static_wi8_ai8())
            found = work.calibrate({keys[0]: _feeds(samples, names, progress)})
            return bytes(work.quantize(found, enable_progress_report=False).quantized_model)
    except TilewrightError:
        raise
    except Exception as error:  # it raises ValueError, RuntimeError, KeyError and others for what it cannot do
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UsageError(f"ai-edge-quantizer cannot quantise the model: {reason}") from error


def _feeds(samples: Samples, names: dict[str, str], progress: Progress | None) -> Iterator[Sample]:
    """Samples under the names of the signature's arguments."""
    for at, sample in enumerate(samples):
        yield {argument: sample[name] for argument, name in names.items()}
        if progress is not None:
            progress("calibrating", (at + 1) / len(samples))


def _verify(raw: bytes, sample: Sample) -> Verified:
    """Loads the result in LiteRT and in our compiler, and runs both."""
    quantised = read_file(raw)
    try:
        LiteRtReference(raw).run(sample)
        shapes = {quantised.tensors[i].name: quantised.tensors[i].shape for i in quantised.inputs}
        shapes = {name: tuple(sample[name].shape) for name in shapes}
        program = compile(raw, "base", shapes, effort=0, cache=False)
        report = check_model(raw, sample, program=program)
    except TilewrightError as error:
        raise UsageError(f"the quantised model does not run in Tilewright: {error}") from error
    assert isinstance(program, Program)
    return Verified(report, program.npu_macs, program.macs)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the libraries' progress bars, warnings and advice."""
    level = logging.root.manager.disable
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        logging.disable(logging.ERROR)
        try:
            yield
        finally:
            logging.disable(level)
