"""The quantised model in QOperator form (QLinearConv and its kin), by onnxruntime's quantiser."""

from __future__ import annotations

import numpy as np
import onnx

from tilewright.common.quiet import quiet
from tilewright.errors import UsageError
from tilewright.quantize.observe import first_line
from tilewright.quantize.recipe import Precision, Recipe
from tilewright.quantize.writing import quantised_layers


def write_qoperator(recipe: Recipe) -> onnx.ModelProto:
    """The quantised model; `recipe` is left unchanged.

    Raises:
        UsageError: a layer has 16 bits, weights of its own rounding, or onnxruntime's quantiser refuses.
    """
    from onnxruntime.quantization import QuantizationMode, QuantType
    from onnxruntime.quantization.calibrate import CalibrationMethod, TensorData, TensorsData
    from onnxruntime.quantization.onnx_quantizer import ONNXQuantizer
    from onnxruntime.quantization.registry import QLinearOpsRegistry

    if Precision.INT16 in recipe.precision.values():
        raise UsageError("the form qoperator has no 16-bit layers; use the form qdq")
    network = recipe.network
    chosen = quantised_layers(network, recipe)
    inside = {node.name for layer in network.layers if layer.name in chosen for node in layer.nodes}
    excluded = [node.name for node in network.nodes if node.name not in inside]
    kind = {"int8": QuantType.QInt8, "uint8": QuantType.QUInt8}[recipe.activation]
    ranges = dict(recipe.ranges)
    for layer in network.layers:  # onnxruntime wants them inside of layers, too, where a Relu cuts the rest off
        for node in layer.nodes[:-1]:
            ranges.setdefault(node.output[0], ranges[layer.outputs[0]])
    floats = {
        name: TensorData(lowest=np.float32(found.low), highest=np.float32(found.high)) for name, found in ranges.items()
    }
    given = onnx.ModelProto()
    given.CopyFrom(recipe.model)
    try:
        with quiet():
            quantizer = ONNXQuantizer(
                given,
                recipe.per_channel,
                False,
                QuantizationMode.QLinearOps,
                True,
                QuantType.QInt8,
                kind,
                TensorsData(CalibrationMethod.MinMax, floats),
                [],
                excluded,
                [op for op in QLinearOpsRegistry if any(n.op_type == op for n in network.nodes)],
                {},
            )
            quantizer.quantize_model()
            result: onnx.ModelProto = quantizer.model.model
    except Exception as error:  # it raises many kinds, ValueError and KeyError among them
        raise UsageError(
            f"onnxruntime cannot write the model in the form qoperator: {first_line(error)}; use the form qdq"
        ) from error
    return result
