"""Models that compute in float16 or bfloat16 become such of float32: the same numbers, with finer sums."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

HALVES = {TensorProto.FLOAT16: "float16", TensorProto.BFLOAT16: "bfloat16"}

_KINDS = ("to", "dtype", "output_dtype")
"""Attributes that name the type of a result."""


def note(kind: str) -> str:
    """The note for the user on a model of halves."""
    return f"the model computes in {kind}: it is quantised as one of float32, and takes and gives float32"


def widen(model: onnx.ModelProto) -> None:
    """Makes float32 of all halves, in place: constants, inputs, outputs, casts, bodies and functions."""
    del model.graph.value_info[:]
    for graph in _graphs(model.graph):
        for x in [*graph.input, *graph.output]:
            kinds = [x.type.tensor_type, x.type.sequence_type.elem_type.tensor_type]
            for kind in kinds:
                if kind.elem_type in HALVES:
                    kind.elem_type = TensorProto.FLOAT
        del graph.value_info[:]
        for tensor in graph.initializer:
            _widen(tensor)
        _nodes(graph.node)
    for function in model.functions:
        _nodes(function.node)


def _nodes(nodes: Iterable[onnx.NodeProto]) -> None:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                _widen(attribute.t)
            if attribute.name in _KINDS and attribute.type == onnx.AttributeProto.INT and attribute.i in HALVES:
                attribute.i = TensorProto.FLOAT


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
                yield from _graphs(inner)


def _widen(tensor: onnx.TensorProto) -> None:
    if tensor.data_type in HALVES:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name))
