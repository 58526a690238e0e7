"""Add, Mul and Where."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.graph import Node, Tensor
from compiler.ops.elementwise import QAdd, QLut, QMul
from compiler.passes.integer_rules.rule import integer_rule
from compiler.passes.integer_rules.site import Site


@integer_rule("Add", "Mul")
def binary(site: Site) -> list[Node] | None:
    """Add and Mul of two 8-bit tensors, either of which may be a constant.

    onnxruntime calls its kernel with the operands exchanged where the first is one value along a row of the second; the
    order matters to the last bit of an Add.
    """
    a, b = site.activation(0), site.activation(1)
    if a is None or b is None or not a.dtype == b.dtype == site.out.dtype:
        return None
    op = QAdd if site.node.op == "Add" else QMul
    names = [a.name, b.name]
    if site.fused and one_value_along_rows(a.shape, b.shape):
        names.reverse()
    return [site.make(op(floats=not site.fused), names)]


def one_value_along_rows(a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether `a` is broadcast along the innermost dimension in which `a` or `b` has more than one element."""
    shared = min(len(a), len(b))
    if shared == 0:
        return not a
    for m, n in zip(a[::-1], b[::-1]):
        if max(m, n) > 1:
            return m == 1
    return True


@integer_rule("Where")
def where(site: Site) -> list[Node] | None:
    """Where(condition, x, y) on integers; operands of another scale pass through a table first."""
    before: list[Node] = []
    if site.activation(1) is None and site.activation(2) is None:
        return None
    names = []
    for i in (1, 2):
        tensor = site.operand(i, before)
        if tensor is None:
            return None
        table = site.requantizing_table(tensor)
        name = tensor.name
        if table is not None or tensor.dtype != site.out.dtype:
            table = np.arange(256, dtype=np.uint8) if table is None else table
            name = site.graph.unique(f"{tensor.name}.requantized")
            site.graph.add(Tensor(name, tensor.shape, site.out.dtype, None, site.out_quant))
            before.append(Node.of(QLut(table=table.tobytes()), [tensor.name], [name], name))
        names.append(name)
    return [*before, site.make_onnx("Where", [site.node.inputs[0], *names])]
