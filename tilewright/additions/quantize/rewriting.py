"""Rewrites of a float model: nodes that take the place of others, with the same products."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tilewright.compiler.onnx.onnx_graphs import reads_of
from tilewright.quantize.layers import Network
from tilewright.quantize.observe import without_constants

Rule = Callable[[onnx.ModelProto, Network, onnx.NodeProto], list[onnx.NodeProto] | None]


def replace_nodes(model: onnx.ModelProto, *rules: Rule) -> bool:
    """Puts what the first rule that takes a node makes in its place, in the model; shapes must have been inferred.

    Args:
        rules: the nodes in place of one, None where it stays; constants are added to the model.

    Returns:
        Whether a rule took a node.
    """
    network = Network(model)
    made = [next(filter(None, (rule(model, network, node) for rule in rules)), [node]) for node in network.nodes]
    if all(len(nodes) == 1 and nodes[0] is node for nodes, node in zip(made, network.nodes, strict=True)):
        return False
    del model.graph.node[:]
    model.graph.node.extend(node for nodes in made for node in nodes)
    return True


def with_parts(
    network: Network, parts: Mapping[int, Sequence[onnx.NodeProto]], constants: Mapping[str, np.ndarray]
) -> onnx.ModelProto:
    """A copy of a model with nodes in place of some, whose results have no types and shapes yet.

    Args:
        parts: what takes the place of a node, by its `id`.
        constants: beside the model's, or in place of those of the same names.
    """
    result = without_constants(network.model)
    graph = result.graph
    del graph.node[:]
    for node in network.nodes:
        graph.node.extend(parts.get(id(node), [node]))
    read = set(reads_of(graph.node))
    graph.initializer.extend(x for x in network.constants.values() if x.name in read and x.name not in constants)
    made = ((name, np.ascontiguousarray(value)) for name, value in constants.items() if name in read)
    graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in made)
    written = {name for node in graph.node for name in node.output}
    infos = [x for x in graph.value_info if x.name in written]
    del graph.value_info[:]
    graph.value_info.extend(infos)
    return result


def numbers(attributes: Mapping[str, object], name: str, default: list[int]) -> list[int]:
    """The integers of an attribute."""
    found = attributes.get(name, default)
    return [int(n) for n in found] if isinstance(found, list) else default


class Moves:
    """Nodes in place of one, named after it, and constants that they read.

    Attributes:
        name: of the node in whose place they are.
        made: the nodes so far.
    """

    def __init__(self, model: onnx.ModelProto, node: onnx.NodeProto) -> None:
        self.model, self.name = model, str(node.name or node.output[0])
        self.made: list[onnx.NodeProto] = []

    def constant(self, stem: str, value: np.ndarray) -> str:
        """An initialiser of the model."""
        made = numpy_helper.from_array(np.ascontiguousarray(value), f"{self.name}_{stem}")
        self.model.graph.initializer.append(made)
        return str(made.name)

    def integers(self, stem: str, values: object) -> str:
        """An initialiser of int64."""
        return self.constant(stem, np.array(values, np.int64))

    def move(self, op: str, inputs: Sequence[str], stem: str, result: str = "", **attributes: object) -> str:
        """The result of another node, which has a name of its own unless `result` is given."""
        output = result or f"{self.name}_{stem}_output"
        self.made.append(helper.make_node(op, inputs, [output], f"{self.name}_{stem}", **attributes))
        return output

    def reshape(self, x: str, stem: str, shape: Sequence[int]) -> str:
        """A tensor in another shape."""
        return self.move("Reshape", [x, self.integers(f"{stem}_shape", shape)], stem)
