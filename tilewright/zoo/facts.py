"""Facts about an ONNX model (multiply-accumulates, parameters) and its batch size."""

from __future__ import annotations

import math

import onnx


def shapes_of(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor that shape inference knows; an unnamed size counts as 1."""
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    shapes = {x.name: tuple(x.dims) for x in inferred.initializer}
    for value in (*inferred.input, *inferred.value_info, *inferred.output):
        shapes.setdefault(value.name, tuple(d.dim_value or 1 for d in value.type.tensor_type.shape.dim))
    return shapes


def count_macs(model: onnx.ModelProto) -> int:
    """Multiply-accumulates of one run, convolutions and matrix products, of a float or QDQ model."""
    shapes = shapes_of(model)
    total = 0
    for node in model.graph.node:
        match node.op_type:
            case "Conv":
                total += math.prod(shapes[node.output[0]]) * math.prod(shapes[node.input[1]][1:])
            case "ConvTranspose":
                total += math.prod(shapes[node.input[0]]) * math.prod(shapes[node.input[1]][1:])
            case "Gemm":
                transposed = next((a.i for a in node.attribute if a.name == "transA"), 0)
                total += math.prod(shapes[node.output[0]]) * shapes[node.input[0]][0 if transposed else 1]
            case "MatMul":
                total += math.prod(shapes[node.output[0]]) * shapes[node.input[0]][-1]
            case name if name.startswith(("QLinear", "QGemm")):
                # onnx cannot infer shapes behind onnxruntime's own operators.
                raise ValueError(f"multiply-accumulates are counted in float and QDQ models, not in one with {name}")
    return total


def count_parameters(model: onnx.ModelProto) -> int:
    """Elements of all initialisers with at least one axis: weights and biases."""
    return sum(math.prod(x.dims) for x in model.graph.initializer if x.dims)


def with_batch(model: onnx.ModelProto, batch: int) -> onnx.ModelProto:
    """A copy whose graph inputs and outputs have `batch` as first size.

    Raises ValueError if the batch is fixed somewhere inside the graph, by a Reshape for example.
    """
    if batch < 1:
        raise ValueError(f"batch must be at least 1, not {batch!r}")
    result = onnx.ModelProto()
    result.CopyFrom(model)
    weights = {x.name for x in result.graph.initializer}
    for value in (*result.graph.input, *result.graph.output):
        if value.name not in weights:
            value.type.tensor_type.shape.dim[0].dim_value = batch
    del result.graph.value_info[:]
    try:
        return onnx.shape_inference.infer_shapes(result, check_type=True, strict_mode=True, data_prop=True)
    except onnx.shape_inference.InferenceError as error:
        raise ValueError(f"the batch of {model.graph.name} cannot be changed to {batch}: {error}") from None
