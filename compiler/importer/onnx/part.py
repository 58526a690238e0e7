"""Imports part of a model as a graph of its own: consecutive nodes, with types and some values of their inputs.

A dynamic model is compiled in parts, because results of one part may decide the shapes of the next. Where a part cannot
be one program, `Cut` names the node, and the values that would help.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from tilewright.compiler.errors import StagingError
from tilewright.compiler.graph.graph import Graph, Tensor
from tilewright.compiler.importer.onnx.builder import OnnxBuilder, deciding
from tilewright.compiler.importer.onnx.handlers import HANDLERS, handles
from tilewright.compiler.importer.onnx.loader import import_errors
from tilewright.compiler.importer.onnx.onnx_node import OnnxNode
from tilewright.compiler.limits import check_shape
from tilewright.compiler.onnx.onnx_ops import OPSET


@dataclass
class Cut(Exception):
    """The node at which a part of a model ends, because it cannot be compiled with the known values.

    Attributes:
        node: its index in the part.
        names: values, inputs of the part or results of nodes before, that would have to be known; empty if the host has
            to run the node.
        reason: the importer's message.
    """

    node: int
    names: tuple[str, ...]
    reason: str


def import_part(
    name: str,
    nodes: Sequence[onnx.NodeProto],
    versions: Mapping[str, int],
    types: Mapping[str, tuple[tuple[int, ...], np.dtype]],
    constants: Mapping[str, np.ndarray],
    outputs: Sequence[str],
) -> Graph:
    """Imports some nodes as a graph.

    Args:
        name: name of the model, for messages.
        versions: opset version by domain.
        types: shape and dtype of every tensor the nodes take from outside.
        constants: known values, initialisers among them.
        outputs: results read by others.

    Raises:
        Cut: the nodes cannot be one program with these values. CompileError: the nodes are damaged, inconsistent or
            unsupported.
    """
    graph = Graph(name, OPSET)
    builder = OnnxBuilder(graph, name, dict(versions), HANDLERS, staged=True)
    for key, value in constants.items():
        graph.add(Tensor(key, tuple(value.shape), value.dtype, value))
    for key, (shape, dtype) in types.items():
        if key not in constants:
            check_shape("input", key, shape)
            graph.add(Tensor(key, tuple(shape), np.dtype(dtype)))
            graph.inputs.append(key)
    made: dict[str, int] = {}
    for index, proto in enumerate(nodes):
        try:
            with import_errors(name):
                builder.node(proto)
        except StagingError as error:
            raise Cut(index, deciding(graph, error.tensors, {*graph.inputs, *made}), str(error)) from error
        made |= dict.fromkeys(filter(None, proto.output), index)
    for output in outputs:
        if output in builder.sequences:
            raise Cut(made[output], (), f"{output!r} is a sequence, which no program hands over")
        graph.outputs.append(output)
    graph.prune()
    graph.inputs = [n for n in graph.inputs if n in graph.tensors]
    graph.verify("import")
    return graph


def _pass_to_host(builder: OnnxBuilder, node: OnnxNode) -> None:
    if not all(name in builder.graph.tensors and builder.const(name) is not None for name in node.inputs if name):
        raise StagingError(f"{node.label} runs on the host; a compiled program does not have it")
    builder.passthrough(node)


for _domain, _ops in {
    "": (
        "ImageDecoder",
        "RegexFullMatch",
        "StringConcat",
        "StringNormalizer",
        "StringSplit",
        "TfIdfVectorizer",
        "Unique",
    ),
    "ai.onnx.ml": ("CategoryMapper", "LabelEncoder"),
}.items():
    handles(*_ops, domain=_domain)(_pass_to_host)
