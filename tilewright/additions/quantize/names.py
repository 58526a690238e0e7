"""Names of the tensors that a quantised model has beside those of the float model: the tensor's name and an ending.

They are onnxruntime's, so that tools which look for them find them.
"""

from __future__ import annotations

import onnx

from tilewright.errors import UsageError
from tilewright.quantize.branches import renamed

SCALE, ZERO_POINT, QUANTIZED = "_scale", "_zero_point", "_quantized"
MADE, BETWEEN, READ = "_QuantizeLinear_Input", "_QuantizeLinear_Output", "_DequantizeLinear_Output"

_ENDINGS = (SCALE, ZERO_POINT, QUANTIZED, MADE, BETWEEN, READ)


def clear_names(model: onnx.ModelProto) -> None:
    """Gives the tensors of a float model that have one of these endings other names, in place: a constant `norm_scale`
    would be taken for the scale of a tensor `norm`.

    Inputs and outputs keep their names; a tensor inside gives way to them.

    Raises:
        UsageError: an input or output has the name of another one and such an ending.
    """
    graph = model.graph
    fixed = {x.name for x in [*graph.input, *graph.output]} - {x.name for x in graph.initializer}
    constants = [x.name for x in graph.initializer]
    names = dict.fromkeys([*fixed, *constants, *(name for node in graph.node for name in node.output if name)])
    others: dict[str, str] = {}
    for name in list(names):
        for ending in _ENDINGS:
            stem = name.removesuffix(ending)
            if stem == name or (name in fixed and stem not in names):
                continue
            if name in fixed and stem in fixed:
                raise UsageError(
                    f"the model has inputs or outputs {stem!r} and {name!r}, which is what the quantised model calls a "
                    f"part of {stem!r}: rename one of them"
                )
            old = stem if name in fixed else name
            new = f"{old}_"
            while new in names:
                new += "_"
            others[old] = new
            names[new] = None
    if not others:
        return
    nodes = [renamed(node, others) for node in graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    for item in [*graph.initializer, *graph.value_info]:
        item.name = others.get(item.name, item.name)
