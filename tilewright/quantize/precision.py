"""Mixed precision: which layers stay in floats so that the outputs come near enough to those of the float model.

Layers are kept in groups that can be kept on their own: a product with the function behind it, two such in a row, or
the functions, sums and means between products. For each group the noise that its quantisation alone makes in the
outputs is measured. Noise of many sources adds up, so the groups that make most noise for what they cost are kept in
floats until the sum is small enough. A multiply-accumulate taken from the NPU costs most; elements computed by the CPU
cost little.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewright.errors import UsageError
from tilewright.quantize.layers import Kind, Layer, Network
from tilewright.quantize.recipe import Precision, Progress, Recipe, Samples
from tilewright.quantize.switches import Outputs, Switchboard, noise, quantised_names

PROBES = 4
"""Samples for the noise of each group, at most."""

_WORK = 4e11
"""Multiply-accumulates for all groups and probes together: fewer probes for large networks."""

_ELEMENT = 0.25
"""Cost of an element that the CPU computes, in multiply-accumulates."""


@dataclass(frozen=True)
class Group:
    """Layers that are kept in floats together.

    Attributes:
        cost: what keeping them takes from the NPU.
    """

    layers: tuple[str, ...]
    cost: float


def by_patterns(network: Network, keep_float: Sequence[str], int16: Sequence[str]) -> dict[str, Precision]:
    """Precisions that the user asks for, by names of nodes or of ops, with * and ? as in file names.

    Raises:
        UsageError: a pattern that no layer has.
    """
    found: dict[str, Precision] = {}
    for patterns, precision in ((int16, Precision.INT16), (keep_float, Precision.FLOAT)):
        for pattern in patterns:
            named = [
                layer.name
                for layer in network.layers
                if any(fnmatch.fnmatchcase(n.name, pattern) or n.op_type == pattern for n in layer.nodes)
            ]
            if not named:
                nodes = ", ".join(layer.name for layer in network.layers[:5])
                raise UsageError(f"no layer that can be quantised has a node {pattern!r}; the first ones are {nodes}")
            found.update(dict.fromkeys(named, precision))
    return found


def groups(network: Network) -> list[Group]:
    """Every layer but those that only move elements, in groups."""
    taken: set[str] = set()
    found: list[Group] = []
    for layer in network.layers:
        if layer.kind is not Kind.PRODUCT:
            continue
        behind = _function_behind(network, layer)
        names = [layer.name] + ([behind.name] if behind is not None else [])
        found.append(Group(tuple(names), macs(network, layer) + _ELEMENT * elements(network, layer)))
    made = {name: layer for layer in network.layers for name in layer.outputs}
    between = [layer for layer in network.layers if layer.kind is not Kind.PRODUCT]
    for layer in between:
        if layer.name in taken:
            continue
        island, pending = [], [layer]
        while pending:
            one = pending.pop()
            if one.name in taken or one.kind is Kind.PRODUCT:
                continue
            taken.add(one.name)
            island.append(one)
            pending += [made[name] for name in one.inputs if name in made]
            for name in one.outputs:
                users = network.readers.get(name, [])
                results = [n.output[0] for n in users if n.output]
                pending += [network.layer_of[result] for result in results if result in network.layer_of]
        if len(island) > 1 or any(network.exposed(name) for name in layer.outputs):
            cost = sum(_ELEMENT * elements(network, one) for one in island)
            found.append(Group(tuple(one.name for one in island), max(cost, 1.0)))
    return [*found, *_pairs(network, found)]


def _pairs(network: Network, single: Sequence[Group]) -> list[Group]:
    """Two products of which one reads what the other writes: the tensor between them needs both."""
    group_of = {name: group for group in single for name in group.layers if len(group.layers) <= 2}
    found = {}
    for layer in network.layers:
        own = group_of.get(layer.name)
        users = [n for name in layer.outputs for n in network.readers.get(name, [])]
        readers = {network.layer_of[n.output[0]].name for n in users if n.output and n.output[0] in network.layer_of}
        if own is None or len(readers) != 1:
            continue
        other = group_of.get(readers.pop())
        if other is not None and other is not own:
            found[own.layers + other.layers] = Group(own.layers + other.layers, own.cost + other.cost)
    return list(found.values())


def _function_behind(network: Network, layer: Layer) -> Layer | None:
    readers = network.readers.get(layer.outputs[0], [])
    found = {network.layer_of[n.output[0]].name for n in readers if n.output and n.output[0] in network.layer_of}
    if len(found) != 1 or network.exposed(layer.outputs[0]):
        return None
    behind = network.layer_of[readers[0].output[0]]
    return behind if behind.kind is Kind.ELEMENTWISE else None


def elements(network: Network, layer: Layer) -> float:
    """Of the layer's results; 1 for open sizes."""
    return float(sum(np.prod([max(n, 1) for n in network.shape(name) or [1]]) for name in layer.outputs))


def macs(network: Network, layer: Layer) -> float:
    """Multiply-accumulates of a product, as far as the shapes are known."""
    result = elements(network, layer)
    if layer.weights:
        sizes = list(network.constants[layer.weights].dims)
        if layer.op == "ConvTranspose":
            shape = network.shape(layer.inputs[0]) or [1]
            return float(np.prod([max(n, 1) for n in shape]) * np.prod(sizes[1:]))
        return result * float(np.prod(sizes) / max(sizes[layer.axis], 1))
    shape = network.shape(layer.nodes[0].input[0]) or [1]
    return result * max(shape[-1], 1)


def all_macs(network: Network) -> float:
    """Multiply-accumulates of one run, as far as the shapes are known."""
    return sum(macs(network, layer) for layer in network.layers if layer.kind is Kind.PRODUCT)


@dataclass
class Sources:
    """Where the noise in the outputs comes from: what each group's quantisation alone makes of it.

    Attributes:
        groups: those not kept yet.
        alone: noise as a fraction of each output's energy, [groups, outputs].
        kept: those kept already.
    """

    groups: list[Group]
    alone: np.ndarray
    kept: list[Group] = field(default_factory=list)

    def keep(self, total: np.ndarray, most: np.ndarray | float) -> dict[str, Precision]:
        """The layers to keep in floats next, so that noise of `total` becomes `most`; they are sources no longer."""
        picked = _picked(self.groups, self.alone, total, most)
        found = {name: Precision.FLOAT for index in picked for name in self.groups[index].layers}
        self.kept += [self.groups[i] for i in picked]
        left = [i for i in range(len(self.groups)) if i not in picked]
        self.groups, self.alone = [self.groups[i] for i in left], self.alone[left]
        return found

    def costliest(self, least: float = 0.0) -> list[tuple[str, ...]]:
        """The layers of each group that is kept and costs `least`, the group that takes most from the NPU first."""
        inner = [
            g
            for g in self.kept
            if g.cost >= least and not any(set(g.layers) < set(other.layers) for other in self.kept)
        ]
        return [g.layers for g in sorted(inner, key=lambda g: -g.cost)]


def sources(recipe: Recipe, samples: Samples, progress: Progress | None = None) -> Sources:
    """Measures each group of layers about which the recipe says nothing, on up to `PROBES` samples.

    Raises:
        UsageError: onnxruntime cannot run the model on a sample.
    """
    network, board = Network(recipe.model), Switchboard(recipe)
    left = [g for g in groups(network) if not any(name in recipe.precision for name in g.layers)]
    work = all_macs(network) * max(len(left), 1)
    count = int(min(PROBES, len(samples), max(1.0, _WORK / max(work, 1.0))))
    inputs = [samples[i * len(samples) // count] for i in range(count)]
    real = [board.run(x, frozenset()) for x in inputs]
    return Sources(left, _alone(network, board, recipe, left, inputs, real, progress))


def _alone(
    network: Network, board: Switchboard, recipe: Recipe, left: Sequence[Group], inputs: list[dict[str, np.ndarray]],
    real: list[Outputs], progress: Progress | None,
) -> np.ndarray:  # fmt: skip
    """Noise in each output when only what a group brings is quantised. [groups, outputs]."""
    every = quantised_names(network, recipe, recipe.precision)
    found = np.zeros((len(left), len(noise(real, real))))
    for index, group in enumerate(left):
        without = quantised_names(network, recipe, recipe.precision | dict.fromkeys(group.layers, Precision.FLOAT))
        brought = every - without
        if brought:
            found[index] = noise(real, [board.run(x, brought) for x in inputs])
        if progress is not None:
            progress("measuring layers", (index + 1) / len(left))
    return found


def _picked(left: Sequence[Group], alone: np.ndarray, total: np.ndarray, bound: np.ndarray | float) -> list[int]:
    """The groups to keep in floats next: by noise taken away per cost, until the rest is as small as wanted.

    A group of two products takes away what each of them makes, too, and counts once.
    """
    inside = [
        [j for j, other in enumerate(left) if j != i and set(other.layers) < set(g.layers)] for i, g in enumerate(left)
    ]
    own = np.array([np.maximum(alone[i] - alone[inside[i]].sum(axis=0), 0.0) for i in range(len(left))])
    own = own.reshape(len(left), len(total))
    parts = own.sum(axis=0)
    own = own * np.where(parts > 0, total / np.maximum(parts, 1e-30), 0.0)  # they make up what was measured
    rest = total.copy()
    picked: list[int] = []
    while (rest > bound).any():
        values = []
        for i, group in enumerate(left):
            new = [j for j in (i, *inside[i]) if j not in picked]
            gain = np.minimum(own[new].sum(axis=0), rest - bound * 0.9)[rest > bound] / rest[rest > bound]
            values.append(gain.max() / group.cost if i not in picked else 0.0)
        best = int(np.argmax(values)) if values else 0
        if not values or values[best] <= 0:
            break
        new = [j for j in (best, *inside[best]) if j not in picked]
        rest = rest - own[new].sum(axis=0)
        picked += new
    for i in sorted(picked, key=lambda i: -left[i].cost):  # what turned out not to be needed
        needed = any(i in inside[j] for j in picked)
        if not needed and (rest + own[i] <= bound).all():
            rest = rest + own[i]
            picked.remove(i)
    return picked
