"""The producer and the consumers of every tensor of a graph."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from tilewright.compiler.graph.graph import Graph, Node, Tensor


class Wiring(Struct, frozen=True):
    """A graph with its producers and consumers, looked up once; `exchange` keeps them up to date.

    Attributes:
        producers: the node that makes a tensor, by the tensor's name.
        consumers: the nodes that read a tensor, by the tensor's name.
    """

    graph: Graph
    producers: dict[str, Node]
    consumers: dict[str, list[Node]]

    @staticmethod
    def of(graph: Graph) -> Wiring:
        """Returns the wiring of a graph."""
        return Wiring(graph, graph.producers(), graph.consumers())

    def exchange(self, old: Sequence[Node], new: Sequence[Node]) -> None:
        """Updates producers and consumers after nodes `new` took the place of nodes `old`."""
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
        """Returns the tensor of that name."""
        return self.graph.tensor(name)

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of the tensor of that name."""
        return self.graph.tensor(name).shape

    def readers(self, name: str) -> list[Node]:
        """Returns the nodes that read the tensor of that name."""
        return self.consumers.get(name, [])
