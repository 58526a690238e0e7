"""`QuantizeOptions`: everything that may be chosen about a quantisation beside the model and the data."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from tilewright.errors import UsageError
from tilewright.quantize.accuracy import Accuracy
from tilewright.quantize.image_samples import ImageOptions
from tilewright.quantize.metric import metric_of
from tilewright.quantize.prepare import Shapes, Values
from tilewright.quantize.recipe import Progress

_ONNX_ONLY = ("shapes", "values", "activation", "form", "per_channel", "weights", "whole", "accuracy")


@dataclass(frozen=True, kw_only=True)
class QuantizeOptions:
    """Choices about a quantisation. The first eight are for ONNX models, and TFLite models that become one.

    Attributes:
        shapes: sizes of inputs that the model leaves open.
        values: of inputs that become constants, such as a sampling rate that chooses between branches.
        activation: "int8" or "uint8".
        form: "qdq" (QuantizeLinear and DequantizeLinear around float ops) or "qoperator" (QLinearConv and its kin).
        per_channel: one scale per output channel of the weights.
        weights: "int8", or "int4": weights of products within -7..7, which NPUs with packed weights load two a byte.
        whole: norms by a root mean square, RoPE and sums of language models in 8 bits, too; see `whole`.
        accuracy: how ranges, weights and precisions are found; see `accuracy.Accuracy`.
        as_onnx: of a float TFLite model make an ONNX model, quantised as ONNX models are.
        images: how images become inputs, for folders of them.
        held_back: samples to measure on, of which only ranges are taken; see `samples.split`.
        check: run the result in the reference runtime and in our compiler; an error if either refuses it.
        metric: "top1" or "module:function": compare it before and after, on the samples held back. One of your own, or
            with labels, also counts in the choice.
        labels: file with one label for each sample, for the metric.
        progress: called with what is being done and the fraction done.

    Raises:
        UsageError: a value that is not accepted.
    """

    shapes: Shapes | None = None
    values: Values | None = None
    activation: str = "int8"
    form: str = "qdq"
    per_channel: bool = True
    weights: str = "int8"
    whole: bool = False
    accuracy: Accuracy | None = None
    as_onnx: bool = False
    images: ImageOptions | None = None
    held_back: int | None = None
    check: bool = True
    metric: str | None = None
    labels: str | Path | None = None
    progress: Progress | None = None

    def __post_init__(self) -> None:
        if self.activation not in ("int8", "uint8") or self.form not in ("qdq", "qoperator"):
            raise UsageError(
                f"activation is int8 or uint8, form qdq or qoperator; not {self.activation!r}, {self.form!r}"
            )
        if self.weights not in ("int8", "int4"):
            raise UsageError(f"weights is int8 or int4, not {self.weights!r}")
        if self.weights == "int4" and self.form == "qoperator":
            raise UsageError("weights of int4 need the form qdq, not qoperator")
        if self.metric is not None:
            metric_of(self.metric)  # raises before the long work

    def check_tflite(self) -> None:
        """Raises `UsageError` for choices that TFLite models do not have."""
        defaults = {field.name: field.default for field in fields(self)}
        given = [name for name in _ONNX_ONLY if (getattr(self, name) or None) != (defaults[name] or None)]
        if given:
            raise UsageError(
                "shapes, values, activation, form, per_channel, weights, whole and accuracy are for ONNX models"
            )
