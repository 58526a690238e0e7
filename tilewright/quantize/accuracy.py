"""From ranges to a recipe that keeps the network's accuracy: what `quantize` does by default, step by step.

    1. ranges of the tensors (`ranges`), with channels equalised (`equalise`) and split (`splitting`) if that makes the
       outputs better
    2. weights and biases fitted to what each product reads (`correction`), if that makes the outputs better
    3. while an output misses its goal: the layers that make most noise for what they cost stay in floats (`precision`);
       then those that turned out not to be needed are quantised again

What is better is measured on calibration samples; weights are fitted on one half of them at most. The samples held back
are left for the report.

An output reaches its goal with an SQNR of the target, also before a Softmax or Sigmoid that writes it, and if it says
which class, with the same class as in the float model at nearly all positions: a text is wrong if one letter is
(`classes`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx

from tilewright.quantize import classes, correction, precision, ranges
from tilewright.quantize.equalise import equalise
from tilewright.quantize.layers import Network
from tilewright.quantize.memory import give_back
from tilewright.quantize.observe import run, session
from tilewright.quantize.recipe import Precision, Progress, Recipe, Samples
from tilewright.quantize.splitting import split
from tilewright.quantize.switches import Outputs, noise
from tilewright.quantize.writing import write

TARGET = 20.0
"""dB that each output has to reach by default."""

MARGIN = 2.5
"""dB more than that on calibration samples: others are worse."""

FLIPS = 0.005
"""Share of the positions with a clear class that may have another one."""

CHECKS = (12, 64)
"""Samples to measure a recipe on, at most: of networks with many and with few multiply-accumulates."""

_WORK = 1e10

_ROUNDS = 8
_RETURNS = 4
_EASIER = 0.7  # noise to aim at, as a fraction of what it is, for outputs whose classes flip


@dataclass(frozen=True)
class Accuracy:
    """What is done for accuracy.

    Attributes:
        ranges: one of `ranges.METHODS`.
        equalise: give the channels of tensors like ranges, or several tensors where that cannot be.
        fit: fit weights and biases.
        target: SQNR in dB that each output has to reach, by keeping layers in floats; None keeps none.
        keep_float, int16: nodes or ops with that precision, by name; * and ? as in file names.
    """

    ranges: str = "mse"
    equalise: bool = True
    fit: bool = True
    target: float | None = TARGET
    keep_float: Sequence[str] = ()
    int16: Sequence[str] = ()


@dataclass(frozen=True)
class Measured:
    """A recipe and what its outputs are like.

    Attributes:
        noise: energy of the error of each float output, as a fraction of the output's.
        flips: share of the positions with a clear class that have another one, per float output.
    """

    recipe: Recipe
    noise: np.ndarray
    flips: np.ndarray

    def reaches(self, most: float) -> bool:
        """Whether noise is at most `most`, and classes are kept."""
        return bool((self.noise <= most).all() and (self.flips <= FLIPS).all())

    def better(self, other: Measured) -> Measured:
        """The one whose outputs are better in the mean of dB."""
        own, others = (float(np.log(np.maximum(x.noise, 1e-20)).sum()) for x in (self, other))
        return other if others <= own else self


def tune(recipe: Recipe, samples: Samples, wanted: Accuracy, progress: Progress | None = None) -> Recipe:
    """A recipe with ranges, weights, biases and precisions. The given one is left unchanged.

    Raises:
        UsageError: a pattern that no node has, or onnxruntime cannot run the model on a sample.
    """
    asked = precision.by_patterns(Network(recipe.model), wanted.keep_float, wanted.int16)
    watched = classes.exposed(recipe.model)
    plain = replace(recipe, model=watched, precision={**recipe.precision, **asked})
    found = _tuned(plain, samples, wanted, progress)
    return replace(found, model=classes.hidden(found.model, recipe.model))


def _tuned(recipe: Recipe, samples: Samples, wanted: Accuracy, progress: Progress | None) -> Recipe:
    plain = replace(recipe, ranges=ranges.find(recipe.model, samples, wanted.ranges, progress))
    judge = Judge(recipe.model, samples)
    best = judge.measure(plain)
    if wanted.equalise:
        model = equalise(recipe.model, samples, recipe.per_channel, progress)
        model = split(model, samples, recipe.precision, progress)
        if model is not recipe.model:
            found = ranges.find(model, samples, wanted.ranges, progress)
            best = best.better(judge.measure(replace(plain, model=model, ranges=found)))
            plain = best.recipe
    if wanted.fit:
        best = best.better(judge.measure(correction.correct(plain, samples, progress=progress)))
    if wanted.target is None or not best.noise.size:
        return best.recipe
    return _mixed(best, plain, samples, judge, 10 ** (-(wanted.target + MARGIN) / 10), progress).recipe


def _mixed(
    best: Measured, plain: Recipe, samples: Samples, judge: Judge, most: float, progress: Progress | None
) -> Measured:
    """Keeps layers in floats until the goal is reached.

    Args:
        best: fitted or not.
        plain: the same recipe before fitting, with the float model's biases.
    """
    if best.reaches(most):
        return best
    fitted, found = best.recipe, precision.sources(plain, samples, progress)
    for _ in range(_ROUNDS):
        aim = np.where(best.flips > FLIPS, np.minimum(most, best.noise * _EASIER), most)
        kept = found.keep(best.noise, aim)
        if not kept:
            return best
        best = judge.measure(_with(fitted, plain, best.recipe.precision | kept))
        if best.reaches(most):
            break
    for group in found.costliest()[:_RETURNS]:
        fewer = {name: x for name, x in best.recipe.precision.items() if name not in group}
        other = judge.measure(_with(fitted, plain, fewer))
        if other.reaches(most):
            best = other
    return best


def _with(fitted: Recipe, plain: Recipe, chosen: Mapping[str, Precision]) -> Recipe:
    """The fitted recipe with other precisions. Layers that stay in floats have the biases of before: those that were
    fitted belong to rounded weights."""
    if fitted.model is plain.model:
        return fitted.with_precision(chosen)
    model = onnx.ModelProto()
    model.CopyFrom(fitted.model)
    real = {x.name: x for x in plain.model.graph.initializer}
    own = {layer.bias for layer in Network(plain.model).layers if chosen.get(layer.name) is Precision.FLOAT}
    for tensor in model.graph.initializer:
        if tensor.name in own:
            tensor.CopyFrom(real[tensor.name])
    return replace(fitted, model=model, precision=dict(chosen))


class Judge:
    """Measures recipes on some calibration samples.

    Args:
        model: the float model.
    """

    def __init__(self, model: onnx.ModelProto, samples: Samples) -> None:
        total = len(samples)
        network = Network(model)
        count = min(total, int(np.clip(_WORK / max(precision.all_macs(network), 1.0), *CHECKS)))
        self._samples = [samples[i * total // count] for i in range(count)]
        running = session(model)
        self._real = [_arrays(run(running, sample)) for sample in self._samples]
        give_back()
        self._classes = classes.outputs(network)

    def noise(self, recipe: Recipe) -> np.ndarray:
        """Energy of the error of each float output, as a fraction of the output's."""
        return self.measure(recipe).noise

    def measure(self, recipe: Recipe) -> Measured:
        """Noise and flips of the recipe's outputs.

        Raises:
            UsageError: onnxruntime cannot run the quantised model.
        """
        running = session(write(recipe), integers=False)
        found = [_arrays(run(running, sample)) for sample in self._samples]
        del running
        give_back()
        return Measured(recipe, noise(self._real, found), classes.flips(self._real, found, self._classes))


def _arrays(outputs: Mapping[str, object]) -> Outputs:
    return {name: value for name, value in outputs.items() if isinstance(value, np.ndarray)}
