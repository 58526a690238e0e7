"""From ranges to a recipe that keeps the network's accuracy: what `quantize` does by default, step by step.

    1. ranges of the tensors (`ranges`)
    2. weights and biases fitted to what each product reads (`correction`), if that makes the outputs better
    3. while an output's SQNR is below the target: the layers that make most noise stay in floats (`precision`), and the
       others are fitted again

What is better is measured on calibration samples. The samples held back are left for the report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from tilewright.quantize import correction, precision, ranges
from tilewright.quantize.layers import Network
from tilewright.quantize.observe import run, session
from tilewright.quantize.recipe import Progress, Recipe, Samples
from tilewright.quantize.switches import Outputs, noise
from tilewright.quantize.writing import write

TARGET = 20.0
"""dB that each output has to reach by default."""

MARGIN = 1.5
"""dB more than that on calibration samples: others are a little worse."""

CHECKS = 8
"""Samples to measure a recipe on."""

_ROUNDS = 2


@dataclass(frozen=True)
class Accuracy:
    """What is done for accuracy.

    Attributes:
        ranges: one of `ranges.METHODS`.
        fit: fit weights and biases.
        target: SQNR in dB that each output has to reach, by keeping layers in floats; None keeps none.
        keep_float, int16: nodes or ops with that precision, by name; * and ? as in file names.
    """

    ranges: str = "mse"
    fit: bool = True
    target: float | None = TARGET
    keep_float: Sequence[str] = ()
    int16: Sequence[str] = ()


def tune(recipe: Recipe, samples: Samples, wanted: Accuracy, progress: Progress | None = None) -> Recipe:
    """A recipe with ranges, weights, biases and precisions. The given one is left unchanged.

    Raises:
        UsageError: a pattern that no node has, or onnxruntime cannot run the model on a sample.
    """
    asked = precision.by_patterns(Network(recipe.model), wanted.keep_float, wanted.int16)
    plain = recipe.with_precision({**recipe.precision, **asked})
    plain.ranges = ranges.find(recipe.model, samples, wanted.ranges, progress)
    judge = Judge(recipe.model, samples)
    best, total = plain, judge.noise(plain)
    if wanted.fit:
        best, total = _better((best, total), correction.correct(plain, samples, progress=progress), judge)
    if wanted.target is None or not total.size:
        return best
    most = 10 ** (-(wanted.target + MARGIN) / 10)
    if (total <= most).all():
        return best
    found, aim = precision.sources(plain, samples, progress), most
    for _ in range(_ROUNDS):
        kept = found.keep(total, aim)
        if not kept:
            break
        plain = plain.with_precision({**plain.precision, **kept})
        best, total = plain, judge.noise(plain)
        if wanted.fit:
            best, total = _better((best, total), correction.correct(plain, samples, progress=progress), judge)
        if (total <= most).all():
            break
        aim /= 2
    return best


def _better(first: tuple[Recipe, np.ndarray], second: Recipe, judge: Judge) -> tuple[Recipe, np.ndarray]:
    """The recipe whose outputs are better in the mean of dB."""
    total = judge.noise(second)
    better = np.log(np.maximum(total, 1e-20)).sum() <= np.log(np.maximum(first[1], 1e-20)).sum()
    return (second, total) if better else first


class Judge:
    """Measures recipes on some calibration samples.

    Args:
        model: the float model.
    """

    def __init__(self, model: onnx.ModelProto, samples: Samples) -> None:
        count = min(CHECKS, len(samples))
        step = len(samples) // count  # between those that `correction` takes, where there are enough
        self._samples = [samples[i * step + step // 2] for i in range(count)]
        running = session(model)
        self._real = [_arrays(run(running, sample)) for sample in self._samples]

    def noise(self, recipe: Recipe) -> np.ndarray:
        """Energy of the error of each float output, as a fraction of the output's."""
        running = session(write(recipe))
        return noise(self._real, [_arrays(run(running, sample)) for sample in self._samples])


def _arrays(outputs: Mapping[str, object]) -> Outputs:
    return {name: value for name, value in outputs.items() if isinstance(value, np.ndarray)}
