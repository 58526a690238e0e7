"""Functions x g(x) whose gate g is constant beyond some bounds, hard swish and swish, as products through which factors
of channels pass (see `equalise`).

    y = a x g(x) + b        =>        z = clip(depthwise(x)),  y = depthwise'(x (a g(z)))

Of one tensor, such a function is one table and lets no factor through. As above, x has factors of its own for each
channel, which the weights of the first convolution, 1 before, undo: so z has the fine steps between the bounds of g,
and the product those of each channel. The second convolution adds b, if there is one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from tilewright.quantize.equalise import spreads
from tilewright.quantize.layers import Kind, Layer, Network, attributes_of
from tilewright.quantize.prepare import infer_shapes
from tilewright.quantize.recipe import Progress, Samples
from tilewright.quantize.rewriting import with_parts
from tilewright.quantize.splitting import all_in

WORTH = 0.25
"""Largest share of a result's noise that steps of each channel's own may leave, to be worth two passes more."""

_SATURATED = 8.0
"""Magnitude from which on a sigmoid is nearly 0 or 1."""


@dataclass(frozen=True)
class Gated:
    """A layer that is such a function.

    Attributes:
        x, y: tensors [N, C, H, W].
        gate: nodes from x to g(x), in order; the names of all but HardSigmoid's are those of the model.
        low, high: bounds beyond which g is constant.
        scale, shift: a and b.
    """

    layer: Layer
    x: str
    y: str
    gate: Sequence[onnx.NodeProto]
    low: float
    high: float
    scale: float
    shift: float


def opened(
    model: onnx.ModelProto, samples: Samples, keep: Collection[str] = (), progress: Progress | None = None
) -> onnx.ModelProto:
    """The model with these functions as products where channels of the result have very different ranges; the given one
    is left unchanged.

    Args:
        model: as `prepare.prepare` leaves it.
        keep: names of layers that stay as they are.

    Raises:
        UsageError: onnxruntime cannot run the model on a sample.
    """
    network = Network(model)
    found = [x for layer in network.layers if layer.name not in keep and (x := gated(network, layer)) is not None]
    if not found:
        return model
    seen = spreads(model, samples, {x.y: 1 for x in found}, progress)
    found = [x for x in found if _uneven(seen[x.y].usable)]
    return _written(network, found) if found else model


def _uneven(bound: np.ndarray | None) -> bool:
    return bound is not None and bool(np.mean(np.square(bound / bound.max())) <= WORTH)


def gated(network: Network, layer: Layer) -> Gated | None:
    """The function of a Conv's result, of which nothing else is made; None for other layers."""
    x, y = layer.inputs[0], layer.outputs[0]
    made, shape = network.layer_of.get(x), network.shape(x)
    if layer.kind is not Kind.ELEMENTWISE or len(layer.outputs) > 1 or shape is None or len(shape) != 4:
        return None
    if made is None or made.nodes[-1].op_type != "Conv" or not made.weights or not all_in(network, x, layer):
        return None
    nodes = list(layer.nodes)
    if nodes[0].op_type == "HardSwish":
        at = f"{nodes[0].output[0]}_gate"
        gate = [helper.make_node("HardSigmoid", [x], [at], f"{nodes[0].name}_gate", alpha=1 / 6, beta=0.5)]
        product, rest = nodes[0], nodes[1:]
    else:
        muls = [n for n in nodes if n.op_type == "Mul" and x in n.input and not set(n.input) & set(network.constants)]
        if len(muls) != 1 or muls[0].input[0] == muls[0].input[1]:
            return None
        product, ahead = muls[0], nodes.index(muls[0])
        gate, rest = nodes[:ahead], nodes[ahead + 1 :]
        if not gate or gate[-1].output[0] not in product.input:
            return None
    bounds, tail = _bounds(network, gate, x), _affine(network, rest, product.output[0])
    if bounds is None or tail is None:
        return None
    return Gated(layer, x, y, gate, *bounds, *tail)


def _bounds(network: Network, gate: Sequence[onnx.NodeProto], x: str) -> tuple[float, float] | None:
    """The bounds between which a gate changes; None for gates not known, or of more than x."""
    before = [x, *(node.output[0] for node in gate)]
    if any(node.input[0] != name for node, name in zip(gate, before)):
        return None
    attributes = attributes_of(gate[0])
    ops = [node.op_type for node in gate]
    if ops == ["HardSigmoid"]:
        slope, middle = (float(attributes.get(k, v)) for k, v in (("alpha", 0.2), ("beta", 0.5)))  # type: ignore[arg-type]
        return (-middle / slope, (1 - middle) / slope) if slope > 0 else None
    if ops == ["Sigmoid"]:
        return -_SATURATED, _SATURATED
    if ops[:2] == ["Add", "Clip"] and set(ops[2:]) <= {"Mul", "Div"}:
        values = [_scalar(network, name) for name in (gate[0].input[1], *gate[1].input[1:])]
        if len(values) == 3 and None not in values:
            shift, low, high = map(float, values)  # type: ignore[arg-type]
            return low - shift, high - shift
    return None


def _affine(network: Network, nodes: Sequence[onnx.NodeProto], at: str) -> tuple[float, float] | None:
    """a and b of the steps a x + b from a tensor on; None where others are among them."""
    scale, shift = 1.0, 0.0
    for node in nodes:
        others = [name for name in node.input if name != at]
        value = _scalar(network, others[0]) if len(others) == 1 and len(node.input) == 2 else None
        if value is None or (node.op_type in ("Div", "Sub") and node.input[0] != at):
            return None
        if node.op_type in ("Mul", "Div"):
            factor = value if node.op_type == "Mul" else 1 / value if value else 0.0
            scale, shift = scale * factor, shift * factor
        elif node.op_type in ("Add", "Sub"):
            shift += value if node.op_type == "Add" else -value
        else:
            return None
        at = node.output[0]
    return (scale, shift) if scale else None


def _scalar(network: Network, name: str) -> float | None:
    value = network.constant(name)
    return float(value.reshape(-1)[0]) if value is not None and value.size == 1 else None


def _written(network: Network, found: Sequence[Gated]) -> onnx.ModelProto:
    parts: dict[int, list[onnx.NodeProto]] = {}
    constants: dict[str, np.ndarray] = {}
    for one in found:
        parts |= {id(node): [] for node in one.layer.nodes}
        parts[id(one.layer.nodes[-1])] = _nodes(one, (network.shape(one.x) or [])[1], constants)
    return infer_shapes(with_parts(network, parts, constants))


def _nodes(one: Gated, channels: int, constants: dict[str, np.ndarray]) -> list[onnx.NodeProto]:
    def made(op: str, inputs: Mapping[str, np.ndarray | None], part: str, **attributes: int) -> onnx.NodeProto:
        constants.update((name, value) for name, value in inputs.items() if value is not None)
        result = f"{one.y}_{part}" if part else one.y
        return helper.make_node(op, list(inputs), [result], f"{one.layer.name}_{part or 'result'}", **attributes)

    y, ones = one.y, np.ones((channels, 1, 1, 1), np.float32)
    low, high = np.array(one.low, np.float32), np.array(one.high, np.float32)
    nodes = [
        made("Conv", {one.x: None, f"{y}_ones": ones}, "argument", group=channels),
        made("Clip", {f"{y}_argument": None, f"{y}_low": low, f"{y}_high": high}, "within"),
    ]
    for node in one.gate:
        inner = onnx.NodeProto()
        inner.CopyFrom(node)
        inner.input[0] = f"{y}_within" if node is one.gate[0] else node.input[0]
        nodes.append(inner)
    gate = nodes[-1].output[0]
    if one.scale != 1:
        nodes.append(made("Mul", {gate: None, f"{y}_factor": np.array(one.scale, np.float32)}, "gate"))
        gate = nodes[-1].output[0]
    nodes.append(made("Mul", {one.x: None, gate: None}, "product" if one.shift else ""))
    if one.shift:
        shift = np.full(channels, one.shift, np.float32)
        inputs = {nodes[-1].output[0]: None, f"{y}_passed": ones, f"{y}_shift": shift}
        nodes.append(made("Conv", inputs, "", group=channels))
    return nodes
