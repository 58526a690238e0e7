"""Both sides of a proof."""

from __future__ import annotations

import tilewright as tw
from tilewright.api.options import ProgramOptions
from tilewright.api.source import ModelSource
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import Program
from tilewright.prove.checker.graph import QuantisedGraph
from tilewright.prove.compiled import quantised_graph


def both(model: bytes, config: NpuConfig) -> tuple[QuantisedGraph, Program]:
    """Returns the graph of a model, and the program that is compiled of it without anything kept."""
    graph = quantised_graph(ModelSource(model), config, ProgramOptions().compiler)
    return graph, tw.compile_program(model, config, tuning="off", cache=False)
