"""A model whose recurrent steps stop early: what is compiled to see that a result runs.

The compiler writes out every step, and all of them do the same: so a few show whether they run, for a tenth of the
time. Rows of the steps left out are those of the last one that is there, so that all other shapes stay.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

STEPS = 8
"""Number of steps that are kept."""


def scans_of(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """Returns the recurrent layers of a written model."""
    return [node for node in model.graph.node if node.op_type == "Scan"]


def _scanned(node: onnx.NodeProto) -> list[str]:
    count = next(a.i for a in node.attribute if a.name == "num_scan_inputs")
    return list(node.input)[-count:]


def scanned_by(scan: onnx.NodeProto) -> str:
    """Returns the tensor whose first axis are a layer's steps."""
    return _scanned(scan)[0]


def first_steps(model: onnx.ModelProto, steps: dict[str, int]) -> onnx.ModelProto:
    """Returns a copy of a written model whose recurrent layers read the first `STEPS` of their steps only.

    Args:
        steps: how many each of these layers has, by its name; others stay.
    """
    made = onnx.ModelProto()
    made.CopyFrom(model)
    nodes: list[onnx.NodeProto] = []

    def constant(name: str, value: list[int]) -> str:
        made.graph.initializer.append(numpy_helper.from_array(np.array(value, np.int64), name))
        return name

    for node in made.graph.node:
        if node.name not in steps:
            nodes.append(node)
            continue
        scanned, name = _scanned(node), node.name
        first, end, axis = (constant(f"{name}:{k}", [v]) for k, v in (("from", 0), ("to", STEPS), ("axis", 0)))
        for at in range(len(node.input) - len(scanned), len(node.input)):
            nodes.append(helper.make_node("Slice", [node.input[at], first, end, axis], [f"{name}:few_{at}"]))
            node.input[at] = f"{name}:few_{at}"
        nodes.append(node)
        rows = constant(f"{name}:rows", np.minimum(np.arange(steps[name]), STEPS - 1).tolist())
        for at in range(len(node.input) - len(scanned), len(node.output)):
            result = node.output[at]
            node.output[at] = f"{name}:made_{at}"
            nodes.append(helper.make_node("Gather", [node.output[at], rows], [result], axis=0))
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    return made
