"""A TFLite network of int8 activations as one of int16 activations ("16x8"), with the same weights.

Each activation's range is the larger side of its old one, its zero point 0; a bias has 64 bits and the steps of the new
activations times the weights. No sample is needed, and nothing is gained in accuracy: what is had is a network of that
form, to be run, measured and compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.common.installation import install_extra
from tilewright.compiler.importer.tflite.schema import read
from tilewright.errors import UsageError

#: The operators that are known to have a form of 16 bits, and the version from which on LiteRT has it.
VERSIONS = {
    "CONV_2D": 4, "DEPTHWISE_CONV_2D": 4, "FULLY_CONNECTED": 4, "ADD": 3, "AVERAGE_POOL_2D": 3, "MAX_POOL_2D": 3,
    "MEAN": 3, "SOFTMAX": 3, "LOGISTIC": 3, "TANH": 3, "RESHAPE": 1, "QUANTIZE": 3,
    "DEQUANTIZE": 3,
}  # fmt: skip
_WEIGHTED = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
#: Their results have the scale 2^-15.
_FRACTIONS = ("SOFTMAX", "LOGISTIC", "TANH")
#: Their results are operands.
_MOVES = ("RESHAPE", "MAX_POOL_2D")


def widened(raw: bytes) -> bytes:
    """The 16x8 form of a TFLite file.

    Raises:
        CompileError: a damaged file.
        UsageError: several graphs, operators without a form of 16 bits, activations that are no int8 tensors with one
            scale, or no `ai_edge_litert` to write the file.
    """
    try:
        import flatbuffers
        from ai_edge_litert import schema_py_generated as schema
    except ImportError as error:
        raise UsageError(f"LiteRT is needed to write TFLite files: {install_extra('tflite')}") from error

    read(raw)  # says in one line what is wrong with a file
    model = schema.ModelT.InitFromPackedBuf(raw, 0)
    if len(model.subgraphs) != 1:
        raise UsageError(f"the file has {len(model.subgraphs)} graphs; one is accepted")
    graph = model.subgraphs[0]
    names = {number: name for name, number in vars(schema.BuiltinOperator).items()}
    for code in model.operatorCodes:
        code.builtinCode = max(code.builtinCode, code.deprecatedBuiltinCode)
        name = names.get(code.builtinCode, "?")
        if name not in VERSIONS:
            raise UsageError(f"{name} cannot be widened to 16 bits; these can: {', '.join(sorted(VERSIONS))}")
        code.version = max(code.version, VERSIONS[name])
    made = [(names[model.operatorCodes[op.opcodeIndex].builtinCode], op) for op in graph.operators]
    scales = _scales(model, schema, made)
    old = {index: float(graph.tensors[index].quantization.scale[0]) for index in scales}
    for name, op in made:
        if name == "ADD":
            op.builtinOptions.potScaleInt16 = False
        if name in _WEIGHTED and len(op.inputs) > 2 and op.inputs[2] >= 0:
            _widen_bias(model, schema, graph, op, old, scales)
    for index, scale in scales.items():
        t = graph.tensors[index]
        t.type = schema.TensorType.INT16
        t.quantization.scale, t.quantization.zeroPoint = [scale], [0]
        t.quantization.min = t.quantization.max = None
    builder = flatbuffers.Builder(2 * len(raw) + 4096)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _scales(model: Any, schema: Any, made: list[tuple[str, Any]]) -> dict[int, float]:
    """The new scale of every activation, by the tensor's number."""
    graph = model.subgraphs[0]
    fractions = {op.outputs[0] for name, op in made if name in _FRACTIONS}
    ends = {i for name, op in made if name in ("QUANTIZE", "DEQUANTIZE") for i in (op.inputs[0], op.outputs[0])}
    found = {}
    for index in sorted({int(i) for _, op in made for i in (*op.inputs, *op.outputs) if i >= 0}):
        t = graph.tensors[index]
        if model.buffers[t.buffer].data is not None or (t.type != schema.TensorType.INT8 and index in ends):
            continue
        q = t.quantization
        if t.type != schema.TensorType.INT8 or q is None or q.scale is None or len(q.scale) != 1:
            raise UsageError(
                f"tensor {t.name.decode()!r} is no int8 activation with one scale; all others are accepted"
            )
        zero = int(q.zeroPoint[0])
        reach = float(np.float32(float(q.scale[0]) * max(128 + zero, 127 - zero) / 32767))
        found[index] = 2.0**-15 if index in fractions else reach
    for name, op in made:
        if name in _MOVES and op.inputs[0] in found:
            found[op.outputs[0]] = found[op.inputs[0]]
    return found


def _widen_bias(model: Any, schema: Any, graph: Any, op: Any, old: dict[int, float], new: dict[int, float]) -> None:
    """The bias of an operator as int64, in steps of its activations times its weights."""
    x, w, index = (int(i) for i in op.inputs[:3])
    t, weights = graph.tensors[index], graph.tensors[w]
    buffer = model.buffers[t.buffer]
    if t.type != schema.TensorType.INT32 or buffer.data is None or np.any(weights.quantization.zeroPoint):
        raise UsageError(f"bias {t.name.decode()!r} must be an int32 constant beside weights with the zero point 0")
    values = np.frombuffer(bytes(buffer.data), np.int32).astype(np.float64) * old[x] / new[x]
    wide = schema.BufferT()
    wide.data = np.frombuffer(np.rint(values).astype(np.int64).tobytes(), np.uint8)
    t.type, t.buffer = schema.TensorType.INT64, len(model.buffers)
    model.buffers.append(wide)
    t.quantization.scale = (new[x] * np.asarray(weights.quantization.scale, np.float64)).astype(np.float32)
    t.quantization.zeroPoint = np.zeros(len(t.quantization.scale), np.int64)
