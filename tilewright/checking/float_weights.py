"""A dynamic-range TFLite file with weights of floats, which LiteRT runs in floats.

Such a file has floats as activations and integers as weights. LiteRT's kernels round the activations of these layers to
8 bits at run time, by the range of each input; Tilewright computes the layers in floats. To compare the two, LiteRT is
given what the integers stand for.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from tilewright.common.installation import install_extra
from tilewright.compiler.importer.tflite.schema import FileModel, FileTensor
from tilewright.errors import UsageError


def litert_module(name: str) -> Any:
    """A module of the package ai-edge-litert. Raises UsageError where it is not installed."""
    try:
        return importlib.import_module(f"ai_edge_litert.{name}")
    except ImportError:
        command = install_extra("litert")
        raise UsageError(f"the check of TFLite models needs the package ai-edge-litert: {command}") from None


def with_float_weights(data: bytes, file: FileModel) -> tuple[bytes, int]:
    """Copies a TFLite file with float32 in place of integer weights of float layers.

    Args:
        data, file: the file and what `schema.read` makes of it.

    Returns:
        The copy, and how many operators read such weights; `data` itself and 0 if none does.
    """
    weights: dict[int, FileTensor] = {}
    layers = 0
    for op in file.ops:
        tensors = [file.tensors[i] for i in op.inputs if i >= 0]
        if op.name == "DEQUANTIZE" or not tensors or tensors[0].dtype != np.float32:
            continue
        found = {t.index: t for t in tensors if t.data is not None and t.dtype in (np.int8, np.uint8) and t.quant}
        weights |= found
        layers += bool(found)
    return (_written(data, weights), layers) if layers else (data, 0)


def _written(data: bytes, weights: dict[int, FileTensor]) -> bytes:
    import flatbuffers

    schema = litert_module("schema_py_generated")
    model = schema.ModelT.InitFromPackedBuf(data, 0)
    for index, t in weights.items():
        tensor, buffer = model.subgraphs[0].tensors[index], schema.BufferT()
        buffer.data = np.frombuffer(_floats(t).tobytes(), np.uint8)
        model.buffers.append(buffer)
        tensor.buffer, tensor.type, tensor.quantization = len(model.buffers) - 1, schema.TensorType.FLOAT32, None
    builder = flatbuffers.Builder(len(data) + 4 * sum(t.data.size for t in weights.values() if t.data is not None))
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _floats(t: FileTensor) -> np.ndarray:
    """float32 values of the integers, in the shape of the tensor."""
    assert t.data is not None and t.quant is not None
    along = [1] * len(t.shape)
    if not t.quant.per_tensor:
        along[t.quant_axis] = -1
    scale, zero = (np.asarray(v).reshape(along) for v in (t.quant.scale, t.quant.zero_point))
    return np.asarray((t.data.reshape(t.shape).astype(np.int32) - zero).astype(np.float32) * scale, np.float32)
