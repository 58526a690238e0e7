"""LSTM, GRU and RNN: products of their inputs become products of their own, and what is left is one layer.

    LSTM(X, W, R, B)    =>    MatMul(X, W_gate) + b_gate for each gate, Concat, LSTM(gates, identity, R)

for each direction. So the products of the inputs of all steps are quantised as any other product, and the steps either
stay in floats or become `recurrent_steps` of integers, which read the gates directly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from tilewright.compiler.graph.macs import hands_on
from tilewright.quantize.layers import Network, attributes_of
from tilewright.quantize.recipe import Samples
from tilewright.quantize.recurrent_ops import GATES, MAX_STEPS
from tilewright.quantize.rewriting import Moves, replace_nodes

_DEFAULTS = {"LSTM": [b"Sigmoid", b"Tanh", b"Tanh"], "GRU": [b"Sigmoid", b"Tanh"], "RNN": [b"Tanh"]}


def split_inputs(model: onnx.ModelProto) -> bool:
    """Takes the products of the inputs out of recurrent nodes, in place; shapes of its tensors must be known.

    Returns:
        Whether there was such a node.
    """
    return replace_nodes(model, _split)


def lengths(model: onnx.ModelProto, samples: Samples) -> dict[str, tuple[int, ...]]:
    """The shapes of inputs that fix the number of steps of recurrent nodes, where the model leaves it open.

    Args:
        model: the prepared model.
        samples: of its inputs.

    Returns:
        The shape of each input in every sample; nothing where no number of steps is open, or shapes differ.
    """
    if all(steps >= 0 for steps in _steps(model)):
        return {}
    found = [{name: value.shape for name, value in sample.items()} for sample in samples]
    return found[0] if all(shapes == found[0] for shapes in found) else {}


def few_steps(model: onnx.ModelProto) -> bool:
    """Whether a recurrent node of the model has so few steps that they can be integers."""
    return any(0 < steps <= MAX_STEPS for steps in _steps(model))


def _steps(model: onnx.ModelProto) -> list[int]:
    """The steps of each recurrent node, -1 where their number is open."""
    network = Network(model)
    return [(network.shape(x.input[0]) or [1])[0] for x in network.nodes if x.op_type in GATES]


def sentence(shapes: Mapping[str, Sequence[int]]) -> str:
    """The note on lengths that were open, for the user."""
    flags = " ".join(f"--shape {name}={','.join(map(str, shape))}" for name, shape in shapes.items())
    return (
        f"open length: steps of recurrent layers are integers for one length only, and the result has that of the "
        f"samples, {flags}; samples of several lengths leave it open, with these steps in floats"
    )


@dataclass(frozen=True)
class _Given:
    """Constants of a recurrent node.

    Attributes:
        w, r: of all directions, [directions, gates * hidden, inputs or hidden].
        bias: of the products of the inputs and of the state, each [directions, gates * hidden].
    """

    w: np.ndarray
    r: np.ndarray
    bias: tuple[np.ndarray, np.ndarray]


def _split(model: onnx.ModelProto, network: Network, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
    """The nodes in place of a recurrent one; None where it stays."""
    given = _given(network, node) if node.op_type in GATES and node.domain == "" else None
    if given is None:
        return None
    attributes = attributes_of(node)
    directions, _, hidden = given.r.shape
    back = attributes.get("direction", b"forward") == b"reverse"
    ways = ["forward", "reverse"] if directions == 2 else ["reverse" if back else "forward"]
    moves = Moves(model, node)
    constant, add, name = moves.constant, moves.move, moves.name

    def states(at: int) -> list[str]:
        """The first states of each direction."""
        found = node.input[at] if len(node.input) > at else ""
        value = network.constant(found) if found else None
        if directions == 1 or not found:
            return [found] * directions
        if value is not None:
            return [constant(f"first_{at}_{d}", value[d : d + 1]) for d in range(directions)]
        limits = [constant(f"from_{at}_{d}", np.array([d], np.int64)) for d in range(directions + 1)]
        return [add("Slice", [found, *limits[d : d + 2], limits[0]], f"first_{at}_{d}") for d in range(directions)]

    first = [states(5), states(6)]
    results: list[list[str]] = []
    for d, way in enumerate(ways):
        gates, own = [], f"{way}_" if directions == 2 else ""
        late = np.zeros_like(given.bias[1][d])  # what the reset gate multiplies
        if attributes.get("linear_before_reset", 0):
            late[2 * hidden :] = given.bias[1][d, 2 * hidden :]
        early = given.bias[0][d] + given.bias[1][d] - late
        for k, gate in enumerate(GATES[node.op_type]):
            part = slice(k * hidden, (k + 1) * hidden)
            weights = constant(f"{own}{gate}_weights", given.w[d, part].T)
            product = add("MatMul", [node.input[0], weights], f"{own}{gate}")
            gates.append(add("Add", [product, constant(f"{own}{gate}_bias", early[part])], f"{own}{gate}_sum"))
        whole = add("Concat", gates, f"{own}gates", axis=2) if len(gates) > 1 else gates[0]
        inputs = [whole, constant(f"{own}identity", np.eye(late.size, dtype=np.float32)[None]), "", "", ""]
        inputs[2] = constant(f"{own}state_weights", given.r[d : d + 1])
        if late.any():
            inputs[3] = constant(f"{own}state_bias", np.concatenate([np.zeros_like(late), late])[None])
        inputs += [first[0][d], first[1][d]] if node.op_type == "LSTM" else [first[0][d]]
        kept = {key: value for key, value in attributes.items() if key in ("hidden_size", "linear_before_reset")}
        outputs = [f"{result}_{own}" if result and own else result for result in node.output]
        step_node = helper.make_node(node.op_type, inputs, outputs, f"{name}_{way}" if own else name, **kept)
        step_node.attribute.append(helper.make_attribute("direction", way))
        moves.made.append(step_node)
        results.append(outputs)
    if directions == 2:
        for at, result in enumerate(node.output):
            if result:
                add("Concat", [outputs[at] for outputs in results], f"join_{at}", result, axis=1 if at == 0 else 0)
    return moves.made


def _given(network: Network, node: onnx.NodeProto) -> _Given | None:
    """The constants of a node of the usual kind; None of another, or where its inputs were taken out already."""
    attributes = attributes_of(node)
    values = [network.constant(name) if name else None for name in node.input[1:4]]
    w, r, bias = (*values, None)[:3]
    plain = {"clip": None, "layout": 0, "input_forget": 0, "activation_alpha": None, "activation_beta": None}
    if any(attributes.get(key, value) not in (value, None) for key, value in plain.items()):
        return None
    if w is None or r is None or w.dtype != np.float32 or w.ndim != 3 or not w.shape[2] or all(map(hands_on, w)):
        return None
    usual = _DEFAULTS[node.op_type] * len(w)
    functions = attributes.get("activations") or usual
    if not isinstance(functions, list) or [x.lower() for x in functions] != [x.lower() for x in usual]:
        return None
    shape = network.shape(node.input[0])
    given = [*node.input, *[""] * 8][:8]
    lengths = network.constant(given[4]) if given[4] else None
    short = bool(given[4]) and (lengths is None or shape is None or np.any(lengths != shape[0]))
    if short or given[7] or shape is None or len(shape) != 3 or (bias is None and given[3]):  # 7: peepholes
        return None
    gates = r.shape[1]
    both = np.zeros((len(w), 2 * gates), np.float32) if bias is None else bias
    return _Given(w, r, (both[:, :gates], both[:, gates:]))
