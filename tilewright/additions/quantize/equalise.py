"""Cross-layer equalisation: the channels of a tensor get ranges alike, so that one scale suits them all.

    y = W2 relu(W1 x + b1) = (W2 S) relu(S^-1 W1 x + S^-1 b1)        S = diag(s), s > 0

The float function stays what it is (Nagel et al., arXiv:1906.04721; for what a LayerNormalization writes this is
SmoothQuant, arXiv:2211.10438). Scales per output channel of weights make S^-1 W1 as good as W1, so what has to be found
is only the balance of

    noise of the tensor     sum_c s_c^2 |W2_c|^2 times the square of its step, the greatest range / s
    noise of W2 S           the square of each row's step times sum_c E[x_c^2] / s_c^2

Where only floats read what a product writes, a sum before a normalisation, say, channels with ranges far above the
usual get such ranges at once: W1 and b1 are divided, and the floats multiplied. Sums in floats beside products that
read the same tensor multiply, too.

The tensors between the products form sets with common factors (`common_factors`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tilewright.quantize.common_factors import Finder, Set, Writer
from tilewright.quantize.layers import Network
from tilewright.quantize.observe import observe, without_constants
from tilewright.quantize.recipe import Precision, Progress, Samples

SAMPLES = 8
"""Maximum of samples whose ranges are looked at."""

_FLOOR = 2.0**-10
"""Smallest range of a channel, as a fraction of the tensor's: smaller ones count as silent."""

_RANGE_POWERS = (0.0, 0.25, 0.5, 0.75, 1.0)
_WEIGHT_POWERS = (0.0, 0.25, 0.5)
_WORTH_FLOATS = 0.25
"""Largest share of a tensor's noise that ranges of its channels' own may leave, to be worth a multiplication."""

_ROOM = 4.0
"""Range of a channel for floats, at least, as a multiple of the median channel's."""

_WORTH = 0.9
"""Largest share of the noise that equalising may leave, to be worth it."""


def equalise(
    model: onnx.ModelProto, samples: Samples, per_channel: bool = True, progress: Progress | None = None,
    precision: Mapping[str, Precision] | None = None,
) -> tuple[onnx.ModelProto, set[str]]:  # fmt: skip
    """The model with other weights and the same function, up to float rounding, and the names of its tensors that have
    other values than before; the given model is left unchanged.

    Args:
        model: as `prepare.prepare` leaves it.
        per_channel: weights are to have a scale per output channel; with one scale for all, nothing is changed.
        precision: of layers; 8 bits where there is none.

    Raises:
        UsageError: onnxruntime cannot run the model on a sample.
    """
    if not per_channel:
        return model, set()
    network = Network(model)
    finder = Finder(network, precision)
    found, ends = finder.found(), finder.ends()
    axes = {name: axis for one in found for name, axis in one.tensors.items()} | {e.tensor: e.axis for e in ends}
    if not axes:
        return model, set()
    spread = spreads(model, samples, axes, progress)
    changed: dict[str, np.ndarray] = {}

    def now(name: str) -> np.ndarray:
        return changed[name] if name in changed else np.asarray(network.constant(name))

    def divide(writer: Writer, factors: np.ndarray) -> None:
        for name, axis in writer.constants:
            value = now(name).astype(np.float64)
            wide = [-1 if i == axis else 1 for i in range(value.ndim)]
            changed[name] = (value / factors.reshape(wide)).astype(np.float32)

    multiplied: dict[str, np.ndarray] = {}
    early: set[str] = set()  # names of nodes that read a tensor before it is multiplied
    scaled: set[str] = set()

    def multiply(name: str, axis: int, factors: np.ndarray) -> None:
        rank = len(network.shape(name) or [])
        multiplied[name] = factors.reshape([-1] + [1] * (rank - 1 - axis)).astype(np.float32)

    for one in found:
        factors = _factors(one, [spread[n] for n in one.tensors], network)
        if factors is None:
            continue
        scaled.update(one.tensors)
        for writer in one.writers:
            divide(writer, factors)
        for reader in one.readers:
            changed[reader.weights] = reader.scaled(now(reader.weights), factors).astype(np.float32)
        for name, sums in one.sums.items():
            multiply(name, one.tensors[name], factors)
            early.update(node.name for node in network.readers[name] if node not in sums)
    for end in ends:
        factors = _own_ranges(spread[end.tensor].usable)
        if factors is not None:
            divide(end.writer, factors)
            multiply(end.tensor, end.axis, factors)
    if not changed:
        return model, scaled
    result = without_constants(model)
    _multiply(result, multiplied, early)
    for x in model.graph.initializer:
        result.graph.initializer.append(numpy_helper.from_array(changed[x.name], x.name) if x.name in changed else x)
    return result, scaled


def _own_ranges(bound: np.ndarray | None) -> np.ndarray | None:
    """The channels' ranges as fractions of the greatest; None where that is not worth a multiplication. Usual channels
    keep room: what a few samples show of one says little, a class that none of them has."""
    if bound is None:
        return None
    share = np.maximum(np.maximum(bound, _ROOM * np.median(bound)) / bound.max(), _FLOOR)
    share = np.minimum(share, 1.0)
    return share if np.mean(np.square(share)) < _WORTH_FLOATS else None


def _multiply(model: onnx.ModelProto, factors: Mapping[str, np.ndarray], before: Collection[str]) -> None:
    """Multiplies tensors, in place: NAME is NAME_equalised times its factors then, and that is what nodes named in
    `before` read."""
    infos = {x.name: x for x in [*model.graph.value_info, *model.graph.output]}
    nodes = []
    for node in model.graph.node:
        for at, name in enumerate(node.input):
            if name in factors and node.name in before:
                node.input[at] = f"{name}_equalised"
        nodes.append(node)
        for at, name in enumerate(node.output):
            if name in factors:
                node.output[at] = f"{name}_equalised"
                if name in infos:
                    info = model.graph.value_info.add()
                    info.CopyFrom(infos[name])
                    info.name = node.output[at]
                model.graph.initializer.append(numpy_helper.from_array(factors[name], f"{name}_factors"))
                nodes.append(helper.make_node("Mul", [node.output[at], f"{name}_factors"], [name], f"{name}_multiply"))
    made = list(nodes)
    del model.graph.node[:]
    model.graph.node.extend(made)


def spreads(
    model: onnx.ModelProto, samples: Samples, axes: Mapping[str, int], progress: Progress | None = None
) -> dict[str, Spread]:
    """Measures the spread of the channels of some tensors, on up to `SAMPLES` samples.

    Args:
        axes: of the channels, by the names of the tensors.

    Raises:
        UsageError: onnxruntime cannot run the model on a sample.
    """
    count = min(SAMPLES, len(samples))
    few = [samples[i * len(samples) // count] for i in range(count)]
    found = {name: Spread() for name in axes}
    observe(model, few, list(axes), lambda n, v: found[n].add(v, axes[n]), progress)
    return found


class Spread:
    """Greatest magnitude and mean square of each channel."""

    def __init__(self) -> None:
        self.bound: np.ndarray | None = None
        self._energy: np.ndarray | float = 0.0
        self._count = 0

    def add(self, value: np.ndarray, axis: int) -> None:
        others = tuple(i for i in range(value.ndim) if i != axis)
        if not value.size:
            return
        bound = np.abs(value).max(axis=others).astype(np.float64)
        self.bound = bound if self.bound is None else np.maximum(self.bound, bound)
        with np.errstate(over="ignore"):  # such samples are refused by `finite`
            self._energy = self._energy + np.square(value).sum(axis=others, dtype=np.float64)
        self._count += value.size // value.shape[axis]

    @property
    def usable(self) -> np.ndarray | None:
        """The bounds; None where they are not known or not finite, or all are 0."""
        if self.bound is None or not np.isfinite(self.bound).all() or self.bound.max() <= 0:
            return None
        return self.bound

    @property
    def power(self) -> np.ndarray:
        return np.asarray(self._energy / max(self._count, 1))


# -- the factors ------------------------------------------------------------------------------------------------------


def _factors(one: Set, spreads: list[Spread], network: Network) -> np.ndarray | None:
    """The factors with the least noise; None where that is not worth it."""
    bounds = [x.usable for x in spreads if x.usable is not None]
    if len(bounds) < len(spreads):
        return None
    power = np.max([x.power for x in spreads], axis=0)
    matrices = [r.matrix(np.asarray(network.constant(r.weights)).astype(np.float64)) for r in one.readers]
    groups = [r.groups for r in one.readers]
    sizes = [np.square(m).sum(axis=(1, 2)) for m in matrices]
    outputs = [max(float((size * power).sum()), 1e-30) for size in sizes]
    weight = np.sum([size / out for size, out in zip(sizes, outputs)], axis=0)
    if not np.isfinite(weight).all() or weight.max() <= 0:
        return None

    def noise(factors: np.ndarray) -> float:
        steps = sum(float(np.max(b / factors) * 2 / 255) ** 2 for b in bounds)
        total = steps * float((np.square(factors) * weight).sum())
        for matrix, count, out in zip(matrices, groups, outputs):
            scaled = np.abs(matrix * factors[:, None, None]).reshape(count, -1, *matrix.shape[1:])
            step = scaled.max(axis=(1, 3)) / 127  # of each group's outputs
            energy = (power / np.square(factors)).reshape(count, -1).sum(axis=1) * matrix.shape[2]
            total += float((np.square(step) * energy[:, None]).sum()) / out
        return total

    share = np.max([np.maximum(b / b.max(), _FLOOR) for b in bounds], axis=0)
    loud = np.maximum(np.sqrt(weight / weight.max()), _FLOOR)
    best, least = None, noise(np.ones(one.channels)) * _WORTH
    for a in _RANGE_POWERS:
        for b in _WEIGHT_POWERS:
            factors = share**a / loud**b
            factors /= np.exp(np.log(factors).mean())
            found = noise(factors)
            if found < least:
                best, least = factors, found
    return best
