"""Mixed precision: which layers stay in floats so that the outputs come near enough to those of the float model.

Layers are kept in groups that can be kept on their own: a product with the function behind it, two such in a row, or
the functions, sums and means between products. For each group the noise that its quantisation alone makes in the
outputs is measured. Noise of many sources adds up, so the groups that make most noise for what they cost are kept in
floats until the sum is small enough. What a group costs is the time it takes: `times`.
"""

from __future__ import annotations

import fnmatch
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.common.text import suggest
from tilewright.errors import UsageError
from tilewright.quantize import times
from tilewright.quantize.layers import Kind, Layer, Network
from tilewright.quantize.recipe import Precision, Progress, Recipe, Samples
from tilewright.quantize.switches import Switchboard, noise, quantised_names
from tilewright.quantize.writing import quantised_layers

PROBES = 4
"""Maximum of samples for the noise of each group."""

_WORK = 1e11
"""Limit of the work for all noise measurements, in multiply-accumulates of whole runs. Large networks are measured less
finely, on fewer samples. A run begins behind what stays as it was, so that half of it is done in the mean."""

_STRETCHES = 16
"""Parts of the network whose noise is measured first."""

_AUDIBLE = 0.003
"""Share of each output's noise below which a part is not looked into."""


@dataclass(frozen=True)
class Group:
    """Layers that are kept in floats together.

    Attributes:
        cost: time that keeping them takes, in cycles; see `times`.
        macs: multiply-accumulates that it takes from the NPU.
    """

    layers: tuple[str, ...]
    cost: float
    macs: float = 0.0

    @classmethod
    def of(cls, network: Network, layers: Sequence[Layer]) -> Group:
        """The group of some layers, which lie between quantised ones."""
        more = (times.cycles(network, x, None) - times.cycles(network, x, Precision.INT8) for x in layers)
        whole = sum(times.macs(network, layer) for layer in layers)
        return cls(tuple(layer.name for layer in layers), max(sum(more), 0.0) + times.TURN, whole)


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
                hint = suggest(
                    pattern, {x for layer in network.layers for n in layer.nodes for x in (n.name, n.op_type)}
                )
                raise UsageError(
                    f"no layer that can be quantised has a node {pattern!r}{hint}; the first ones are {nodes}"
                )
            found.update(dict.fromkeys(named, precision))
    return found


def of_kind(recipe: Recipe, kind: Kind) -> dict[str, Precision]:
    """All layers of a kind in floats. What only they read follows by itself."""
    network = recipe.network
    chosen = quantised_layers(network, recipe)
    return {x.name: Precision.FLOAT for x in network.layers if x.kind is kind and x.name in chosen}


def recurrent(recipe: Recipe) -> dict[str, Precision]:
    """Recurrent layers with the products of their inputs in floats, as the user's model has them in one node."""
    network, found = recipe.network, of_kind(recipe, Kind.RECURRENT)
    for layer in [x for x in network.layers if x.name in found]:
        for name in layer.inputs:
            maker = network.layer_of.get(name)
            while maker is not None and maker.kind is Kind.MOVE:
                maker = network.layer_of.get(maker.inputs[0])
            if maker is not None and maker.kind is Kind.PRODUCT:
                found[maker.name] = Precision.FLOAT
    return found


def groups(network: Network, decided: Collection[str] = ()) -> list[Group]:
    """Groups all layers but those that only move elements.

    Args:
        decided: layers that are left out.
    """
    taken: set[str] = set(decided)
    found: list[Group] = []
    for layer in network.layers:
        if layer.kind is not Kind.PRODUCT:
            continue
        behind = _function_behind(network, layer)
        found.append(Group.of(network, [layer] if behind is None else [layer, behind]))
    made = {name: layer for layer in network.layers for name in layer.outputs}
    between = [layer for layer in network.layers if not layer.multiplies]
    for layer in between:
        if layer.name in taken:
            continue
        island, pending = [], [layer]
        while pending:
            one = pending.pop()
            if one.name in taken or one.multiplies:
                continue
            taken.add(one.name)
            island.append(one)
            pending += [made[name] for name in one.inputs if name in made]
            for name in one.outputs:
                users = network.readers.get(name, [])
                results = [n.output[0] for n in users if n.output]
                pending += [network.layer_of[result] for result in results if result in network.layer_of]
        if len(island) > 1 or any(network.exposed(name) for name in layer.outputs):
            found.append(Group.of(network, island))
    found = [group for group in found if not set(decided).intersection(group.layers)]
    return [*found, *_pairs(network, found)]


def _pairs(network: Network, single: Sequence[Group]) -> list[Group]:
    """Groups pairs of products of which one reads the other's result: the tensor between them needs both in floats."""
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
            both = own.cost + other.cost - times.TURN
            found[own.layers + other.layers] = Group(own.layers + other.layers, both, own.macs + other.macs)
    return list(found.values())


def _function_behind(network: Network, layer: Layer) -> Layer | None:
    readers = network.readers.get(layer.outputs[0], [])
    found = {network.layer_of[n.output[0]].name for n in readers if n.output and n.output[0] in network.layer_of}
    if len(found) != 1 or network.exposed(layer.outputs[0]):
        return None
    behind = network.layer_of[readers[0].output[0]]
    return behind if behind.kind is Kind.ELEMENTWISE else None


class Sources:
    """Shares of groups of layers in the noise of the outputs, and the choice of layers to keep in floats.

    Args:
        groups: of layers.
        brought: what is quantised because of each group: tensors, and weights by the names of their layers.
        noise: that each of these alone makes in the outputs, as a fraction of their energy. [outputs].
    """

    def __init__(
        self, groups: Sequence[Group], brought: Sequence[frozenset[str]], noise: Mapping[str, np.ndarray]
    ) -> None:
        self.groups = list(groups)
        self.noise = noise
        self.kept: list[int] = []
        self._brought = list(brought)
        layers = [set(g.layers) for g in groups]
        self._inside = [[j for j, other in enumerate(layers) if other < one] for one in layers]
        self._around = [[j for j, other in enumerate(layers) if other > one] for one in layers]

    def keep(self, total: np.ndarray, most: np.ndarray | float, macs: float = np.inf) -> dict[str, Precision]:
        """The layers to keep in floats next, so that noise of `total` becomes `most`: by noise taken away per cost.

        Args:
            macs: multiply-accumulates of all that is kept, at most.
        """
        gain = self._gain(total)
        rest = total.copy()
        picked: list[int] = []
        while (rest > most).any():
            over = rest > most
            kept = {*self.kept, *picked}
            gone, room = self._gone(kept), macs - self._macs(kept, kept)
            best, value, taken = -1, 0.0, np.zeros(1)
            for i in range(len(self.groups)):
                left = self._brought[i] - gone
                inside = kept.intersection(self._inside[i])
                if i in kept or not left or self._macs([i], kept) - self._macs(inside, kept) > room:
                    continue
                part = self._sum(left) * gain
                less = np.minimum(part, rest - most * 0.9)[over] / rest[over]
                worth = float(less.max()) / self._cost(i, kept)
                if worth > value:
                    best, value, taken = i, worth, part
            if best < 0:
                break
            rest = rest - taken
            picked.append(best)
        for i in sorted(picked, key=lambda i: -self.groups[i].cost):  # what turned out not to be needed
            others = {*self.kept, *picked} - {i}
            more = self._sum(self._brought[i] - self._gone(others)) * gain
            if others.isdisjoint(self._around[i]) and (rest + more <= most).all():
                rest = rest + more
                picked.remove(i)
        self.kept += picked
        return {name: Precision.FLOAT for index in picked for name in self.groups[index].layers}

    def _macs(self, some: Iterable[int], kept: Collection[int]) -> float:
        """Multiply-accumulates of those of some groups that are not inside of others that are kept."""
        return sum(self.groups[i].macs for i in some if not any(j in kept for j in self._around[i]))

    def _gone(self, kept: Iterable[int]) -> set[str]:
        return set().union(*(self._brought[i] for i in kept))

    def _sum(self, names: Iterable[str]) -> np.ndarray:
        return np.asarray(sum((self.noise[name] for name in sorted(names)), np.zeros(1)))

    def _gain(self, total: np.ndarray) -> np.ndarray:
        """Measured noise of the whole network over the sum of its parts, float64[outputs]."""
        parts = self._sum(self.noise.keys() - self._gone(self.kept))
        return np.where(parts > 0, total / np.maximum(parts, 1e-30), 0.0)

    def _cost(self, index: int, kept: Collection[int]) -> float:
        """Returns the cost of a group, without the groups inside of it that are kept already."""
        inside = self._inside[index]
        return self.groups[index].cost - sum(self.groups[j].cost for j in inside if j in kept) + 1e-3


def sources(recipe: Recipe, samples: Samples, progress: Progress | None = None) -> Sources:
    """Measures the noise that each group of layers not fixed by the recipe adds, on up to `PROBES` samples.

    Noise is measured of tensors and weights in the order of the network: of stretches first, then of the halves of
    those that make most, as far as `_WORK` goes.

    Raises:
        UsageError: onnxruntime cannot run the model on a sample.
    """
    network, board = recipe.network, Switchboard(recipe)
    left = groups(network, recipe.precision)
    every = quantised_names(network, recipe, recipe.precision)
    brought = []
    for group in left:
        without = recipe.precision | dict.fromkeys(group.layers, Precision.FLOAT)
        brought.append(every - quantised_names(network, recipe, without))
    work = _WORK / max(times.all_macs(network), 1.0)  # runs of the network
    count = int(np.clip(work / _STRETCHES / 4, 1, min(PROBES, len(samples))))
    inputs = [samples[i * len(samples) // count] for i in range(count)]
    real = [board.run(x, frozenset()) for x in inputs]

    def measure(names: Sequence[str]) -> np.ndarray:
        return noise(real, [board.run(x, frozenset(names)) for x in inputs])

    order = {name: at for at, node in enumerate(network.nodes) for name in (node.name, *node.output)}
    atoms = sorted({name for names in brought for name in names}, key=lambda name: (order.get(name, -1), name))
    most = int(max(work / count, _STRETCHES))
    found = noise_of_each(atoms, measure, most, progress)
    return Sources(left, brought, found)


def noise_of_each(
    names: Sequence[str], measure: Callable[[Sequence[str]], np.ndarray], most: int, progress: Progress | None = None
) -> dict[str, np.ndarray]:
    """The noise of each name, from at most about `most` measurements of sets; those of a set not cut share its noise.

    Args:
        measure: the noise that some names make together. [outputs].
    """
    cuts = np.linspace(0, len(names), min(_STRETCHES, len(names)) + 1).astype(int)
    sets = [list(names[start:stop]) for start, stop in itertools.pairwise(cuts)]
    noises: list[np.ndarray] = []
    limit = min(most, len(names))

    def report(done: int) -> None:
        if progress is not None:
            progress("measuring layers", min(done / max(limit, 1), 1.0))

    for one in sets:
        noises.append(measure(one))
        report(len(noises))
    while len(sets) < limit:
        total = np.maximum(np.sum(noises, axis=0), 1e-30)
        shares = [float((h / total).max()) if len(one) > 1 else 0.0 for one, h in zip(sets, noises)]
        at = int(np.argmax(shares))
        if shares[at] < _AUDIBLE:
            break
        one, whole = sets[at], noises[at]
        first, second = one[: len(one) // 2], one[len(one) // 2 :]
        part = measure(first)
        sets[at : at + 1] = [first, second]
        noises[at : at + 1] = [part, np.maximum(whole - part, 0.0)]
        report(len(sets))
    report(limit)
    return {name: h / len(one) for one, h in zip(sets, noises) for name in one}
