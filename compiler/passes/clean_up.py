"""Folds, eliminates and simplifies what the fusions left behind."""

from __future__ import annotations

from compiler.graph import Graph
from compiler.passes.eliminate import eliminate
from compiler.passes.fold_constants import fold_dequantized
from compiler.passes.simplify import simplify


def clean_up(graph: Graph) -> None:
    fold_dequantized(graph)
    eliminate(graph, last=True)
    simplify(graph)
    eliminate(graph, last=True)
