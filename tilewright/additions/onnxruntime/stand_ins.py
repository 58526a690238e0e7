"""Stand-ins for nodes that kernels run and onnxruntime does not know: functions of the model that tell it their types.

onnxruntime asks the provider about nodes before it puts the bodies of functions in their place. A node that is not
taken would give zeros, so whoever makes the session has to look at the report.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tilewright.checking.onnxruntime_reference import load_model
from tilewright.compiler.graph.ops.kernel import QKernel
from tilewright.compiler.importer.onnx import OPSET, import_onnx
from tilewright.compiler.importer.onnx.kernel_nodes import SHAPE, ZERO
from tilewright.compiler.importer.onnx.loader import op_of
from tilewright.kernel import Kernel

#: Domains whose ops onnxruntime has.
_KNOWN = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft")


def with_stand_ins(
    model: str | Path | bytes | onnx.ModelProto, kernels: Sequence[Kernel]
) -> tuple[onnx.ModelProto | None, list[str]]:
    """Returns a model with stand-ins and the names of the nodes that have one; no model where none is needed.

    Raises:
        CompileError: the model or one of these nodes cannot be compiled.
    """
    found = load_model(model)
    local = {(f.domain, f.name) for f in found.functions}
    unknown = lambda n: n.domain not in _KNOWN and (n.domain, n.op_type) not in local
    wanted = lambda n: unknown(n) and any(k.runs_op(op_of(n)) for k in kernels)
    if not any(map(wanted, found.graph.node)):
        return None, []
    made = onnx.ModelProto()
    made.CopyFrom(found)
    nodes = list(filter(wanted, made.graph.node))
    for number, node in enumerate(nodes):  # names by which they are found again
        node.name = f"{node.name or node.op_type} {number}" if _is_shared(node, nodes) else node.name
    graph = import_onnx(made, kernels=kernels)
    of_name = {n.name: n for n in graph if isinstance(n.quantized, QKernel)}
    for node in nodes:
        tensor, op = graph.tensor(of_name[node.name].outputs[0]), of_name[node.name].quantized
        assert isinstance(op, QKernel)
        zero = np.zeros(1, tensor.dtype if op.facts.output.scale is None else np.float32)
        node.attribute.append(helper.make_attribute(SHAPE, list(tensor.shape)))
        node.attribute.append(helper.make_attribute(ZERO, numpy_helper.from_array(zero)))
    for domain, op_type in dict.fromkeys((n.domain, n.op_type) for n in nodes):
        made.functions.append(_function([n for n in nodes if (n.domain, n.op_type) == (domain, op_type)]))
        if all(o.domain != domain for o in made.opset_import):
            made.opset_import.add(domain=domain, version=1)
    return made, [node.name for node in nodes]


def _is_shared(node: onnx.NodeProto, nodes: Sequence[onnx.NodeProto]) -> bool:
    """Returns True for a node without a name of its own."""
    return not node.name or sum(other.name == node.name for other in nodes) > 1


def _function(nodes: Sequence[onnx.NodeProto]) -> onnx.FunctionProto:
    """Returns the function that stands for nodes of an op: zeros of the type and shape in attributes."""
    reference = lambda name, own, kind: onnx.AttributeProto(name=own, ref_attr_name=name, type=kind)
    shape, zeros = helper.make_node("Constant", [], ["s"]), helper.make_node("ConstantOfShape", ["s"], ["y"])
    shape.attribute.append(reference(SHAPE, "value_ints", onnx.AttributeProto.INTS))
    zeros.attribute.append(reference(ZERO, "value", onnx.AttributeProto.TENSOR))
    inputs = [f"x{i}" for i in range(max(len(n.input) for n in nodes))]
    names = sorted({a.name for n in nodes for a in n.attribute})
    versions = [helper.make_opsetid("", min(OPSET, 21))]
    return helper.make_function(nodes[0].domain, nodes[0].op_type, inputs, ["y"], [shape, zeros], versions, names)
