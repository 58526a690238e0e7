"""Concrete shapes for the graph's inputs, from the model and from the user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from compiler.errors import CompileError, OpenShapeError, StagingError
from compiler.onnx_ops import numpy_dtype


def input_shapes(inputs: Sequence[onnx.ValueInfoProto], given: dict[str, Sequence[int]]) -> list[tuple[int, ...]]:
    """One shape per input. A symbolic dimension given for one input holds for every input that names it.

    Raises:
        CompileError: an open dimension nobody gives, or a given shape that contradicts the model.
        StagingError: an input that is not a tensor.
    """
    names = [i.name for i in inputs]
    for name in given:
        if name not in names:
            raise CompileError(f"a shape is given for {name!r}, but the inputs are {', '.join(map(repr, names))}")
    for value in inputs:
        if value.type.WhichOneof("value") != "tensor_type":
            kind = (value.type.WhichOneof("value") or "untyped").removesuffix("_type")
            raise StagingError(f"input {value.name!r} is of kind {kind}; a compiled program takes tensors")
    symbols: dict[str, int] = {}
    for value in inputs:
        if value.name in given:
            _check_given(value, given[value.name], symbols)
    return [_resolve(value, given, symbols) for value in inputs]


def fixed_value(info: onnx.ValueInfoProto, value: Any) -> np.ndarray:
    """The value given for an input, in the input's type. Raises CompileError if it does not fit."""
    dtype = numpy_dtype(info.type.tensor_type.elem_type, f"input {info.name!r}")
    try:
        array = np.asarray(value).astype(dtype, casting="same_kind") if np.size(value) else np.asarray(value, dtype)
    except (TypeError, ValueError) as error:
        raise CompileError(f"the value given for input {info.name!r} must be of type {dtype}: {error}") from error
    _check_given(info, array.shape, {})
    return array


def _check_given(value: onnx.ValueInfoProto, shape: Sequence[int], symbols: dict[str, int]) -> None:
    tensor = value.type.tensor_type
    text = "x".join(map(str, shape))
    if any(int(d) < 0 for d in shape):
        raise CompileError(f"the shape {text} given for input {value.name!r} has a negative dimension")
    if not tensor.HasField("shape"):
        return
    if len(shape) != len(tensor.shape.dim):
        raise CompileError(f"the shape {text} given for input {value.name!r} must have rank {len(tensor.shape.dim)}")
    for axis, (size, dim) in enumerate(zip(shape, tensor.shape.dim)):
        if dim.HasField("dim_value") and dim.dim_value > 0 and dim.dim_value != size:
            raise CompileError(
                f"the shape {text} given for input {value.name!r} has {size} in dimension {axis}; "
                f"the model fixes it to {dim.dim_value}"
            )
        if dim.dim_param and symbols.setdefault(dim.dim_param, int(size)) != size:
            raise CompileError(
                f"the shape {text} given for input {value.name!r} has {size} for {dim.dim_param!r}, which is "
                f"{symbols[dim.dim_param]} elsewhere"
            )


def _resolve(value: onnx.ValueInfoProto, given: dict[str, Sequence[int]], symbols: dict[str, int]) -> tuple[int, ...]:
    if value.name in given:
        return tuple(int(d) for d in given[value.name])
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        raise OpenShapeError(f"input {value.name!r} has no shape; set it with --shape {value.name}=1,3,224,224")
    shape: list[int] = []
    for axis, dim in enumerate(tensor.shape.dim):
        if dim.HasField("dim_value") and dim.dim_value >= 0:
            shape.append(int(dim.dim_value))
        elif dim.dim_param in symbols:
            shape.append(symbols[dim.dim_param])
        else:
            example = ",".join(str(d.dim_value) if d.dim_value > 0 else "1" for d in tensor.shape.dim)
            what = f"dimension {axis}" + (f" ({dim.dim_param!r})" if dim.dim_param else "")
            raise OpenShapeError(f"input {value.name!r} leaves {what} open; set it with --shape {value.name}={example}")
    return tuple(shape)
