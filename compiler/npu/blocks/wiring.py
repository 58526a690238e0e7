"""Who makes and who reads every tensor of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.compiler.graph.graph import Graph, Node, Tensor


@dataclass(frozen=True)
class Wiring:
    """A graph with its producers and consumers looked up once; who changes nodes meanwhile says so (`exchange`)."""

    graph: Graph
    producers: dict[str, Node]
    consumers: dict[str, list[Node]]

    @staticmethod
    def of(graph: Graph) -> Wiring:
        return Wiring(graph, graph.producers(), graph.consumers())

    def exchange(self, old: Sequence[Node], new: Sequence[Node]) -> None:
        """Nodes that others take the place of."""
        for node in old:
            for name in set(node.inputs):
                self.consumers[name] = [reader for reader in self.consumers.get(name, []) if reader is not node]
            for name in node.outputs:
                self.producers.pop(name, None)
        for node in new:
            for name in dict.fromkeys(name for name in node.inputs if name):
                self.consumers.setdefault(name, []).append(node)
            self.producers.update((name, node) for name in node.outputs if name)

    def tensor(self, name: str) -> Tensor:
        return self.graph.tensor(name)

    def shape(self, name: str) -> tuple[int, ...]:
        return self.graph.tensor(name).shape

    def readers(self, name: str) -> list[Node]:
        return self.consumers.get(name, [])
