"""`quantize_model`: a float ONNX model with 8-bit weights and activations, ranges taken from samples of its inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from compiler.importer.external_data import read_model
from tilewright.errors import UsageError
from tilewright.zoo.quantization import quantize

BATCH = 16  # samples at once where the model leaves the first dimension open

Samples = np.ndarray | Mapping[str, np.ndarray] | Iterable[Mapping[str, np.ndarray]]


def quantize_model(
    model: str | Path | onnx.ModelProto,
    calibration: Samples,
    *,
    activation: str = "int8",
    form: str = "qdq",
    per_channel: bool = True,
) -> onnx.ModelProto:
    """The model quantised by onnxruntime's static quantiser.

    Args:
        model: ONNX file or ModelProto (left unchanged).
        calibration: an array (models of one input) or arrays by input name, whose first axes count samples and are cut
            into batches of the model's; or the inputs of single runs, by name.
        activation: "int8" or "uint8".
        form: "qdq" or "qoperator".
        per_channel: one scale per output channel of the weights.

    Raises:
        UsageError: no ONNX model, it is quantised already, calibration that does not fit, or onnxruntime refuses.
    """
    loaded = _load(model) if isinstance(model, str | Path) else model
    done = {n.op_type for n in loaded.graph.node} & {"QuantizeLinear", "DequantizeLinear", "QLinearConv", "QGemm"}
    if done:
        raise UsageError(f"the model is quantised already: it has {', '.join(sorted(done))}")
    runs = list(_runs(loaded, calibration))
    if not runs:
        raise UsageError("calibration has not one whole batch of samples")
    try:
        return quantize(loaded, form=form, activation=activation, per_channel=per_channel, calibration=runs)
    except Exception as error:  # onnxruntime raises its own kinds without a common base
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise UsageError(f"onnxruntime cannot quantise the model: {reason}") from error


def _load(path: str | Path) -> onnx.ModelProto:
    from google.protobuf.message import DecodeError

    try:
        model = read_model(path)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    except DecodeError:
        raise UsageError(f"{path} is no ONNX model") from None
    if not model.graph.node:
        raise UsageError(f"{path} is no ONNX model, or one without nodes")
    return model


def _inputs(model: onnx.ModelProto) -> dict[str, tuple[np.dtype, list[int]]]:
    """Type and sizes of each input; 0 for a size left open."""
    weights = {x.name for x in model.graph.initializer}
    return {
        x.name: (
            helper.tensor_dtype_to_np_dtype(x.type.tensor_type.elem_type),
            [d.dim_value for d in x.type.tensor_type.shape.dim],
        )
        for x in model.graph.input
        if x.name not in weights
    }


def _runs(model: onnx.ModelProto, calibration: Any) -> Iterable[dict[str, np.ndarray]]:
    """Inputs of single runs, checked."""
    inputs = _inputs(model)
    if isinstance(calibration, np.ndarray):
        if len(inputs) != 1:
            raise UsageError(f"the model has the inputs {', '.join(inputs)}: calibration must be arrays by name")
        calibration = {next(iter(inputs)): calibration}
    if not isinstance(calibration, Mapping):
        for run in calibration:
            yield _checked(inputs, {name: np.asarray(value) for name, value in run.items()})
        return
    arrays = {name: np.asarray(value) for name, value in calibration.items()}
    _checked_names(inputs, arrays)
    lengths = {name: len(a) if a.ndim else 0 for name, a in arrays.items()}
    sizes = {name: (inputs[name][1] or [1])[0] or BATCH for name in arrays}
    counts = {name: lengths[name] // sizes[name] for name in arrays}
    open_ended = all((inputs[name][1] or [1])[0] == 0 for name in arrays)
    if len(set(lengths.values() if open_ended else counts.values())) > 1:
        raise UsageError(f"calibration must have as many samples of every input, not {lengths}")
    total = -(-min(lengths.values()) // BATCH) if open_ended else min(counts.values())
    for i in range(total):
        batch = {name: a[i * sizes[name] : (i + 1) * sizes[name]] for name, a in arrays.items()}
        yield _checked(inputs, batch)


def _checked_names(inputs: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    if inputs.keys() != given.keys():
        raise UsageError(f"calibration has {', '.join(given) or 'nothing'}; the model's inputs are {', '.join(inputs)}")


def _checked(inputs: Mapping[str, tuple[np.dtype, list[int]]], run: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The run itself, if names, types and shapes are those of the inputs."""
    _checked_names(inputs, run)
    for name, (dtype, sizes) in inputs.items():
        value = run[name]
        fits = value.ndim == len(sizes) and all(want in (0, got) for want, got in zip(sizes, value.shape))
        if value.dtype != dtype or not fits:
            found = f"{value.dtype.name}{list(value.shape)}"
            wanted = ", ".join(str(s or "any") for s in sizes)
            raise UsageError(f"calibration of {name!r} is {found}; the model takes {dtype.name}[{wanted}]")
    return run
