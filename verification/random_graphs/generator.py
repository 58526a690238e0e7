"""`random_graph`: ops in random order until there are enough."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

import onnx
from onnx import helper

from verification.random_graphs import arithmetic, control_flow, indexing, layers, movement
from verification.random_graphs.builder import ONNX_TYPES, Builder, NoOperand, RandomGraph

#: Ops by how often they are taken.
OPS: tuple[tuple[Callable[[Builder], None], int], ...] = (
    (movement.reshape, 5), (movement.squeeze, 3), (movement.unsqueeze, 3), (movement.transpose, 3),
    (movement.slice_, 4), (movement.concat, 8), (movement.split, 3), (movement.pad, 2), (movement.tile, 1),
    (movement.expand, 2), (movement.depth_to_space, 2), (movement.identity, 1), (indexing.gather, 4),
    (indexing.gather_elements, 2), (indexing.gather_nd, 5), (indexing.scatter_nd, 2), (indexing.scatter_elements, 2),
    (indexing.one_hot, 1), (indexing.arg_extremum, 5), (indexing.top_k, 2), (indexing.cumsum, 2), (indexing.trilu, 1),
    (arithmetic.binary, 10), (arithmetic.divide, 5), (arithmetic.modulo, 5), (arithmetic.unary, 4),
    (arithmetic.rounding, 3), (arithmetic.compare, 3), (arithmetic.logic, 2), (arithmetic.where, 4),
    (arithmetic.cast, 9), (arithmetic.clip, 2), (layers.reduction, 4), (layers.matmul, 2), (layers.convolution, 2),
    (layers.pool, 1), (layers.quantise, 1), (layers.resize, 1), (layers.normalise, 1),
    (layers.transposed_convolution, 1), (layers.mean_pool, 1), (layers.quantised_convolution, 1),
    (control_flow.branch, 1), (control_flow.loop, 1),
)  # fmt: skip


def random_graph(random: Random, nodes: int = 20, control: bool = True) -> RandomGraph:
    """Returns a graph of at least so many nodes.

    Args:
        control: with If and Loop.
    """
    b = Builder(random)
    for _ in range(random.randrange(1, 4)):
        b.input()
    makers = [(m, w) for m, w in OPS if control or m not in (control_flow.branch, control_flow.loop)]
    tries = 0
    while len(b.nodes) < nodes and tries < 40 * nodes:
        tries += 1
        (make,) = random.choices([m for m, _ in makers], [w for _, w in makers])
        before = len(b.nodes), len(b.tensors), len(b.constants)
        try:
            make(b)
        except NoOperand:
            del b.nodes[before[0] :], b.tensors[before[1] :], b.constants[before[2] :]
            continue
    return _finished(b)


def _finished(b: Builder) -> RandomGraph:
    """Returns the graph with what nobody reads as outputs, and some of what is read; nodes that lead nowhere do not
    exist."""
    made = [t for t in b.tensors if t.name not in b.feeds]
    used = set(_reads(b.nodes))
    leaves = [t for t in made if t.name not in used]
    outputs = leaves[-4:] or made[-1:]
    outputs += [t for t in made if t not in outputs and b.random.random() < 0.07]
    if not outputs:
        t = b.like("Identity", b.tensors[0])
        outputs = [t]
    wanted, kept = {t.name for t in outputs}, []
    for node in reversed(b.nodes):
        if wanted & set(node.output):
            wanted |= set(_reads([node]))
            kept.append(node)
    shapes = {t.name: t for t in b.tensors}
    info = lambda n: helper.make_tensor_value_info(n, ONNX_TYPES[shapes[n].dtype], shapes[n].shape)
    feeds = {n: v for n, v in b.feeds.items() if n in wanted}
    graph = helper.make_graph(
        kept[::-1], "random", [info(n) for n in feeds], [info(t.name) for t in outputs],
        [c for c in b.constants if c.name in wanted],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return RandomGraph(model, feeds, {t.name: t.exact for t in outputs})


def _reads(nodes: Iterable[onnx.NodeProto]) -> list[str]:
    """Names that nodes read, also those read inside of their branches and bodies."""
    names = []
    for node in nodes:
        names += [n for n in node.input if n]
        for a in node.attribute:
            if a.type == onnx.AttributeProto.GRAPH:
                names += _reads(a.g.node)
    return names
