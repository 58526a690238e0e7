"""`quantize_model`: the short form of `tilewright.quantize.quantize`."""

from __future__ import annotations

from pathlib import Path

import onnx

from tilewright.quantize.accuracy import Accuracy
from tilewright.quantize.model import quantize_onnx
from tilewright.quantize.samples import Data


def quantize_model(
    model: str | Path | onnx.ModelProto,
    calibration: Data,
    *,
    activation: str = "int8",
    form: str = "qdq",
    per_channel: bool = True,
    accuracy: Accuracy | None = None,
) -> onnx.ModelProto:
    """The model quantised with all samples. It is not run: `tilewright.quantize.quantize` does that, too.

    Args:
        model: ONNX file or ModelProto (left unchanged).
        calibration: an array (models of one input) or arrays by input name, whose first axes count samples; or the
            inputs of single runs, by name; or a file or folder of them. See `tilewright.quantize.samples`.
        activation: "int8" or "uint8".
        form: "qdq" or "qoperator".
        per_channel: one scale per output channel of the weights.
        accuracy: how ranges, weights and precisions are found.

    Raises:
        UsageError: no ONNX model, it is quantised already, or calibration that does not fit.
    """
    result = quantize_onnx(
        model, calibration, activation=activation, form=form, per_channel=per_channel, accuracy=accuracy, held_back=0,
        check=False,
    )  # fmt: skip
    return result.model
