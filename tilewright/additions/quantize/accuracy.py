"""Derives a recipe that keeps the network's accuracy from ranges: the steps of `quantize` by default.

    1. ranges of the tensors (`ranges`), with channels equalised (`equalise`) and split (`splitting`) if that makes the
       outputs better
    2. weights and biases fitted to what each product reads (`correction`), if that makes the outputs better
    3. while an output misses its goal: the layers that make most noise for what they cost stay in floats (`precision`);
       then those that turned out not to be needed are quantised again

What is better is measured on calibration samples that weights are not fitted on. The samples held back are left for the
report.

An output reaches its goal with an SQNR of the target, also before a Softmax or Sigmoid that writes it, and if it says
which class, with the same class as in the float model at nearly all positions: a text is wrong if one letter is
(`classes`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx

from tilewright.quantize import classes, correction, precision, ranges
from tilewright.quantize.equalise import equalise
from tilewright.quantize.layers import Network
from tilewright.quantize.masks import Masks
from tilewright.quantize.memory import trim_heap
from tilewright.quantize.observe import run, session
from tilewright.quantize.recipe import Progress, Recipe, Sample, Samples
from tilewright.quantize.samples import Subset
from tilewright.quantize.splitting import split
from tilewright.quantize.sqnr import Noise
from tilewright.quantize.stepping import Values
from tilewright.quantize.switches import Outputs
from tilewright.quantize.writing import write

TARGET = 20.0
"""Default target of each output's SQNR, in dB."""

MARGIN = 1.5
"""Margin above the target on calibration samples, in dB: other samples are worse."""

FLIPS = 0.001
"""Allowed share of the positions with a clear class that change their class."""

CHECKS = (8, 64)
"""Samples to measure a recipe on, at most: of networks with many and with few multiply-accumulates."""

_WORK = 3e10
"""Multiply-accumulates of one measurement."""

_FAR = 4.0
"""Multiple of the goal's noise from which on the benefit of equalising is measured."""

_WORTH = 0.01
"""Share of the network's multiply-accumulates from which on a layer is tried in 8 bits again."""

_CAUTION = (0.8, 0.6, 0.4)
"""Noise to aim at in each round, as a fraction of the goal. A round fits and measures the whole network."""

_EASIER = 0.7  # noise to aim at, as a fraction of what it is, for outputs whose classes flip


@dataclass(frozen=True)
class Accuracy:
    """Options of the search for accuracy.

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
        """Returns the recipe with the better outputs, by the mean of their SQNR in dB."""
        own, others = (float(np.log(np.maximum(x.noise, 1e-20)).sum()) for x in (self, other))
        return other if others <= own else self


Made = Callable[[Recipe, Recipe], Measured]


def tune(recipe: Recipe, samples: Samples, wanted: Accuracy, progress: Progress | None = None) -> Recipe:
    """A recipe with ranges, weights, biases and precisions. The given one is left unchanged.

    Raises:
        UsageError: a pattern that no node has, or onnxruntime cannot run the model on a sample.
    """
    asked = precision.by_patterns(Network(recipe.model), wanted.keep_float, wanted.int16)
    outputs = len(recipe.model.graph.output)
    with classes.extra_outputs(recipe.model):
        plain = replace(recipe, precision={**recipe.precision, **asked})
        found = _tuned(plain, samples, wanted, progress)
    if found.model is not recipe.model:
        classes.drop_outputs(found.model, outputs)
    return found


def _tuned(recipe: Recipe, samples: Samples, wanted: Accuracy, progress: Progress | None) -> Recipe:
    judge = Judge(recipe.model, samples)
    most = 0.0 if wanted.target is None else 10 ** (-(wanted.target + MARGIN) / 10)

    def nearest(model: onnx.ModelProto) -> Measured:
        found = ranges.find(model, samples, wanted.ranges, progress)
        return judge.measure(replace(recipe, model=model, ranges=found))

    def fitted(plain: Recipe, known: Recipe | None = None) -> Measured:
        return judge.measure(correction.correct(plain, samples, progress=progress, known=known))

    model = recipe.model
    if wanted.equalise:
        model = equalise(model, samples, recipe.per_channel, progress)
        model = split(model, samples, recipe.precision, progress)
    plain = nearest(model)
    best = plain.better(fitted(plain.recipe)) if wanted.fit else plain
    if model is not recipe.model and (best.noise > _FAR * most).any():
        before = nearest(recipe.model)
        if plain.better(before) is before:
            other = before.better(fitted(before.recipe)) if wanted.fit else before
            if best.better(other) is other:
                plain, best = before, other
    if wanted.target is None or not best.noise.size or best.reaches(most):
        return best.recipe
    found = precision.sources(plain.recipe, samples, progress)
    made: Made = fitted if best is not plain else lambda recipe, known: judge.measure(recipe)
    return _mixed(best, found, most, made).recipe


def _mixed(best: Measured, found: precision.Sources, most: float, made: Made) -> Measured:
    """Keeps layers in floats until the goal is reached.

    Args:
        made: fits and measures a recipe; the second one has fits to begin with. Weights that were fitted behind a layer
            count on that layer's noise, so every choice has to be fitted anew behind the first layer that it changes.
    """
    plain = replace(best.recipe, weights={})
    for caution in _CAUTION:  # what is left is seldom as small as the parts say
        aim = np.where(best.flips > FLIPS, np.minimum(most, best.noise * _EASIER), most)
        kept = found.keep(best.noise, aim * caution)
        if not kept:
            return best
        best = made(plain.with_precision(best.recipe.precision | kept), best.recipe)
        if best.reaches(most):
            break
    if not best.reaches(most):
        return best
    worth = _WORTH * precision.all_macs(Network(plain.model))
    spare = found.spare(best.noise, most, worth)
    for count in dict.fromkeys((len(spare), (len(spare) + 1) // 2)):  # all of them, else the costliest half
        back = {name for group in spare[:count] for name in group}
        fewer = {name: x for name, x in best.recipe.precision.items() if name not in back}
        if back and (other := made(plain.with_precision(fewer), best.recipe)).reaches(most):
            return other
    return best


class Judge:
    """Measures recipes on some calibration samples.

    Args:
        model: the float model.
    """

    def __init__(self, model: onnx.ModelProto, samples: Samples) -> None:
        network = Network(model)
        seen = correction.fit_samples(len(samples))
        chosen = [i for i in range(len(samples)) if i not in seen]
        if len(chosen) < correction.UNSEEN:
            chosen = list(range(len(samples)))
        count = min(len(chosen), int(np.clip(_WORK / max(precision.all_macs(network), 1.0), *CHECKS)))
        self._samples = Subset(samples, [chosen[i * len(chosen) // count] for i in range(count)])
        self._names = [name for name in network.outputs if network.is_float(name)]
        self._classes = classes.outputs(network)
        self._masks = Masks(network)
        self._real = Values()
        running = session(model)
        for number, sample in enumerate(self._samples):
            for name, value in self._outputs(running, sample).items():
                self._real.put(number, name, value)

    def noise(self, recipe: Recipe) -> np.ndarray:
        """Energy of the error of each float output, as a fraction of the output's."""
        return self.measure(recipe).noise

    def measure(self, recipe: Recipe) -> Measured:
        """Noise and flips of the recipe's outputs.

        Raises:
            UsageError: onnxruntime cannot run the quantised model.
        """
        running = session(write(recipe), integers=False)
        total = [Noise() for _ in self._names]
        clear = np.zeros((len(self._names), 2), np.int64)
        for number, sample in enumerate(self._samples):
            found = self._outputs(running, sample)
            real = {name: self._real.get(number, name) for name in self._names}
            for one, name in zip(total, self._names):
                one.add(real[name], found[name], self._masks.seen(name, real[name]))
            clear += classes.positions(real, found, self._classes)
            del real, found
        del running
        trim_heap()
        flips = clear[:, 1] / np.maximum(clear[:, 0], 1)
        return Measured(recipe, np.array([10 ** (-one.decibels / 10) for one in total]), flips)

    def _outputs(self, running: Any, sample: Sample) -> Outputs:
        found = run(running, sample)
        return {name: found[name] for name in self._names}
