"""Concrete shapes for the graph's inputs, from the model and from the user."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from tilewright.compiler.errors import CompileError, OpenShapeError, StagingError
from tilewright.compiler.onnx.onnx_ops import numpy_dtype
from tilewright.compiler.stages.note_forms import OPEN_BATCH

#: Names of batch dimensions in exporters, and parts of their names of other dimensions.
_BATCH = re.compile(r"batch|^(n|b|bs|nb)$", re.IGNORECASE)
_OTHER = re.compile(r"seq|len|time|tok|frame|step|height|width|point|past|cache|chunk|text", re.IGNORECASE)


def open_batches(inputs: Sequence[onnx.ValueInfoProto], given: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    """The axes of each input that are a batch of open size.

    An open dimension is a batch if its name is that of a batch, or if it is the first of several and nothing
    contradicts: neither its name, nor another dimension of that name that is not the first.

    Args:
        given: shapes of inputs; a size that is named and given for one is known for all.
    """
    sizes = {value.name: [size_of(d) for d in value.type.tensor_type.shape.dim] for value in inputs}
    known = {size for name in given for size in sizes.get(name, ())}
    inside = {size for dims in sizes.values() for size in dims[1:]}

    def is_batch(dims: Sequence[int | str | None], axis: int) -> bool:
        size = dims[axis]
        if isinstance(size, int) or (size is not None and size in known):
            return False
        if size is not None and _BATCH.search(size):
            return True
        first = axis == 0 and (size in firsts if len(dims) == 1 else True)
        return first and (size is None or not (_OTHER.search(size) or size in inside))

    firsts = {dims[0] for dims in sizes.values() if len(dims) > 1 and isinstance(dims[0], str)}
    found = {name: [k for k in range(len(dims)) if is_batch(dims, k)] for name, dims in sizes.items()}
    return {name: axes for name, axes in found.items() if axes and name not in given}


def batch_note(inputs: Sequence[onnx.ValueInfoProto], given: Mapping[str, Sequence[int]], batch: int) -> str:
    """The note about open batches of the model that get a size; "" where there are none."""
    found = open_batches(inputs, given)
    if not found:
        return ""
    shapes = dict(zip((i.name for i in inputs), input_shapes(inputs, dict(given), batch)))
    where = ", ".join(f"dimension {', '.join(map(str, axes))} of input {name!r}" for name, axes in found.items())
    flags = (
        ",".join("N" if k in axes else str(size) for k, size in enumerate(shapes[name])) for name, axes in found.items()
    )
    options = " ".join(f"--shape {name}={sizes}" for name, sizes in zip(found, flags))
    return f"{OPEN_BATCH}{where} is open in the model and {batch} here; {options} gives another"


def input_shapes(
    inputs: Sequence[onnx.ValueInfoProto], given: dict[str, Sequence[int]], batch: int | None = None
) -> list[tuple[int, ...]]:
    """Determines one shape per input. A symbolic dimension given for one input holds for every input that names it.

    Args:
        inputs: inputs of the model.
        given: shapes by name.
        batch: size of batches that are left open (`open_batches`); None to refuse them as other open dimensions.

    Raises:
        CompileError: an open dimension without a given size, or a given shape that contradicts the model.
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
    batches = open_batches(inputs, given) if batch is not None else {}
    if batch is not None and batches:
        inputs = [
            _with_batch(value, batches[value.name], batch) if value.name in batches else value for value in inputs
        ]
    try:
        return [_resolve(value, given, symbols) for value in inputs]
    except OpenShapeError as error:
        raise OpenShapeError(f"{error}; set it with {_flags(inputs, given, symbols)}") from None


def _with_batch(value: onnx.ValueInfoProto, axes: Sequence[int], batch: int) -> onnx.ValueInfoProto:
    made = onnx.ValueInfoProto()
    made.CopyFrom(value)
    for axis in axes:
        made.type.tensor_type.shape.dim[axis].dim_value = batch
    return made


def _flags(inputs: Sequence[onnx.ValueInfoProto], given: Mapping[str, Sequence[int]], symbols: dict[str, int]) -> str:
    """The command-line options that give every open input an example of a shape; sizes of one name agree."""
    known, flags = dict(symbols), []
    for value in inputs:
        sizes = [size_of(dim) for dim in value.type.tensor_type.shape.dim]
        if value.name in given or all(isinstance(size, int) or size in known for size in sizes):
            if value.type.tensor_type.HasField("shape") or value.name in given:
                continue
        shape = plausible(sizes, known) if value.type.tensor_type.HasField("shape") else [1, 3, _PIXELS, _PIXELS]
        known |= {size: n for size, n in zip(sizes, shape) if isinstance(size, str)}
        flags.append(f"--shape {value.name}={','.join(map(str, shape))}")
    return " ".join(flags)


def size_of(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    """The size of a dimension, the name of an open one, None for an open one that shares its size with no other.

    Some exporters write "?", "-1" or "None" for every dimension they leave open; these are not names.
    """
    if dim.HasField("dim_value") and dim.dim_value >= 0:
        return int(dim.dim_value)
    name = dim.dim_param.strip()
    return None if name in ("", "None", "none", "?", "*", "-1") else name


#: Example sizes of open dimensions: rows and columns of an image, steps of a sequence.
_PIXELS, _STEPS = 224, 128


def plausible(sizes: Sequence[int | str | None], symbols: Mapping[str, int] | None = None) -> list[int]:
    """An example of a whole shape, for messages.

    Args:
        sizes: results of `size_of`.
        symbols: known sizes by name.
    """
    known = [size if isinstance(size, int) and size > 0 else (symbols or {}).get(str(size), 0) for size in sizes]
    if len(sizes) == 4:
        last = known[3] in (1, 3, 4) and known[1] not in (1, 3, 4)  # channels last
        spatial = (1, 2) if last else (2, 3)
        side = next((known[axis] for axis in spatial if known[axis]), _PIXELS)
        usual = [1, *(side if axis in spatial else 3 for axis in (1, 2, 3))]
    else:
        usual = [1] + [_STEPS] * (len(sizes) - 1)
    return [size or default for size, default in zip(known, usual)]


def fixed_value(info: onnx.ValueInfoProto, value: Any) -> np.ndarray:
    """The value given for an input, in the input's type. Raises CompileError if it does not fit."""
    dtype = numpy_dtype(info.type.tensor_type.elem_type, f"input {info.name!r}")
    try:
        array = np.asarray(value).astype(dtype, casting="same_kind") if np.size(value) else np.asarray(value, dtype)
    except (TypeError, ValueError) as error:
        raise CompileError(f"the value given for input {info.name!r} must be of type {dtype}: {error}") from error
    if array.ndim == 0 and len(info.type.tensor_type.shape.dim) == 1:
        array = array.reshape(1)
    _check_given(info, array.shape, {})
    return array


def _check_given(value: onnx.ValueInfoProto, shape: Sequence[int], symbols: dict[str, int]) -> None:
    tensor = value.type.tensor_type
    text = "x".join(map(str, shape))
    if any(int(d) < 0 for d in shape):
        raise CompileError(f"the shape {text} given for input {value.name!r} has a negative dimension")
    if not tensor.shape.dim:  # as for onnxruntime, a scalar may also stand for any shape
        return
    if len(shape) != len(tensor.shape.dim):
        raise CompileError(f"the shape {text} given for input {value.name!r} must have rank {len(tensor.shape.dim)}")
    for axis, (size, dim) in enumerate(zip(shape, tensor.shape.dim)):
        wanted = size_of(dim)
        what = f"the shape {text} given for input {value.name!r} has {size} in dimension {axis}"
        if isinstance(wanted, int) and wanted > 0 and wanted != size:
            raise CompileError(f"{what}; the model fixes it to {wanted}")
        if isinstance(wanted, str) and symbols.setdefault(wanted, int(size)) != size:
            raise CompileError(f"{what}, which the model calls {wanted!r}; that is {symbols[wanted]} elsewhere")


def _resolve(value: onnx.ValueInfoProto, given: dict[str, Sequence[int]], symbols: dict[str, int]) -> tuple[int, ...]:
    if value.name in given:
        return tuple(int(d) for d in given[value.name])
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        raise OpenShapeError(f"input {value.name!r} has no shape")
    shape: list[int] = []
    sizes = [size_of(dim) for dim in tensor.shape.dim]
    for axis, size in enumerate(sizes):
        if isinstance(size, int):
            shape.append(size)
        elif size in symbols:
            shape.append(symbols[size])
        else:
            what = f"dimension {axis}" + (f" ({size!r})" if size else "")
            raise OpenShapeError(f"input {value.name!r} leaves {what} open")
    return tuple(shape)
