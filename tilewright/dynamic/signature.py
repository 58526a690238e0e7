"""Inputs of a dynamic model: what the model says of them, and whether given values fit."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tilewright.compiler.importer.mlir import mlir_model, mlir_name
from tilewright.compiler.importer.onnx.inputs import size_of
from tilewright.compiler.importer.onnx.loader import load, source_name
from tilewright.compiler.onnx.onnx_ops import numpy_dtype
from tilewright.dynamic.values import Value, as_value, describe
from tilewright.errors import InputError, UsageError
from tilewright.store.files import is_mlir


@dataclass(frozen=True)
class Signature:
    """One input.

    Attributes:
        kind: "tensor", "sequence", "optional" or "map".
        dtype: numpy name of a tensor's type, "string", or "" where the model does not say.
        shape: sizes, names of open ones, None for open ones without a name; None for an unknown rank.
    """

    name: str
    kind: str
    dtype: str = ""
    shape: tuple[int | str | None, ...] | None = None

    def __str__(self) -> str:
        if self.kind != "tensor":
            return f"{self.name!r} {self.kind}"
        sizes = "any shape" if self.shape is None else "x".join(str(d or "?") for d in self.shape) or "scalar"
        return f"{self.name!r} {self.dtype} {sizes}"


def signature_of(value: onnx.ValueInfoProto, given: Sequence[int] | None = None) -> Signature:
    """Makes the signature of an input, with the shape the user gives."""
    kind = (value.type.WhichOneof("value") or "tensor_type").removesuffix("_type")
    if kind != "tensor":
        return Signature(value.name, kind)
    tensor = value.type.tensor_type
    dtype = "string"
    if tensor.elem_type != onnx.TensorProto.STRING:
        dtype = numpy_dtype(tensor.elem_type, f"input {value.name!r}").name
    shape: tuple[int | str | None, ...] | None = None
    if tensor.HasField("shape"):
        shape = tuple(size_of(d) for d in tensor.shape.dim)
    if given is not None:
        text = "x".join(map(str, given))
        if shape and len(shape) != len(given):
            raise UsageError(f"the shape {text} given for input {value.name!r} must have rank {len(shape)}")
        for axis, (d, g) in enumerate(zip(shape or (), given)):
            if isinstance(d, int) and d != g:
                raise UsageError(
                    f"the shape {text} given for input {value.name!r} contradicts the model: dimension {axis} is {d}"
                )
        shape = tuple(int(d) for d in given)
    return Signature(value.name, kind, dtype, shape)


def loaded(
    model: str | Path | bytes | onnx.ModelProto, shapes: Mapping[str, Sequence[int]] | None = None
) -> tuple[onnx.ModelProto, str]:
    """A model, TOSA as ONNX, and its name for messages.

    Args:
        shapes: of the arguments of a TOSA program whose batch is left open.

    Raises:
        CompileError: the model is damaged.
    """
    if isinstance(model, str | Path | bytes) and is_mlir(model):
        return mlir_model(model, shapes), mlir_name(model)
    return load(model, source_name(model)), source_name(model)


def signatures(model: str | Path | bytes | onnx.ModelProto) -> list[Signature]:
    """Returns the signatures of a model's inputs. Raises CompileError if the model is damaged."""
    graph = loaded(model)[0].graph
    constant = {t.name for t in graph.initializer}
    return [signature_of(i) for i in graph.input if i.name not in constant]


def check_values(model: str, signatures: Sequence[Signature], inputs: Mapping[str, Any] | Any) -> dict[str, Value]:
    """The inputs as values, in the signatures' order.

    Args:
        model: its name, for messages.
        inputs: by name; a bare array will do where there is one input.

    Raises:
        InputError: listing every name, shape and type that does not fit.
    """
    if not isinstance(inputs, Mapping):
        if len(signatures) != 1:
            raise InputError(f"{model} has {len(signatures)} inputs: give a dict of them")
        inputs = {signatures[0].name: inputs}
    known = {s.name for s in signatures}
    problems = [f"unknown input {name!r}" for name in inputs if name not in known]
    values: dict[str, Value] = {}
    sizes: dict[str, tuple[int, str]] = {}
    for signature in signatures:
        name = signature.name
        if name not in inputs and signature.kind == "optional":
            values[name] = None
            continue
        if name not in inputs:
            problems.append(f"missing input {signature}")
            continue
        values[name] = value = as_value(inputs[name])
        if signature.kind == "optional" or (signature.kind == "sequence" and isinstance(value, list)):
            continue
        if signature.kind != "tensor" or not isinstance(value, np.ndarray):
            problems.append(f"input {name!r} must be a {signature.kind}, not {describe(value)}")
            continue
        if signature.shape and value.ndim == 0 and len(signature.shape) == 1:
            values[name] = value = value.reshape(1)
        problems += misfits(signature, _name(value.dtype), value.shape, sizes)
    if problems:
        raise InputError(f"{model}: {'; '.join(problems)} (inputs: {', '.join(map(str, signatures))})")
    return values


@functools.cache
def _name(dtype: np.dtype) -> str:
    """The name of a type in signatures. numpy makes it anew each time, which takes longer than a small model's node."""
    return "string" if dtype == np.object_ else dtype.name


def misfits(signature: Signature, kind: str, shape: tuple[int, ...], sizes: dict[str, tuple[int, str]]) -> list[str]:
    """Errors of a tensor of type `kind` against its signature; `sizes` holds named dimensions met so far."""
    if kind != signature.dtype:
        return [f"input {signature.name!r} must be {signature.dtype}, not {kind}"]
    if not signature.shape:  # as for onnxruntime, a scalar may also stand for any shape
        return []
    wrong = len(shape) != len(signature.shape)
    for want, size in zip(signature.shape, shape):
        if isinstance(want, str):
            before, where = sizes.setdefault(want, (size, signature.name))
            if before != size and not wrong:
                return [f"input {signature.name!r} has {size} for {want!r}, which is {before} in {where!r}"]
        elif want is not None and want != size:
            wrong = True
    return [f"input {signature} cannot have shape {'x'.join(map(str, shape)) or 'scalar'}"] if wrong else []
