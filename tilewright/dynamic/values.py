"""Values that flow between the parts of a dynamic model."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from tilewright.common.text import one_line
from tilewright.compiler.errors import CompileError

#: A tensor (of strings: dtype object, elements `str`), a sequence, or None for an optional without a value.
Value = np.ndarray | list[Any] | None


def is_number(value: Value) -> bool:
    """Whether a compiled program can take it: a tensor of numbers or booleans."""
    return isinstance(value, np.ndarray) and value.dtype != np.object_


def strings(value: Any) -> np.ndarray:
    """An array of `str`, from anything numpy takes for strings; bytes are UTF-8."""
    array = np.asarray(value)
    flat = [v.decode("utf-8") if isinstance(v, bytes) else str(v) for v in array.reshape(-1).tolist()]
    out = np.empty(len(flat), np.object_)
    out[:] = flat
    return out.reshape(array.shape)


def as_value(value: Any) -> Value:
    """Converts an argument of a caller to a `Value`; lists are sequences."""
    if value is None:
        return None
    if isinstance(value, list | tuple):
        return [as_value(v) for v in value]
    array = np.asarray(value)
    if array.dtype.kind in "OUS":
        return strings(array)
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def from_proto(proto: onnx.TensorProto) -> np.ndarray:
    """The value of a constant of a model. Raises `CompileError` where its data does not fit its shape or type."""
    try:
        array = numpy_helper.to_array(proto)
        return strings(array) if proto.data_type == onnx.TensorProto.STRING else array
    except Exception as error:  # onnx raises many kinds for damaged tensors
        raise CompileError(f"constant {proto.name!r} is damaged: {one_line(error)}") from None


def describe(value: Value) -> str:
    """Type and shape, for messages."""
    if value is None:
        return "nothing"
    if isinstance(value, list):
        return f"a sequence of {len(value)}"
    kind = "string" if value.dtype == np.object_ else value.dtype.name
    return f"{kind} {'x'.join(map(str, value.shape)) or 'scalar'}"
