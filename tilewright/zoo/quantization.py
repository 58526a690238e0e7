"""Quantise float ONNX networks with onnxruntime: 8-bit activations, weights of 8 or 4 bits, QDQ or QOperator form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import onnx

from tilewright.common import temporary
from tilewright.common.installation import require
from tilewright.common.quiet import quiet

Calibration = int | np.ndarray | Iterable[Mapping[str, np.ndarray]]
"""A number of seeded random inputs, an array whose first axis counts inputs, or dicts of input name -> array."""


def random_inputs(model: onnx.ModelProto, count: int, seed: int = 0) -> list[dict[str, np.ndarray]]:
    """`count` sets of standard normal float32 inputs with the model's shapes; an unnamed size counts as 1."""
    random = np.random.default_rng(seed)
    weights = {x.name for x in model.graph.initializer}
    shapes = {
        x.name: [d.dim_value or 1 for d in x.type.tensor_type.shape.dim]
        for x in model.graph.input
        if x.name not in weights
    }
    return [
        {name: random.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()} for _ in range(count)
    ]


def calibration_inputs(model: onnx.ModelProto, calibration: Calibration, seed: int) -> list[dict[str, np.ndarray]]:
    """The calibration set as one dict per run; an array is cut into whole batches of the model's first input."""
    if isinstance(calibration, int):
        return random_inputs(model, calibration, seed)
    if isinstance(calibration, np.ndarray):
        first = model.graph.input[0]
        batch = first.type.tensor_type.shape.dim[0].dim_value or len(calibration)
        runs = len(calibration) // batch
        return [{first.name: calibration[i * batch : (i + 1) * batch]} for i in range(runs)]
    return [dict(x) for x in calibration]


def quantize(
    model: onnx.ModelProto,
    form: str = "qdq",
    activation: str = "int8",
    per_channel: bool = True,
    calibration: Calibration = 4,
    seed: int = 0,
    weights: str = "int8",
) -> onnx.ModelProto:
    """The quantised model, ranges taken as the extremes over the calibration set.

    `weights` is "int8", "uint8", with a zero point that lies where the range of the weights asks for it, or "int4".
    `form` is "qdq" (QuantizeLinear and DequantizeLinear around float ops) or "qoperator" (QLinearConv and its kin);
    `activation` is "int8" or "uint8". Batch norms are folded first. Nothing is left on disk.
    """
    # onnxruntime is slow to import and only the zoo needs it.
    require("onnxruntime")
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    forms = {"qdq": quantization.QuantFormat.QDQ, "qoperator": quantization.QuantFormat.QOperator}
    types = {"int8": quantization.QuantType.QInt8, "uint8": quantization.QuantType.QUInt8}
    weight_types = types | {"int4": quantization.QuantType.QInt4}
    if form not in forms:
        raise ValueError(f"form must be one of {', '.join(forms)}, not {form!r}")
    if activation not in types:
        raise ValueError(f"activation must be one of {', '.join(types)}, not {activation!r}")
    if weights not in weight_types:
        raise ValueError(f"weights must be one of {', '.join(weight_types)}, not {weights!r}")
    if weights == "int4" and form != "qdq":
        raise ValueError(f"int4 weights need the form 'qdq', not {form!r}")
    if weights == "uint8" and activation != "uint8":
        raise ValueError(f"uint8 weights need uint8 activations, not {activation!r}")
    inputs = calibration_inputs(model, calibration, seed)
    if not inputs:
        raise ValueError("calibration must give at least one whole batch of inputs")

    class Reader(quantization.CalibrationDataReader):
        """onnxruntime's view of the calibration set."""

        def __init__(self) -> None:
            self.remaining = iter(inputs)

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.remaining, None)

    with temporary.Folder(prefix="tilewright-quantize-") as folder, quiet():
        given, prepared, quantised = (Path(folder) / f"{step}.onnx" for step in ("given", "prepared", "quantised"))
        # By file: given a ModelProto, the pre-processing moves its weights to a temporary file and leaves it broken.
        onnx.save(model, str(given))
        quant_pre_process(str(given), str(prepared), skip_symbolic_shape=True)
        quantization.quantize_static(
            str(prepared),
            str(quantised),
            Reader(),
            quant_format=forms[form],
            activation_type=types[activation],
            weight_type=weight_types[weights],
            per_channel=per_channel,
        )
        result = onnx.load(str(quantised))
    # Drop the operator sets onnxruntime's optimiser lists without using them.
    used = {node.domain for node in result.graph.node}
    kept = [x for x in result.opset_import if x.domain in used]
    del result.opset_import[:]
    result.opset_import.extend(kept)
    return result
