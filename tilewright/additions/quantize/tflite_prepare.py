"""A float TFLite file as ai-edge-quantizer wants it: with a signature, weights that are constants, and the operators'
numbers in the newer of the two fields that hold them (it takes the operators of old files for ADD).

    float16 constant -> DEQUANTIZE -> op     =>   float32 constant -> op

Many published models keep their weights as float16; left so, the quantiser takes them for activations.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_SIGNATURE = "serving_default"


def prepare_tflite(raw: bytes) -> bytes:
    """The file with these changes. Needs `ai_edge_litert`."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromPackedBuf(raw, 0)
    for code in model.operatorCodes:
        code.builtinCode = max(code.builtinCode, code.deprecatedBuiltinCode)
    _widen(model, schema)
    if not model.signatureDefs:
        model.signatureDefs = [_signature(model.subgraphs[0], schema)]
    builder = flatbuffers.Builder(2 * len(raw) + 4096)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _widen(model: Any, schema: Any) -> None:
    """Takes out every DEQUANTIZE of a float16 constant."""
    graph = model.subgraphs[0]
    kept = []
    for op in graph.operators:
        number = model.operatorCodes[op.opcodeIndex].builtinCode
        source = graph.tensors[op.inputs[0]] if number == schema.BuiltinOperator.DEQUANTIZE else None
        data = None if source is None else model.buffers[source.buffer].data
        if source is None or data is None or len(data) == 0 or source.type != schema.TensorType.FLOAT16:
            kept.append(op)
            continue
        wide = np.frombuffer(bytes(bytearray(data)), np.float16).astype(np.float32)
        buffer = schema.BufferT()
        buffer.data = np.frombuffer(wide.tobytes(), np.uint8)
        model.buffers.append(buffer)
        result = graph.tensors[op.outputs[0]]
        result.buffer = len(model.buffers) - 1
        result.quantization = None
    graph.operators = kept


def _signature(graph: Any, schema: Any) -> Any:
    """The inputs and outputs of the graph under names."""
    found = schema.SignatureDefT()
    found.signatureKey = _SIGNATURE
    found.subgraphIndex = 0
    for places, kind in ((graph.inputs, "inputs"), (graph.outputs, "outputs")):
        maps = []
        for at, place in enumerate(places):
            one = schema.TensorMapT()
            one.name, one.tensorIndex = f"{kind}_{at}", int(place)
            maps.append(one)
        setattr(found, kind, maps)
    return found
