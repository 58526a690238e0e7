"""Branches whose condition is known become part of the graph around them.

onnxruntime does so, too, but crashes on some models with branches inside of branches.
"""

from __future__ import annotations

import contextlib

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tilewright.compiler.onnx.onnx_graphs import reads_of
from tilewright.quantize.observe import light

MOST_NODES = 200
"""A condition that takes more nodes to compute is left alone."""


def inline_branches(model: onnx.ModelProto) -> onnx.ModelProto:
    """Inlines every If whose condition follows from constants and known shapes, in place. The types and shapes of inner
    tensors are inferred on the way."""
    count = 0
    while True:
        with contextlib.suppress(Exception):  # it refuses models that onnxruntime runs
            found = onnx.shape_inference.infer_shapes(light(model), data_prop=True)
            del model.graph.value_info[:]
            model.graph.value_info.extend(found.graph.value_info)
        constants = _Constants(model)
        nodes: list[onnx.NodeProto] = []
        inlined = False
        for node in model.graph.node:
            condition = constants.value(node.input[0]) if node.op_type == "If" else None
            if condition is None or condition.size != 1:
                nodes.append(node)
                continue
            inlined = True
            count += 1
            wanted = "then_branch" if bool(condition.reshape(())) else "else_branch"
            branch = next(a.g for a in node.attribute if a.name == wanted)
            model.graph.initializer.extend(_renamed_constants(branch, count))
            nodes += _inlined(branch, list(node.output), count)
        if not inlined:
            return model
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        del model.graph.value_info[:]


def _inlined(branch: onnx.GraphProto, results: list[str], number: int) -> list[onnx.NodeProto]:
    """Renames the nodes of a branch; its outputs are called `results`."""
    names = _names(branch, number)
    made = {name for node in branch.node for name in node.output}
    for output, result in zip(branch.output, results):
        if output.name in made and result and names[output.name] not in results:
            names[output.name] = result
    nodes = [renamed(node, names) for node in branch.node]
    for output, result in zip(branch.output, results):
        source = names.get(output.name, output.name)
        if result and source != result:
            nodes.append(helper.make_node("Identity", [source], [result], f"{result}_from_branch"))
    return nodes


def _names(branch: onnx.GraphProto, number: int) -> dict[str, str]:
    inside = [x.name for x in branch.initializer] + [n for node in branch.node for n in node.output if n]
    return {name: f"{name}_branch_{number}" for name in inside}


def _renamed_constants(branch: onnx.GraphProto, number: int) -> list[onnx.TensorProto]:
    names = _names(branch, number)
    made = []
    for tensor in branch.initializer:
        copy = onnx.TensorProto()
        copy.CopyFrom(tensor)
        copy.name = names[tensor.name]
        made.append(copy)
    return made


def renamed(node: onnx.NodeProto, names: dict[str, str]) -> onnx.NodeProto:
    """The node with other names for what it reads and writes, in its own branches and bodies too."""
    made = onnx.NodeProto()
    made.CopyFrom(node)
    made.input[:] = [names.get(name, name) for name in node.input]
    made.output[:] = [names.get(name, name) for name in node.output]
    for attribute in made.attribute:
        for graph in [attribute.g] if attribute.HasField("g") else list(attribute.graphs):
            own = {x.name for x in [*graph.input, *graph.initializer]} | {n for x in graph.node for n in x.output}
            outer = {name: new for name, new in names.items() if name not in own}
            inner = [renamed(x, outer) for x in graph.node]
            del graph.node[:]
            graph.node.extend(inner)
            for output in graph.output:
                output.name = outer.get(output.name, output.name)
    return made


class _Constants:
    """Values of tensors that follow from constants and from known shapes."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.constants = {x.name: x for x in model.graph.initializer}
        self.producer = {name: node for node in model.graph.node for name in node.output if name}
        infos = [*model.graph.value_info, *model.graph.input]
        self.shapes = {x.name: x.type.tensor_type.shape for x in infos if x.type.tensor_type.HasField("shape")}

    def value(self, name: str) -> np.ndarray | None:
        """The tensor, None if it depends on inputs."""
        if name in self.constants:
            return np.asarray(numpy_helper.to_array(self.constants[name]))
        nodes: dict[int, onnx.NodeProto] = {}
        known: dict[str, np.ndarray] = {}
        pending = [name]
        while pending:
            wanted = pending.pop()
            node = self.producer.get(wanted)
            if wanted in known or (node is not None and id(node) in nodes):
                continue
            if wanted in self.constants:
                known[wanted] = numpy_helper.to_array(self.constants[wanted])
                continue
            if node is None or len(nodes) > MOST_NODES or "Random" in node.op_type:
                return None
            shape = self._shape(node)
            if shape is not None:
                known[wanted] = shape
                continue
            nodes[id(node)] = node
            pending += reads_of([node])
        order = [node for node in self.model.graph.node if id(node) in nodes]
        graph = helper.make_graph(
            order,
            "constants",
            [],
            [onnx.ValueInfoProto(name=name)],
            [numpy_helper.from_array(v, n) for n, v in known.items()],
        )
        part = helper.make_model(graph, opset_imports=list(self.model.opset_import), ir_version=8)
        from onnx.reference import ReferenceEvaluator  # 11 MB, and few models have branches

        try:
            (found,) = ReferenceEvaluator(part).run([name], {})
        except Exception:  # an operator that the reference implementation does not know
            return None
        return np.asarray(found)

    def _shape(self, node: onnx.NodeProto) -> np.ndarray | None:
        """The result of a Shape or Size whose operand's shape is known."""
        if node.op_type not in ("Shape", "Size") or node.attribute or node.input[0] not in self.shapes:
            return None
        dims = self.shapes[node.input[0]].dim
        if not all(d.HasField("dim_value") for d in dims):
            return None
        sizes = np.array([d.dim_value for d in dims], np.int64)
        return sizes if node.op_type == "Shape" else np.asarray(sizes.prod())
