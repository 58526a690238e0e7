"""Outputs that choose a class, and the scores they choose by, which SQNR of the outputs alone does not cover.

SQNR is an energy, and most of it is that of what is certain; what a letter is read as may hang on the rest. And where a
Softmax or Sigmoid saturates, 1 stays 1 whatever the noise before it: a few calibration samples that are all certain say
nothing about others. So both are looked at: which class it is, and the SQNR of what the function reads.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping

import numpy as np
import onnx

from tilewright.quantize.layers import MOVES, Network, attributes_of

CLEAR = 2.0
"""Ratio of the best class's probability to the next, from which on a class is clear: others are a matter of chance."""

SATURATING = {"Softmax", "LogSoftmax", "Sigmoid", "HardSigmoid", "Tanh"}
CHOOSING = {"ArgMax", "ArgMin", "TopK", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"}
"""Operators whose integers are chosen by scores: these are looked at in place of the integers."""


@contextlib.contextmanager
def extra_outputs(model: onnx.ModelProto) -> Iterator[None]:
    """Adds the inputs of functions in `SATURATING` and `CHOOSING` that write an output to the model's outputs, within
    its block."""
    network, count = Network(model), len(model.graph.output)
    made = (_behind_moves(network, name, MOVES | {"Cast"}) for name in network.outputs)
    behind = [node.input[0] for node in made if node is not None and node.op_type in SATURATING | CHOOSING]
    for name in dict.fromkeys(behind):
        if name in network.producer and network.is_float(name) and name not in network.outputs:
            kind = onnx.TypeProto(tensor_type=network.info[name])
            model.graph.output.append(onnx.ValueInfoProto(name=name, type=kind))
    try:
        yield
    finally:
        drop_outputs(model, count)


def drop_outputs(model: onnx.ModelProto, count: int) -> None:
    """Leaves the first outputs only."""
    del model.graph.output[count:]


def _behind_moves(network: Network, name: str, moves: Collection[str] = MOVES) -> onnx.NodeProto | None:
    """The node that computes a tensor's elements, found through operators that only move them."""
    node = network.producer.get(name)
    while node is not None and node.op_type in moves:
        node = network.producer.get(node.input[0])
    return node


def outputs(network: Network) -> dict[str, bool]:
    """Outputs that are probabilities over their last axis, by Softmax or LogSoftmax; True for logarithms."""
    found = {}
    for name in network.outputs:
        node, shape = _behind_moves(network, name, MOVES - {"Transpose"}), network.shape(name)
        if node is None or node.op_type not in ("Softmax", "LogSoftmax") or not shape:
            continue
        before = network.shape(node.output[0])
        axis = attributes_of(node).get("axis", -1)
        if before is not None and axis in (-1, len(before) - 1) and before[-1] == shape[-1] != 1:
            found[name] = node.op_type == "LogSoftmax"
    return found


def positions(wanted: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray], logarithms: Mapping[str, bool]) -> (
    np.ndarray
):  # fmt: skip
    """Positions with a clear class, and how many of these have another one. [float outputs, 2]; 0 for other outputs.

    Args:
        wanted, found: outputs of both models for a sample.
        logarithms: see `outputs`.
    """
    result = []
    for name in [name for name, value in wanted.items() if value.dtype.kind == "f"]:
        if name not in logarithms or not wanted[name].size:
            result.append((0, 0))
            continue
        real = wanted[name].reshape(-1, wanted[name].shape[-1])
        best = real.argmax(axis=1)
        second, first = np.partition(real, -2, axis=1)[:, -2:].T
        sure = first - second > np.log(CLEAR) if logarithms[name] else first > CLEAR * second
        other = (found[name].reshape(real.shape).argmax(axis=1) != best)[sure]
        result.append((int(sure.sum()), int(other.sum())))
    return np.array(result, np.int64).reshape(-1, 2)
