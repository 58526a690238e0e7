"""Golden values from onnxruntime, intermediates included, without changing what it computes.

onnxruntime fuses DequantizeLinear -> op -> QuantizeLinear only if the *float* result of the op is no graph output, so
float tensors must not be dumped. The *quantised* tensors, outputs of QuantizeLinear and of QLinear ops, may be: the
fused op writes exactly that tensor. What a dump could still change (merging of pairs, hoisting over reshapes) is
checked, not assumed:

1. run the model as it is, and with the quantised tensors as extra outputs;
2. the real outputs must be equal byte by byte;
3. the ops of both optimised models must be the same in number, data movement aside: a dump in the middle of
   Q -> DQ -> Q -> DQ keeps both pairs, where onnxruntime otherwise makes one of them.

If 2 or 3 fails the dump is split in halves until every part passes; a tensor that fails alone is not compared.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, shape_inference

from tests.common import onnx_models

_MOVES = {"Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"}
Values = dict[str, np.ndarray]


def quantized_names(model: onnx.ModelProto) -> list[str]:
    """8-bit outputs of QuantizeLinear and QLinear ops that are computed at run time."""
    constant = {i.name for i in model.graph.initializer}
    names = []
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear" and node.input[0] in constant:
            continue
        quantized = node.op_type == "QuantizeLinear" or node.op_type.startswith("QLinear")
        if quantized or (node.op_type == "QGemm" and len(node.input) > 7):
            names.append(node.output[0])
    return names


def golden(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> Values:
    """The model's outputs and every quantised tensor that can be dumped faithfully."""
    plain, ops = _run(model, [], feeds)
    outputs = {o.name for o in model.graph.output}
    wanted = [n for n in quantized_names(model) if n not in outputs]
    return plain | _dump(model, wanted, feeds, plain, ops)


def _dump(
    model: onnx.ModelProto, names: Sequence[str], feeds: Mapping[str, np.ndarray], plain: Values, ops: Counter[str]
) -> Values:
    if not names:
        return {}
    values, changed_ops = _run(model, names, feeds)
    if changed_ops == ops and all(values[n].tobytes() == v.tobytes() for n, v in plain.items()):
        return {n: values[n] for n in names}
    if len(names) == 1:
        return {}
    half = len(names) // 2
    return _dump(model, names[:half], feeds, plain, ops) | _dump(model, names[half:], feeds, plain, ops)


def _run(model: onnx.ModelProto, extra: Sequence[str], feeds: Mapping[str, np.ndarray]) -> tuple[Values, Counter[str]]:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    types = _types(model) if extra else {}
    copy.graph.output.extend(helper.make_tensor_value_info(n, types[n], None) for n in extra)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "optimized.onnx"
        running = onnx_models.session(copy, optimized=path)
        nodes = onnx.load(path, load_external_data=False).graph.node
        ops = Counter(n.op_type for n in nodes if n.op_type not in _MOVES)
    names = [o.name for o in copy.graph.output]
    return dict(zip(names, running.run(names, dict(feeds)))), ops


def _types(model: onnx.ModelProto) -> dict[str, int]:
    """Element types of quantised tensors: those of the zero points."""
    inferred = shape_inference.infer_shapes(model)
    known = {i.name: i.data_type for i in model.graph.initializer}
    known |= {v.name: v.type.tensor_type.elem_type for v in inferred.graph.value_info}
    found = {}
    for node in model.graph.node:
        last = {"QuantizeLinear": 2, "QLinearConv": 7, "QLinearMatMul": 7, "QLinearAdd": 7, "QLinearMul": 7, "QGemm": 8,
                "QLinearWhere": 8, "QLinearConcat": 1}.get(node.op_type, 4)  # fmt: skip
        if node.output[0] in known:
            found[node.output[0]] = known[node.output[0]]
        elif len(node.input) > last:
            found[node.output[0]] = known.get(node.input[last], onnx.TensorProto.UINT8)
        else:
            found[node.output[0]] = onnx.TensorProto.UINT8
    return found
