"""Folds, eliminates and simplifies the nodes that the fusions left behind."""

from __future__ import annotations

from tilewright.compiler.graph.graph import Graph
from tilewright.compiler.passes.fold.eliminate import eliminate
from tilewright.compiler.passes.fold.fold_constants import fold_dequantized
from tilewright.compiler.passes.fold.simplify import simplify


def clean_up(graph: Graph) -> None:
    fold_dequantized(graph)
    eliminate(graph, last=True)
    simplify(graph)
    eliminate(graph, last=True)
