"""Channels of very different ranges before a depthwise convolution become tensors of their own, each with a scale.

    x = f(W r + b)                          x1 = f(W1 r + b1), x2 = f(W2 r + b2)
    y = depthwise(x)               =>       y = Concat(depthwise1(x1), depthwise2(x2))

where f is any function of one tensor, such as a hard swish, which lets no factor through (see `equalise` for those
that do). Each channel of x is used by itself until y, so nothing is computed twice: work and function stay. The
channels of y change their order, which the weights of the convolutions that read it undo.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from tilewright.quantize.equalise import Spread, spreads
from tilewright.quantize.layers import Kind, Layer, Network, attributes_of
from tilewright.quantize.prepare import infer_shapes
from tilewright.quantize.recipe import Progress, Samples
from tilewright.quantize.rewriting import with_parts

WORTH = 0.1
"""Largest share of a tensor's noise that a cut may leave, to be worth it."""

MOST = 4
"""Maximum of tensors that one is split into."""


@dataclass
class Place:
    """A place in the model where channels can be split.

    Attributes:
        product: the Conv that writes the channels.
        functions: what lies between, in the order of the model.
        depthwise: the Conv that reads them.
        readers: the convolutions that read its result, perhaps behind functions.
    """

    product: onnx.NodeProto
    functions: list[onnx.NodeProto]
    depthwise: onnx.NodeProto
    readers: list[onnx.NodeProto]

    @property
    def tensor(self) -> str:
        return str(self.depthwise.input[0])

    @property
    def nodes(self) -> list[onnx.NodeProto]:
        return [self.product, *self.functions, self.depthwise]


def split(
    model: onnx.ModelProto, samples: Samples, keep: Collection[str] = (), progress: Progress | None = None
) -> onnx.ModelProto:
    """The model with channels split where that takes most of a tensor's noise away; the given one is left unchanged.

    Args:
        model: as `prepare.prepare` leaves it.
        keep: names of nodes that stay as they are.

    Raises:
        UsageError: onnxruntime cannot run the model on a sample.
    """
    network = Network(model)
    found = [place for place in places(network) if not any(node.name in keep for node in place.nodes)]
    if not found:
        return model
    seen = spreads(model, samples, {place.tensor: 1 for place in found}, progress)
    writer = _Writer(network)
    for place in found:
        weights = np.asarray(network.constant(place.depthwise.input[1]))
        weight = np.square(weights.astype(np.float64)).sum(axis=tuple(range(1, weights.ndim)))
        sets = channel_sets(seen[place.tensor], weight)
        if len(sets) > 1:
            writer.split(place, sets)
    return infer_shapes(with_parts(network, writer.parts, writer.constants)) if writer.parts else model


def channel_sets(spread: Spread, weight: np.ndarray) -> list[np.ndarray]:
    """Splits channels into sets of similar ranges, each in ascending order, the smallest ranges first; one set where
    more scales are not worth it.

    Sets are cut in two, the best cut first, while a cut leaves at most `WORTH` of the noise of all.

    Args:
        weight: how much the noise of each channel counts.
    """
    if (bound := spread.usable) is None:
        return [np.arange(len(weight))]
    order = np.argsort(bound, kind="stable")
    energy, weights = np.square(bound[order]), weight[order]

    def noise(start: int, stop: int) -> float:
        return float(energy[stop - 1] * weights[start:stop].sum())

    cuts = [0, len(order)]
    while len(cuts) <= MOST:
        total = sum(noise(a, b) for a, b in itertools.pairwise(cuts))
        gains = [
            (noise(a, b) - noise(a, at) - noise(at, b), at)
            for a, b in itertools.pairwise(cuts)
            for at in range(a + 1, b)
        ]
        gain, at = max(gains, default=(0.0, 0))
        if total - gain > WORTH * total:
            break
        cuts = sorted([*cuts, at])
    return [np.sort(order[a:b]) for a, b in itertools.pairwise(cuts)]


def places(network: Network) -> list[Place]:
    """Convolutions before depthwise ones, with nothing but functions of one tensor between."""
    found = (_place(network, node) for node in network.nodes if _depthwise(network, node))
    return [place for place in found if place is not None]


def _place(network: Network, node: onnx.NodeProto) -> Place | None:
    before = network.layer_of.get(node.input[0])
    if before is None or network.sole_reader(node.input[0]) is None or before.outputs != [node.input[0]]:
        return None
    functions: list[onnx.NodeProto] = []
    if before.kind is Kind.ELEMENTWISE:
        functions, root = before.nodes, before.inputs[0]
        made = network.layer_of.get(root)
        if made is None or made.outputs != [root] or not all_in(network, root, before):
            return None
        before = made
    if before.op != "Conv" or not before.weights or attributes_of(before.nodes[0]).get("group", 1) != 1:
        return None
    result = node.output[0]
    behind = network.layer_of.get(network.readers[result][0].output[0]) if network.readers.get(result) else None
    if behind is not None and behind.kind is Kind.ELEMENTWISE and len(behind.outputs) == 1:
        if not all_in(network, result, behind):
            return None
        result = behind.outputs[0]
    readers = network.readers.get(result, [])
    if network.exposed(result) or not readers:
        return None
    for reader in readers:
        own = reader.op_type == "Conv" and reader.input[0] == result and reader.input[1] in network.constants
        if not own or attributes_of(reader).get("group", 1) != 1 or len(network.readers[reader.input[1]]) > 1:
            return None
    return Place(before.nodes[0], [*before.nodes[1:], *functions], node, readers)


def _depthwise(network: Network, node: onnx.NodeProto) -> bool:
    if node.op_type != "Conv" or node.input[1] not in network.constants or not network.is_float(node.input[0]):
        return False
    sizes = network.constants[node.input[1]].dims
    bias = len(node.input) < 3 or not node.input[2] or node.input[2] in network.constants
    return bias and sizes[1] == 1 and sizes[0] == attributes_of(node).get("group", 1) and sizes[0] > 1


def all_in(network: Network, name: str, layer: Layer) -> bool:
    """Whether only nodes of a layer read a tensor."""
    inside = {id(node) for node in layer.nodes}
    return not network.exposed(name) and all(id(node) in inside for node in network.readers.get(name, []))


class _Writer:
    """Parts and constants of `with_parts`."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.parts: dict[int, list[onnx.NodeProto]] = {}
        self.constants: dict[str, np.ndarray] = {}

    def split(self, place: Place, sets: list[np.ndarray]) -> None:
        made: dict[int, list[onnx.NodeProto]] = {id(node): [] for node in place.nodes}
        inner = {name for node in place.nodes for name in node.output}
        for number, channels in enumerate(sets):
            for node in place.nodes:
                part = onnx.NodeProto()
                part.CopyFrom(node)
                part.name = f"{node.name}_part{number}"
                for at, name in enumerate(node.input):
                    if name in inner:
                        part.input[at] = f"{name}_part{number}"
                    elif name and at and (node is place.product or node is place.depthwise):
                        part.input[at] = f"{name}_part{number}"
                        self.constants[part.input[at]] = self._value(name)[channels]
                for at, name in enumerate(node.output):
                    part.output[at] = f"{name}_part{number}"
                if node is place.depthwise:
                    next(a for a in part.attribute if a.name == "group").i = len(channels)
                made[id(node)].append(part)
        result = place.depthwise.output[0]
        names = [part.output[0] for part in made[id(place.depthwise)]]
        joined = helper.make_node("Concat", names, [result], f"{place.depthwise.name}_joined", axis=1)
        made[id(place.depthwise)].append(joined)
        self.parts |= made
        order = np.concatenate(sets)
        for reader in place.readers:
            self.constants[reader.input[1]] = self._value(reader.input[1])[:, order]

    def _value(self, name: str) -> np.ndarray:
        """A constant, as an earlier split has left it."""
        return self.constants[name] if name in self.constants else np.asarray(self.network.constant(name))
