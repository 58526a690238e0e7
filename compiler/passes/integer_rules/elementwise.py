"""Integer rules of Add, Sub, Mul and Where."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tilewright.compiler.graph.graph import Node, Quant, Tensor
from tilewright.compiler.graph.ops.elementwise import IDENTITY_TABLE, QAdd, QLut, QMul
from tilewright.compiler.graph.quantization import limits
from tilewright.compiler.passes.integer_rules.rule import integer_rule
from tilewright.compiler.passes.integer_rules.site import Site


@integer_rule("Add", "Mul")
def binary(site: Site) -> list[Node] | None:
    """The rule of Add and Mul of two 8-bit tensors, either of which may be a constant.

    onnxruntime calls its kernel with the operands exchanged where the first is one value along a row of the second in
    memory; the order matters to the last bit of an Add.
    """
    a, b = site.activation(0, signed=True), site.activation(1, signed=True)
    if a is None or b is None or not a.dtype == b.dtype == site.out.dtype:
        return None
    op = QAdd if site.node.op == "Add" else QMul
    names = [a.name, b.name]
    if site.fused and _exchanged(site, a.shape, b.shape):
        names.reverse()
    return [site.make(op(floats=not site.fused), names)]


@integer_rule("Sub")
def difference(site: Site) -> list[Node] | None:
    """The rule of Sub of two 8-bit tensors, either of which may be a constant: Add of the second one's negation.

    A byte with all bits inverted is the negation, exactly, where the zero point's are inverted, too. onnxruntime has no
    integer kernel for it.
    """
    a, b = site.activation(0), site.activation(1)
    if a is None or b is None or not a.dtype == b.dtype == site.out.dtype:
        return None
    assert b.quant is not None
    negated = Quant.of(b.quant.scale, sum(limits(b.dtype)) - int(b.quant.zero_point))
    if b.data is not None:
        return [site.make(QAdd(floats=True), [a.name, site.graph.constant(f"{b.name}.negated", ~b.data, negated)])]
    name = site.graph.unique(f"{b.name}.negated")
    site.graph.add(Tensor(name, b.shape, b.dtype, None, negated))
    table = Node.of(QLut(table=IDENTITY_TABLE[::-1]), [b.name], [name], name)
    return [table, site.make(QAdd(floats=True), [a.name, name])]


def _exchanged(site: Site, a: Sequence[int], b: Sequence[int]) -> bool:
    rank = len(site.out.shape)
    as_written = one_value_along_rows(a, b)
    if rank < 3:
        return as_written
    turned = one_value_along_rows(channels_last(a, rank), channels_last(b, rank))
    return turned if turned != as_written and _between_convs(site, 1) else as_written


def _between_convs(site: Site, index: int) -> bool:
    """True if an operand comes from a Conv, and the result goes to one, by ops that leave the layout alone.

    onnxruntime keeps the channels last from the one to the other.
    """
    consumers = site.graph.consumers()
    before = lambda node: node.inputs
    made = lambda name: [site.producers[name]] if name in site.producers else []
    after = lambda node: node.outputs
    used = lambda name: consumers.get(name, [])
    return _leads_to_conv(site, site.node.inputs[index], made, before) and _leads_to_conv(
        site, site.node.outputs[0], used, after
    )


def _leads_to_conv(
    site: Site, start: str, nodes: Callable[[str], list[Node]], names: Callable[[Node], list[str]]
) -> bool:
    seen: set[str] = set()
    left = [start]
    while left:
        name = left.pop()
        if name in seen or not name or len(site.graph.tensor(name).shape) < 3:
            continue
        seen.add(name)
        for node in nodes(name):
            if node.op == "Conv":
                return True
            if node.op in _ANY_LAYOUT:
                left += names(node)
    return False


_ANY_LAYOUT = {
    "QuantizeLinear", "DequantizeLinear", "Relu", "Clip", "LeakyRelu", "Sigmoid", "HardSwish", "HardSigmoid", "Tanh",
    "Add", "Sub", "Mul", "Div", "MaxPool", "AveragePool", "Concat", "Pad",
}  # fmt: skip


def channels_last(shape: Sequence[int], rank: int) -> tuple[int, ...]:
    """The shape, broadcast to this rank, in the view of onnxruntime's channels-last kernels."""
    n, c, *space = (1,) * (rank - len(shape)) + tuple(shape)
    return (n, *space, c)


def one_value_along_rows(a: Sequence[int], b: Sequence[int]) -> bool:
    """True if `a` is broadcast along the innermost dimension in which `a` or `b` has more than one element."""
    shared = min(len(a), len(b))
    if shared == 0:
        return not a
    for m, n in zip(a[::-1], b[::-1]):
        if max(m, n) > 1:
            return m == 1
    return True


@integer_rule("Where")
def where(site: Site) -> list[Node] | None:
    """The rule of Where(condition, x, y) on integers; operands of another scale pass through a table first."""
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
