"""The quantised graphs of a program from the compiler, which says what nodes its CPU steps have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tilewright.api.source import ModelSource
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.passes import run_passes
from tilewright.compiler.stages.order import NodeStep, order_steps
from tilewright.compiler.stages.partition import partition
from tilewright.isa.config import NpuConfig
from tilewright.prove.checker.graph import QuantisedGraph
from tilewright.prove.imported import plain_graph, plain_step, plain_values, trusted_graph


def quantised_graphs(
    source: ModelSource,
    config: NpuConfig,
    options: CompileOptions,
    entries: Mapping[str, Mapping[str, Sequence[int]]] | None = None,
) -> dict[str, QuantisedGraph]:
    """The graphs of a program's entry points; "" is that of a program without.

    Args:
        entries: shapes of inputs, beside those of `source`, by the name of the entry point.
    """
    if not entries:
        return {"": quantised_graph(source, config, options)}
    return {
        name: quantised_graph(replace(source, shapes={**(source.shapes or {}), **shapes}), config, options)
        for name, shapes in entries.items()
    }


def quantised_graph(source: ModelSource, config: NpuConfig, options: CompileOptions) -> QuantisedGraph:
    """The graph of a model behind the trusted passes, with the nodes of the CPU steps that the compiler makes of it.

    Raises:
        CompileError: the model cannot be compiled.
    """
    found, graph = plain_graph(trusted_graph(source)), source.graph()
    run_passes(graph)
    parts = partition(graph, config, options)
    work = {
        number: tuple(plain_step(node) for node in step.tasks)
        for number, step in enumerate(order_steps(graph, parts, options))
        if isinstance(step, NodeStep)
    }
    return replace(found, work=work, work_values=plain_values(graph))
