"""Who makes and who reads every tensor of a graph."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.graph import Graph, Node, Tensor


@dataclass(frozen=True)
class Wiring:
    """A graph with its producers and consumers looked up once; the graph's nodes do not change meanwhile."""

    graph: Graph
    producers: dict[str, Node]
    consumers: dict[str, list[Node]]

    @staticmethod
    def of(graph: Graph) -> Wiring:
        return Wiring(graph, graph.producers(), graph.consumers())

    def tensor(self, name: str) -> Tensor:
        return self.graph.tensor(name)

    def shape(self, name: str) -> tuple[int, ...]:
        return self.graph.tensor(name).shape

    def readers(self, name: str) -> list[Node]:
        return self.consumers.get(name, [])
