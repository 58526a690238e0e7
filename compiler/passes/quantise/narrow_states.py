"""Gives states the type of the computation.

    begin -> Q, and DQ -> end, of one scale     =>  the state is the integers between

The next run reads the value that a run ends with, and Q(DQ(x)) is x.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.compiler.graph.graph import Graph, Node, State
from tilewright.compiler.graph.quantization import is_activation, quantize_by
from tilewright.compiler.passes.annotate import quant_of


def narrow_states(graph: Graph) -> None:
    if not graph.states:
        return
    producers, consumers = graph.producers(), graph.consumers()
    graph.states = [_narrowed(graph, state, producers, consumers) for state in graph.states]
    graph.prune()


def _narrowed(graph: Graph, state: State, producers: dict[str, Node], consumers: dict[str, list[Node]]) -> State:
    """The state as integers, or the same state where that is impossible."""
    readers, maker = consumers.get(state.begin, []), producers.get(state.end)
    if not readers or any(r.op != "QuantizeLinear" for r in readers) or state.begin in graph.outputs:
        return state
    if maker is None or maker.op != "DequantizeLinear":
        return state
    first, last = graph.tensor(readers[0].outputs[0]), graph.tensor(maker.inputs[0])
    quants = [quant_of(graph, node) for node in (*readers, maker)]
    quant = quants[0]
    alike = quant is not None and all(quant.same_as(other) for other in quants)
    types = {graph.tensor(r.outputs[0]).dtype for r in readers} | {last.dtype}
    if quant is None or not alike or len(types) != 1 or not is_activation(first) or last.is_const:
        return state
    if any(last.name in (s.begin, s.end) for s in graph.states) or last.name in graph.inputs:
        return state
    for reader in readers:
        graph.nodes.remove(reader)
        for user in consumers.get(reader.outputs[0], []):
            user.inputs = [first.name if name == reader.outputs[0] else name for name in user.inputs]
    graph.inputs[graph.inputs.index(state.begin)] = first.name
    graph.outputs[graph.outputs.index(state.end)] = last.name
    initial = quantize_by(readers[0].attrs, state.initial.astype(np.float32), quant, first.dtype)
    return replace(state, begin=first.name, end=last.name, initial=initial)
