"""Reorders chains of matrix products to the fewest multiplications.

    (A @ B) @ C  <=>  A @ (B @ C)

Products of constants count nothing: they are folded. Another order rounds differently, so only chains of float32 are
changed that neither come from integers (DequantizeLinear) nor become integers (QuantizeLinear).
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from msgspec import Struct

from tilewright.compiler.graph.graph import Graph, Node, Tensor
from tilewright.compiler.passes.fold.fold_constants import fold_constants

_MAX_CHAIN = 24  # products; the search is cubic


def reassociate_matmul(graph: Graph) -> None:
    producers, consumers = graph.producers(), graph.consumers()
    exact = near_integers(graph)
    inner = {
        n.outputs[0]
        for n in graph
        if n.op == "MatMul"
        and [c.op for c in consumers.get(n.outputs[0], [])] == ["MatMul"]
        and n.outputs[0] not in graph.outputs
        and consumers[n.outputs[0]][0].inputs.count(n.outputs[0]) == 1
    }
    changed = False
    nodes: list[Node] = []
    for node in graph:
        nodes.append(node)
        if node.op != "MatMul" or node.outputs[0] in inner or node.outputs[0] in exact:
            continue
        tree = _tree(graph, producers, inner, node.outputs[0])
        names = _leaves(tree)
        if not 3 <= len(names) <= _MAX_CHAIN or not all(_fits(graph, n, k == 0) for k, n in enumerate(names)):
            continue
        chain = _Chain.of(graph, names)
        best, cost = chain.best()
        if cost < chain.cost(tree):
            nodes.pop()
            nodes += _build(graph, best, node)
            changed = True
    if changed:
        graph.nodes = nodes
        graph.prune()
        fold_constants(graph)


def near_integers(graph: Graph) -> set[str]:
    """Tensors computed from a DequantizeLinear's result, or that a QuantizeLinear's input is computed from."""
    near: set[str] = set()
    for node in graph:
        if node.op == "DequantizeLinear" or any(i in near for i in node.inputs):
            near.update(o for o in node.outputs if o)
    above: set[str] = set()
    for node in reversed(graph.nodes):
        if node.op == "QuantizeLinear" or any(o in above for o in node.outputs):
            above.update(i for i in node.inputs if i)
    return near | above


# A chain as it stands: a tensor's name, or the two factors of a product.
_Tree = str | tuple["_Tree", "_Tree"]


def _tree(graph: Graph, producers: dict[str, Node], inner: set[str], name: str, root: bool = True) -> _Tree:
    node = producers.get(name)
    if node is None or not (root or name in inner):
        return name
    left, right = (_tree(graph, producers, inner, i, False) for i in node.inputs)
    return left, right


def _leaves(tree: _Tree) -> list[str]:
    return [tree] if isinstance(tree, str) else [*_leaves(tree[0]), *_leaves(tree[1])]


def _fits(graph: Graph, name: str, first: bool) -> bool:
    """True for a float32 matrix; the first factor may be a stack of matrices, which is a taller one."""
    t = graph.tensor(name)
    return t.dtype == np.float32 and (len(t.shape) == 2 or (first and len(t.shape) > 2)) and t.size > 0


class _Chain(Struct):
    """A chain of matrix products: its factors by position, with their sizes."""

    names: list[str]
    rows: list[int]
    columns: list[int]
    constant: list[bool]

    @staticmethod
    def of(graph: Graph, names: list[str]) -> _Chain:
        tensors = [graph.tensor(n) for n in names]
        rows = [math.prod(t.shape[:-1]) for t in tensors]
        return _Chain(names, rows, [t.shape[-1] for t in tensors], [t.is_const for t in tensors])

    def product(self, first: int, middle: int, last: int) -> int:
        """The number of multiplications of (first..middle) @ (middle+1..last)."""
        if all(self.constant[first : last + 1]):
            return 0
        return self.rows[first] * self.columns[middle] * self.columns[last]

    def cost(self, tree: _Tree, first: int = 0) -> int:
        if isinstance(tree, str):
            return 0
        middle, last = first + len(_leaves(tree[0])) - 1, first + len(_leaves(tree)) - 1
        below = self.cost(tree[0], first) + self.cost(tree[1], middle + 1)
        return below + self.product(first, middle, last)

    def best(self) -> tuple[_Tree, int]:
        """The cheapest order, by dynamic programming over all parts of the chain."""

        @cache
        def search(first: int, last: int) -> tuple[int, _Tree]:
            if first == last:
                return 0, self.names[first]
            found: tuple[int, _Tree] | None = None
            for middle in range(first, last):
                (a, left), (b, right) = search(first, middle), search(middle + 1, last)
                total = a + b + self.product(first, middle, last)
                if found is None or total < found[0]:
                    found = total, (left, right)
            assert found is not None
            return found

        total, tree = search(0, len(self.names) - 1)
        return tree, total


def _build(graph: Graph, tree: _Tree, root: Node) -> list[Node]:
    """The products of a tree, the last of which writes the result of `root`."""
    nodes: list[Node] = []

    def write(tree: _Tree, name: str = "") -> str:
        if isinstance(tree, str):
            return tree
        left, right = write(tree[0]), write(tree[1])
        if not name:
            name = graph.unique(f"{root.outputs[0]}.product")
            shape = (*graph.tensor(left).shape[:-1], graph.tensor(right).shape[-1])
            graph.add(Tensor(name, shape, np.dtype(np.float32)))
        nodes.append(Node("MatMul", [left, right], [name], {}, root.name, root.origin))
        return name

    write(tree, root.outputs[0])
    return nodes
