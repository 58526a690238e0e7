"""Ranges of the tensors inside a model, over samples of its inputs.

    min-max      the extremes
    percentile   without the 0.005 % of values at each end
    entropy      least Kullback-Leibler divergence between the values and the quantised values
    mse          least mean square error

The error of `mse` is that of the value's use: where all that reads a tensor is a function of it alone, such as
x * sigmoid(x), the errors are those of the function's result. So the range need not hold what a Relu makes 0.

The extremes of few values are not those of the next: where fewer than `FEW` were seen, and their use is not known, a
"mse" may have room beyond them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx

from tilewright.errors import UsageError
from tilewright.quantize.finite import Finite
from tilewright.quantize.histograms import Histogram
from tilewright.quantize.layers import Kind, Layer, Network, tensors_to_observe
from tilewright.quantize.masks import Masks
from tilewright.quantize.observe import Observer, observe, paired_values, run, session
from tilewright.quantize.recipe import Progress, Range, Sample, Samples
from tilewright.quantize.recurrent_steps import functions_of, opened, sums_of
from tilewright.quantize.samples import which

METHODS = ("mse", "minmax", "percentile", "entropy")

STEPS = 255
"""Steps of an 8-bit quantisation."""

FEW = 10_000
"""Values of a tensor from which on its range is what was seen."""

SATURATED = 8.0
"""Value from which on a sigmoid or a hyperbolic tangent is at its limit in 8 bits."""

_BOUNDED = {"Sigmoid", "HardSigmoid", "Softmax", "Tanh", "Softsign", "Clip", "Erf", "Cos", "Sin"}
"""Functions that reach no further than what was seen, or than their bounds."""

_RESHAPING = {"Reshape", "Flatten", "Squeeze", "Unsqueeze"}

PERCENTILE = 99.99
_SEARCH = ((1.0, 65), (0.125, 17), (0.015, 9))
"""Spans around the best end so far, as a fraction of it, and how many ends are tried in each."""

Function = Callable[[np.ndarray], np.ndarray]


def find(
    model: onnx.ModelProto, samples: Samples, method: str = "mse", progress: Progress | None = None
) -> dict[str, Range]:
    """The range of each tensor at the border of a layer. Tensors without finite values have the range 0..0.

    Args:
        model: as `prepare.prepare` leaves it.
        method: one of `METHODS`.

    Raises:
        UsageError: unknown method, onnxruntime cannot run the model on a sample, or it overflows there.
    """
    return find_all(model, samples, [method], progress)[method]


def find_all(
    model: onnx.ModelProto, samples: Samples, methods: Sequence[str], progress: Progress | None = None,
    room: bool = False, seen: Seen | None = None,
) -> dict[str, dict[str, Range]]:  # fmt: skip
    """The ranges of `find` by several methods, from one look at the samples.

    Args:
        room: for "mse", of few values, whose use is not known, take the extremes and room beyond them.
        seen: of the same samples; gets what else is seen.
    """
    for method in methods:
        if method not in METHODS:
            raise UsageError(f"ranges are found by {', '.join(METHODS)}, not {method!r}")
    network = Network(model)
    masks = Masks(network)
    seen = seen if seen is not None else Seen()
    masks.masked |= seen.masked
    names = look(network, samples, seen, masks, progress)
    histograms = {name: seen.histograms[name] for name in names if name in seen.histograms}
    rules = {"minmax": extremes, "percentile": percentile, "entropy": least_divergence}
    found = {}
    inside = {k: f for x in network.layers if x.kind is Kind.RECURRENT for k, f in functions_of(x).items()}
    uses = {name: inside.get(name) or _use(network, name) for name in histograms}
    rare = [name for name, h in histograms.items() if room and 0 < h.seen < FEW and uses[name] is None]
    few = {name: _with_room(network, name, histograms[name]) for name in rare}
    for method in methods:
        if method == "mse":
            for name, h in histograms.items():
                if name not in few and name not in seen.least:
                    seen.least[name] = least_error(h, uses[name])
            ranges = {name: few[name] if name in few else seen.least[name] for name in histograms}
        else:
            ranges = {name: rules[method](h) for name, h in histograms.items()}
        masks.widen(ranges)
        saturate_gates(network, ranges)
        found[method] = ranges
    return found


def saturate_gates(network: Network, ranges: dict[str, Range]) -> None:
    """Narrows ranges of the gates of recurrent layers to where they decide anything: what lies further beyond
    `SATURATED` than the product of the state reaches leaves the gate at its limit, whatever the state is."""
    for layer in network.layers:
        for total, gate, inner in sums_of(layer) if layer.kind is Kind.RECURRENT else ():
            if gate not in layer.inputs or gate not in ranges:
                continue
            state = max(abs(ranges[inner].low), abs(ranges[inner].high))
            _clip(ranges, total, SATURATED)
            name = gate
            while name in ranges and network.sole_reader(name) is not None:
                _clip(ranges, name, SATURATED + state)
                maker = network.layer_of.get(name)
                if maker is None or maker.kind is not Kind.MOVE or len(maker.inputs) != 1:
                    break
                name = maker.inputs[0]


def _clip(ranges: dict[str, Range], name: str, limit: float) -> None:
    own = ranges[name]
    ranges[name] = Range(max(own.low, -limit), min(own.high, limit))


@dataclass
class Seen:
    """Tensors of a model as they were seen on samples.

    Attributes:
        histograms: of tensors that are quantised, by name.
        least: ranges of the least error, as far as they were wanted.
        masked: operands of sums that mask.
        outputs: of the model, that are not quantised, but finite.
    """

    histograms: dict[str, Histogram] = field(default_factory=dict)
    least: dict[str, Range] = field(default_factory=dict)
    masked: set[str] = field(default_factory=set)
    outputs: set[str] = field(default_factory=set)

    def copy(self) -> Seen:
        """Returns the same histograms and ranges, to which others can be added."""
        return Seen(dict(self.histograms), dict(self.least), set(self.masked), set(self.outputs))

    def forget(self, names: Iterable[str]) -> None:
        """Drops tensors that have other values now."""
        for name in names:
            self.histograms.pop(name, None)
            self.least.pop(name, None)
            self.masked.discard(name)


def look(network: Network, samples: Samples, seen: Seen, masks: Masks, progress: Progress | None = None) -> list[str]:
    """Looks at the tensors at the borders of layers that were not seen; returns the names of all of them.

    Args:
        seen: gets the histograms; a tensor without numbers has none.
        masks: leaves masked elements out.

    Raises:
        UsageError: onnxruntime cannot run the model on a sample, or it overflows there.
    """
    looking = _Looking(network, samples, masks)
    steps, inside = opened(network)
    wanted = [name for name in (*looking.names, *inside) if name not in seen.histograms]
    wanted += [name for name in looking.outputs if name not in seen.outputs]
    model = network.model if set(inside).isdisjoint(wanted) else steps  # whose Scans take long
    observe(model, samples, wanted, looking.add, progress, looking.check)
    looking.keep(seen)
    return [*looking.names, *inside]


def look_along(
    network: Network, model: onnx.ModelProto, samples: Samples, names: Sequence[str], seen: Seen,
    take: Callable[[str, np.ndarray], None], progress: Progress | None = None,
) -> None:  # fmt: skip
    """Calls `take` with tensors of another model that computes the same. What the network has of them, the same bit for
    bit on the first sample, is seen on the way.

    Args:
        names: of the tensors.
        seen: gets the histograms.

    Raises:
        UsageError: as `look`.
    """
    masks = Masks(network)
    looking = _Looking(network, samples, masks)
    steps = any(layer.kind is Kind.RECURRENT for layer in network.layers)  # they have to be looked at anyhow
    both = sorted({*looking.names, *looking.outputs}.intersection(() if steps else names))
    pair = [Observer(x, both, samples[0]) for x in (model, network.model)]
    same = {name for name, a, b in paired_values(pair, samples[0]) if np.array_equal(a, b)}

    def add(name: str, value: np.ndarray) -> None:
        take(name, value)
        if name in same:
            looking.add(name, value)

    def check(name: str, value: np.ndarray, sample: Sample, index: int) -> None:
        if name in same:
            looking.check(name, value, sample, index)

    observe(model, samples, names, add, progress, check)
    looking.keep(seen)
    moves = [x for x in network.layers if x.kind is Kind.MOVE and all(n.op_type in _RESHAPING for n in x.nodes)]
    for layer in [*reversed(moves), *moves]:  # what has the same elements
        group = [name for name in (*layer.inputs, *layer.outputs) if not masks.may_mask(name)]
        known = next((seen.histograms[name] for name in group if name in seen.histograms), None)
        if known is not None:
            seen.histograms |= {name: known for name in group if name not in seen.histograms}


class _Looking:
    """Gathers histograms of the tensors at the borders of layers.

    Args:
        masks: leaves masked elements out.

    Attributes:
        names: of these tensors.
        outputs: of the model that are none of them, but have to be finite, too.
    """

    def __init__(self, network: Network, samples: Samples, masks: Masks) -> None:
        self._samples, self._masks, self._finite = samples, masks, Finite.of(network)
        self._found: dict[str, Histogram] = {}
        self._checked: set[str] = set()
        self.names = tensors_to_observe(network)
        self.outputs = {name for name in network.outputs if name not in self.names and name in network.producer}

    def check(self, name: str, value: np.ndarray, sample: Sample, index: int) -> None:
        """Refuses values that are not finite; see `Finite`."""
        self._finite.check(name, value, sample, which(self._samples, index))
        self._checked.add(name)

    def add(self, name: str, value: np.ndarray) -> None:
        if name not in self.outputs:
            self._found.setdefault(name, Histogram()).add(self._masks.unmasked(name, value))

    def keep(self, seen: Seen) -> None:
        """Adds what was found to what was seen before."""
        seen.histograms |= self._found
        seen.masked |= self._masks.masked
        seen.outputs |= self._checked & self.outputs


def extremes(histogram: Histogram) -> Range:
    return Range(histogram.low, histogram.high)


def _with_room(network: Network, name: str, histogram: Histogram) -> Range:
    """The extremes of few values, and room beyond them on each side of 0 that has any.

    The extremes of one more sample lie beyond all of S once in S + 1 times, by b in the mean, 0.4 deviations of the
    samples' extremes if these are normal. With n values in all, room r loses 2 b^2 exp(-r / b) / n there and
    (R + r)^2 / (12 * 255^2) by the steps, least for r = b log(12 * 255^2 b / (n R)).
    """
    maker = network.layer_of.get(name)
    low, high = histogram.low, histogram.high
    span = max(high, 0.0) - min(low, 0.0)
    if span <= 0 or (maker is not None and maker.nodes[-1].op_type in _BOUNDED):
        return extremes(histogram)
    beyond = 0.4 * np.std(histogram.extremes, axis=0)
    room = beyond * np.log(np.maximum(12 * STEPS**2 * beyond / (histogram.seen * span), 1.0))
    return Range(low - float(room[0]) if low < 0 else low, high + float(room[1]) if high > 0 else high)


def percentile(histogram: Histogram, percent: float = PERCENTILE) -> Range:
    """The range that holds `percent` of the values, as many left out at each end."""
    values, counts = histogram.filled()
    if not counts.size:
        return extremes(histogram)
    share = np.cumsum(counts) / counts.sum()
    out = (1 - percent / 100) / 2
    low = values[min(int(np.searchsorted(share, out)), len(values) - 1)]
    high = values[min(int(np.searchsorted(share, 1 - out)), len(values) - 1)]
    return Range(float(low), float(high))


def least_error(histogram: Histogram, use: Function | None = None) -> Range:
    """The range with the least mean square error of an 8-bit quantisation, seen behind the function `use`."""
    values, counts = histogram.filled()
    low, high = min(histogram.low, 0.0), max(histogram.high, 0.0)
    if not counts.size or high - low <= 0:
        return extremes(histogram)
    values = values.astype(np.float32)
    wanted = values if use is None else use(values)

    def errors(lows: np.ndarray, highs: np.ndarray) -> np.ndarray:
        scales = ((highs - lows) / STEPS)[:, None].astype(np.float32)
        zeros = np.rint(-lows[:, None] / scales).astype(np.float32)
        stored = np.rint(values / scales)
        stored += zeros
        np.minimum(np.maximum(stored, 0, out=stored), STEPS, out=stored)
        stored -= zeros
        stored *= scales
        change = (stored if use is None else use(stored.reshape(-1)).reshape(stored.shape)) - wanted
        return np.asarray(np.square(change, out=change) @ counts)

    # From the extremes inwards, one side after the other: what is left out pays on its own. The least error of all
    # pairs leaves out more, and gave worse outputs (docs/decisions/quantising.md).
    best = np.array([low, high])
    least = float(errors(best[:1], best[1:])[0])
    for span, count in _SEARCH:
        for side in (0, 1):
            pairs = np.repeat(best[None], count, axis=0)
            pairs[:, side] *= 1 + np.linspace(-span, span, count)
            pairs = np.clip(pairs, low, high)
            pairs = pairs[np.diff(pairs[:, side], prepend=np.nan) != 0]  # many are clipped to the same
            pairs = pairs[(pairs[:, 0] <= 0) & (pairs[:, 1] >= 0) & (np.diff(pairs)[:, 0] > (high - low) * 1e-4)]
            found = errors(pairs[:, 0], pairs[:, 1])
            if found.size and found.min() < least * (1 - 1e-6):
                best, least = pairs[found.argmin()], float(found.min())
    return Range(float(best[0]), float(best[1]))


def least_divergence(histogram: Histogram, parts: int = 128) -> Range:
    """The symmetric threshold whose clipped values 256 levels represent best, by Kullback-Leibler divergence, as
    TensorRT's calibration takes it; one-sided for tensors without negative or positive values."""
    values, counts = histogram.filled()
    bound = max(-histogram.low, histogram.high)
    if not counts.size or bound <= 0:
        return extremes(histogram)
    both = histogram.low < 0 < histogram.high
    levels = 128 if both else 256
    full, _ = np.histogram(np.abs(values), bins=16 * levels, range=(0, bound), weights=counts)
    best, least = bound, np.inf
    for bins in np.unique(np.linspace(levels, len(full), parts).astype(int)):
        inside = full[:bins].copy()
        inside[-1] += full[bins:].sum()
        level = np.arange(bins) * levels // bins
        filled = full[:bins] > 0
        sums = np.bincount(level, full[:bins], levels)
        holes = np.bincount(level, filled, levels)
        spread = np.where(filled, (sums / np.maximum(holes, 1))[level], 0.0)
        p, q = inside / inside.sum(), spread / max(spread.sum(), 1e-30)
        some = p > 0
        divergence = float((p[some] * np.log(p[some] / np.maximum(q[some], 1e-12))).sum())
        if divergence < least:
            best, least = bound * bins / len(full), divergence
    return Range(max(histogram.low, -best), min(histogram.high, best))


def _use(network: Network, name: str) -> Function | None:
    """The function that is the only reader of a tensor; None if there is none, or it has several results."""
    readers = network.readers.get(name, [])
    if network.exposed(name) or not readers:
        return None
    layer = network.layer_of.get(readers[0].output[0]) if readers[0].output else None
    if layer is None or layer.kind is not Kind.ELEMENTWISE or layer.inputs != [name] or len(layer.outputs) != 1:
        return None
    inside = {id(node) for node in layer.nodes}
    if not all(id(node) in inside for node in readers):
        return None
    return _function(network, layer)


def _function(network: Network, layer: Layer) -> Function | None:
    rank = len(network.shape(layer.inputs[0]) or [0])
    model = onnx.ModelProto(ir_version=network.model.ir_version, opset_import=network.model.opset_import)
    model.graph.name = "function"
    model.graph.node.extend(layer.nodes)
    read = {name for node in layer.nodes for name in node.input}
    model.graph.initializer.extend(x for name, x in network.constants.items() if name in read)
    sizes = [1] * (rank - 1) + ["values"]
    model.graph.input.append(onnx.helper.make_tensor_value_info(layer.inputs[0], onnx.TensorProto.FLOAT, sizes))
    model.graph.output.append(onnx.ValueInfoProto(name=layer.outputs[0]))
    try:
        running = session(model, threads=1)
        run(running, {layer.inputs[0]: np.zeros([1] * (rank - 1) + [2], np.float32)})
    except UsageError:
        return None

    def function(values: np.ndarray) -> np.ndarray:
        shaped = values.astype(np.float32).reshape([1] * (rank - 1) + [-1])
        result: np.ndarray = run(running, {layer.inputs[0]: shaped})[layer.outputs[0]]
        return result.reshape(-1)

    return function
