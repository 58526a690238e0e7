"""Signal to quantisation noise: what the tensors of a quantised model are beside those of the float model.

    SQNR = 10 log10(sum f^2 / sum (f - q)^2)    in dB, over all elements of all samples

Both models name a tensor alike (see `writing`), so each layer's result can be compared. The noise of a layer contains
what came in; `Row.added` is what the layer lost compared with the worst of its inputs.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import onnx

from tilewright.quantize.masks import Masks
from tilewright.quantize.memory import trim_heap
from tilewright.quantize.observe import Observer, paired_values
from tilewright.quantize.recipe import Precision, Progress, Recipe, Samples
from tilewright.quantize.sample_values import LARGEST
from tilewright.quantize.writing import quantised_layers

BEST = 200.0
"""SQNR of equal tensors in dB, so that reports and JSON have numbers."""

MOST_SAMPLES = 16
"""Maximum of samples that outputs are compared on."""

LAYER_SAMPLES = 4
"""Number of these samples that layers are compared on."""


def resized(found: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """An output in the size it has in the float model, where its size depends on values, as after a Loop.

    What is too much is cut off, and what is missing is 0, so that it counts as an error.
    """
    if found.shape == shape or found.ndim != len(shape):
        return found
    result = np.zeros(shape, found.dtype)
    both = tuple(slice(min(a, b)) for a, b in zip(found.shape, shape))
    result[both] = found[both]
    return result


class Noise:
    """Energy of a signal and of its error, summed up over samples."""

    def __init__(self) -> None:
        self.signal = 0.0
        self.error = 0.0

    def add(self, wanted: np.ndarray, found: np.ndarray, seen: np.ndarray | None = None) -> None:
        """Adds a tensor's values in both models.

        Args:
            found: see `resized`.
            seen: which count; all without it. Those that are meant to be infinite or beyond `LARGEST` never do.
        """
        found = resized(found, wanted.shape)
        if seen is None and wanted.dtype.kind == "f" and wanted.size:
            if wanted.min() < -LARGEST or wanted.max() > LARGEST:
                seen = np.abs(wanted) <= LARGEST
        if seen is not None:
            wanted, found = wanted[seen], found[seen]
        a, b = wanted.reshape(-1), found.reshape(-1)
        if a.dtype.kind != "f":
            a, b = a.astype(np.float32), b.astype(np.float32)
        difference = a - b
        with np.errstate(all="ignore"):
            self.signal += float(np.dot(a, a))
            self.error += float(np.dot(difference, difference))

    def join(self, other: Noise) -> None:
        """Adds the energies of other samples."""
        self.signal += other.signal
        self.error += other.error

    @property
    def decibels(self) -> float:
        if math.isnan(self.error) or math.isinf(self.error):
            return -BEST
        if self.error <= 0:
            return BEST
        return min(BEST, max(-BEST, 10 * math.log10(max(self.signal, 1e-30) / self.error)))


@dataclass(frozen=True)
class Row:
    """SQNR of one layer.

    Attributes:
        layer, op: its name and first operator.
        tensor: what it writes.
        precision: "int8", "int16" or "float".
        sqnr: in dB.
        added: how many dB less than the worst of its inputs has.
    """

    layer: str
    op: str
    tensor: str
    precision: str
    sqnr: float
    added: float


@dataclass(frozen=True)
class Report:
    """SQNR of each layer, worst first, and of the outputs.

    Attributes:
        outputs: dB of the float outputs, by name.
        layers: the worst first.
        samples: how many were compared.
        lowest: dB that each of these has on its worst sample.
        equal: share of the elements of the other outputs that are the float model's, by name.
        other_sizes: of how many samples each output has another size than in the float model, by name; see `resized`.
    """

    outputs: dict[str, float]
    layers: list[Row]
    samples: int
    lowest: dict[str, float] = field(default_factory=dict)
    equal: dict[str, float] = field(default_factory=dict)
    other_sizes: dict[str, int] = field(default_factory=dict)

    @property
    def worst(self) -> float:
        """dB of the worst output."""
        return min(self.outputs.values(), default=BEST)

    def __str__(self) -> str:
        outputs = ", ".join([
            *(f"{name} {decibels:.1f} dB" for name, decibels in self.outputs.items()),
            *(f"{name} equal in {share:.1%} of its elements" for name, share in self.equal.items()),
        ])  # fmt: skip
        lowest = f"; {min(self.lowest.values()):.1f} dB on the worst sample" if self.lowest and self.samples > 1 else ""
        sizes = "".join(
            f"; {name} has another size than in the float model on {count} of them"
            for name, count in self.other_sizes.items()
        )
        return f"SQNR on {self.samples} samples held back: {outputs}{lowest}{sizes}"

    @property
    def losses(self) -> str:
        """The two layers that lose most of what they read, as text; what is read exactly does not count."""
        rows = sorted((x for x in self.layers if x.sqnr + x.added < BEST), key=lambda row: -row.added)
        return " and ".join(f"{x.layer} ({x.op}, {x.precision}) loses {x.added:.1f} dB" for x in rows[:2])

    def to_dict(self) -> dict[str, Any]:
        """Returns the report for JSON."""
        found: dict[str, Any] = {"outputs": self.outputs, "lowest": self.lowest, "equal": self.equal}
        found |= {"samples": self.samples, "other_sizes": self.other_sizes}
        return found | {"layers": [asdict(row) for row in self.layers]}


def measure(recipe: Recipe, written: onnx.ModelProto, samples: Samples, progress: Progress | None = None) -> Report:
    """Compares the layers and the outputs of a quantised model with those of the float model.

    Args:
        recipe: with the float model.
        written: what `writing.write` made of it.
        samples: best such as were not used to calibrate.

    Raises:
        UsageError: onnxruntime cannot run one of the models on a sample.
    """
    network = recipe.network
    masks = Masks(network)
    names = list(dict.fromkeys([*(n for layer in network.layers for n in layer.outputs), *network.outputs]))
    made = {name for node in written.graph.node for name in node.output}
    noise = {name: Noise() for name in names if name in made}
    outputs = [name for name in network.outputs if name in noise]
    scored = [name for name in network.float_outputs() if name in noise]
    lowest = dict.fromkeys(scored, BEST)
    equal = {name: [0, 0] for name in outputs if name not in scored}  # elements, and equal ones
    other_sizes: dict[str, int] = {}
    count = min(len(samples), MOST_SAMPLES)
    layered = [index * LAYER_SAMPLES % count < LAYER_SAMPLES for index in range(count)]  # evenly spread
    done = 0
    for layers in (True, False):  # one after the other, so that the sessions of one only are there
        pair: list[Observer] = []
        for index in range(count):
            if layered[index] is not layers:
                continue
            sample = samples[index * len(samples) // count]
            pair = pair or [Observer(m, list(noise) if layers else outputs, sample) for m in (recipe.model, written)]
            for name, a, b in paired_values(pair, sample):
                if not isinstance(a, np.ndarray):
                    continue
                if a.shape != b.shape:
                    if name not in outputs:
                        continue
                    other_sizes[name] = other_sizes.get(name, 0) + 1
                if name in equal:
                    size, same = equal[name]
                    equal[name] = [size + a.size, same + int(np.count_nonzero(a == resized(b, a.shape)))]
                elif a.dtype.kind in "fiu":
                    one = Noise()
                    one.add(a, b, masks.seen(name, a))
                    noise[name].join(one)
                    if name in lowest:
                        lowest[name] = min(lowest[name], one.decibels)
            done += 1
            if progress is not None:
                progress("comparing with the float model", done / count)
        del pair
        trim_heap()
    found = {name: x.decibels for name, x in noise.items()}
    precision = quantised_layers(network, recipe)
    rows = []
    for layer in network.layers:
        tensor = layer.outputs[0]
        if tensor in found:
            own = precision.get(layer.name, Precision.FLOAT).value
            before = min((found[name] for name in layer.inputs if name in found), default=BEST)
            rows.append(Row(layer.name, layer.op, tensor, own, found[tensor], max(0.0, before - found[tensor])))
    rows.sort(key=lambda row: row.sqnr)
    shares = {name: same / max(1, size) for name, (size, same) in equal.items()}
    return Report({name: found[name] for name in scored}, rows, count, lowest, shares, other_sizes)
