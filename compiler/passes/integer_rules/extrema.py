"""Integer rules of Max and Min."""

from __future__ import annotations

import numpy as np

from tilewright.compiler.graph.graph import Node, Tensor
from tilewright.compiler.graph.ops.elementwise import QLut
from tilewright.compiler.graph.quantization import quantize
from tilewright.compiler.passes.integer_rules.rule import integer_rule
from tilewright.compiler.passes.integer_rules.site import Site


@integer_rule("Max", "Min")
def extremum(site: Site) -> list[Node] | None:
    """The rule of Max and Min of 8-bit tensors and constants, on integers of the result's scale.

    QuantizeLinear is monotone, so Q(max(a, b)) = max(Q(a), Q(b)); an operand of another scale is requantised by a
    table, and a clamp behind becomes part of the tables.
    """
    before: list[Node] = []
    names: list[str] = []
    found = [site.activation(i) for i in range(len(site.node.inputs))]
    if len(found) < 2 or not any(found):
        return None
    for i, tensor in enumerate(found):
        if tensor is None:
            values = site.constant(i)
            if values is None or np.isnan(values).any():
                return None
            names.append(_quantized(site, values))
            continue
        table = site.requantizing_table(tensor)
        if table is None and tensor.dtype == site.out.dtype:
            names.append(tensor.name)
            continue
        table = np.arange(256, dtype=np.uint8) if table is None else table
        name = _add_result(site, f"{tensor.name}.requantized", tensor.shape)
        before.append(Node.of(QLut(table=table.tobytes()), [tensor.name], [name], name))
        names.append(name)
    made, *others = names
    for other in others[:-1]:
        shape = np.broadcast_shapes(site.graph.tensor(made).shape, site.graph.tensor(other).shape)
        name = _add_result(site, f"{site.out.name}.part", shape)
        before.append(Node(site.node.op, [made, other], [name], {}, name))
        made = name
    return [*before, site.make_onnx(site.node.op, [made, others[-1]])]


def _quantized(site: Site, values: np.ndarray) -> str:
    """A constant of the result's type and scale, clamped like the result."""
    integers = np.clip(quantize(values, site.out_quant, site.out.dtype), site.low, site.high).astype(site.out.dtype)
    return site.graph.constant(f"{site.out.name}.operand", integers, site.out_quant)


def _add_result(site: Site, stem: str, shape: tuple[int, ...]) -> str:
    name = site.graph.unique(stem)
    site.graph.add(Tensor(name, shape, site.out.dtype, None, site.out_quant))
    return name
