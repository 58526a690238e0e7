"""States of a graph: inputs and outputs that live from one run to the next, declared by name, and those changed in
place.

A cache of keys and values comes in as an input and goes out as an output with new rows put in. As a state it is memory
of the program: the rows are written in place, and nothing else moves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.common.text import suggest
from tilewright.compiler.errors import CompileError
from tilewright.compiler.graph.graph import Graph, Node, State

SCATTERS = ("ScatterElements", "ScatterND", "TensorScatter")
"""Ops that put some values into a tensor, their first input, and keep the rest of it."""

_SAME_PLACES = ("QuantizeLinear", "DequantizeLinear", "Identity", "Cast")
_PAST = re.compile(r"past(_key_values)?(?=$|[^a-zA-Z])", re.IGNORECASE)


def paired_by_name(inputs: Sequence[str], outputs: Sequence[str]) -> dict[str, str]:
    """Pairs inputs called past... with the outputs called present... in the same way, as exporters of decoders call
    them: past_key_values.0.key and present.0.key, past_key_0 and present_key_0.
    """
    found = {}
    for name in inputs:
        for replaced in ("present", "present_key_values"):
            other = _PAST.sub(replaced, name, count=1)
            if other != name and other in outputs:
                found[name] = other
                break
    return found


def declare_states(graph: Graph, pairs: Mapping[str, str]) -> None:
    """Makes inputs states that outputs set for the next run; the first run begins with zeros.

    Args:
        pairs: the output by the name of the input.

    Raises:
        CompileError: no such input or output, one of another shape or type, or more new values than a state holds.
    """
    producers = graph.producers()
    for past, present in pairs.items():
        for name, names, kind in ((past, graph.inputs, "input"), (present, graph.outputs, "output")):
            if name not in names:
                raise CompileError(
                    f"state {past!r}: there is no {kind} {name!r}{suggest(name, names)}; there are {', '.join(names)}"
                )
        before, after = graph.tensor(past), graph.tensor(present)
        if (before.shape, before.dtype) != (after.shape, after.dtype):
            raise CompileError(
                f"state {past!r} begins a run as {before.dtype}{list(before.shape)} and ends it, as {present!r}, as "
                f"{after.dtype}{list(after.shape)}; a cache needs a fixed size, into which ScatterElements, ScatterND "
                "or TensorScatter put what is new"
            )
        maker = producers.get(present)
        while maker is not None and maker.op in _SAME_PLACES:
            maker = producers.get(maker.inputs[0])
        if maker is not None and is_scatter(maker):
            new = graph.tensor(maker.inputs[1 if maker.op == "TensorScatter" else 2])
            if new.size > before.size:
                raise CompileError(
                    f"state {past!r} has {list(before.shape)} values; a run that puts {list(new.shape)} new ones into "
                    "it does not fit: give it fewer tokens"
                )
        if list(pairs.values()).count(present) > 1:
            raise CompileError(f"output {present!r} cannot end several states")
        graph.states.append(State(past, past, present, np.zeros(before.shape, before.dtype)))


def kept_in_place(graph: Graph) -> dict[str, str]:
    """The states that a run changes in place: the tensor that begins the run, by the tensor that ends it. The only
    reader of the value before is the op that puts new values into it.
    """
    producers, consumers = graph.producers(), graph.consumers()
    found = {}
    for state in graph.states:
        maker, readers = producers.get(state.end), consumers.get(state.begin, [])
        puts = maker is not None and (is_scatter(maker) or maker.op == "QPut")
        if maker is not None and readers == [maker] and puts and maker.inputs.count(state.begin) == 1:
            if maker.inputs[0] == state.begin:
                found[state.end] = state.begin
    return found


def blocked_shape(graph: Graph, state: State) -> tuple[int, int, int, int, int]:
    """[N, CB, H, W, lanes] of a state whose tensors are its blocks."""
    _, heads, length, _ = graph.tensor(state.plain).shape
    blocks, _, lanes = graph.tensor(state.begin).shape
    return heads, blocks // heads, 1, length, lanes


def is_scatter(node: Node) -> bool:
    """True for ops that put values into a tensor, unless they add them up or the like."""
    reduction = node.attributes.get("reduction", "none")
    return node.op in SCATTERS and reduction == "none"
