"""Recipes measured beside the float model, on calibration samples that weights are not fitted on."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import onnx

from tilewright.quantize import classes, correction, times
from tilewright.quantize.layers import Network
from tilewright.quantize.masks import Masks
from tilewright.quantize.memory import trim_heap
from tilewright.quantize.metric import Task
from tilewright.quantize.observe import run, session
from tilewright.quantize.recipe import Recipe, Samples
from tilewright.quantize.samples import Subset
from tilewright.quantize.sqnr import BEST, Noise, resized
from tilewright.quantize.stepping import Values
from tilewright.quantize.switches import Outputs
from tilewright.quantize.writing import write

FLIPS = 0.001
"""Allowed share of the positions with a clear class that change their class."""

CHECKS = (8, 64)
"""Samples to measure a recipe on, at most: of networks with many and with few multiply-accumulates."""

CLEARLY = 2.0
"""Standard errors by which a recipe has to be better than another to be taken instead."""

FEW = 3
"""Samples from which on the spread of a gain says how much of it is chance."""

_WORK = 3e10
"""Multiply-accumulates of one measurement."""


@dataclass(frozen=True)
class Measured:
    """A recipe and what its outputs are like.

    Attributes:
        noise: energy of the error of each float output, as a fraction of the output's.
        flips: share of the positions with a clear class that have another one, per float output, less `CLEARLY`
            standard errors: one flip of a few hundred says nothing.
        lost: change of the user's metric, as a multiple of what it may be; see `metric.Task`.
        energies: of each float output and of its error, by sample, [outputs, samples, 2]; empty if not known.
    """

    recipe: Recipe
    noise: np.ndarray
    flips: np.ndarray
    lost: float = 0.0
    energies: np.ndarray = field(default_factory=lambda: np.zeros((0, 0, 2)))

    @property
    def decibels(self) -> np.ndarray:
        """SQNR of each float output in dB."""
        return np.asarray(-10 * np.log10(np.maximum(self.noise, 1e-20)))

    def level(self, goal: float) -> float:
        """SQNR of the worst output in dB. What it has above the goal does not count, and where ten times as many
        classes flip as may, or the metric loses ten times as much, it has 10 dB less."""
        lost = 10 * np.log10(np.maximum(self.flips / FLIPS, 1.0))
        return float(np.min(np.minimum(self.decibels, goal) - lost, initial=goal)) - self._penalty

    def reaches(self, goal: float) -> bool:
        """Whether each output has an SQNR of the goal, in dB, and classes are kept."""
        return bool((self.decibels >= goal).all() and (self.flips <= FLIPS).all()) and self.lost <= 1

    @property
    def mean(self) -> float:
        """Mean SQNR of the outputs in dB, less what the metric loses."""
        return float(self.decibels.mean()) - self._penalty if self.noise.size else -np.inf

    def better(self, other: Measured) -> Measured:
        """Returns this recipe if it is clearly better than the other, else the other.

        On few samples, chance makes one of two recipes better by a decibel or two. So the gain, the mean over outputs
        and samples of how many dB a sample's error is less, has to be above `CLEARLY` times its standard error.
        """
        if self.energies.shape[1] < FEW:
            return self if self.mean > other.mean else other
        gain, chance = self._gain(other)
        return self if gain > CLEARLY * chance else other

    def ahead(self, other: Measured) -> Measured:
        """Returns this recipe if it has the greater mean of dB over outputs and samples, else the other."""
        gain = self.mean - other.mean if self.energies.shape[1] < FEW else self._gain(other)[0]
        return self if gain > 0 else other

    def near(self, other: Measured, slack: float) -> bool:
        """Whether the samples leave it open that this recipe is no more than some dB worse than another one: its gain,
        as in `better`, and a standard error of it make that up."""
        if self.energies.shape[1] < FEW:
            return self.mean >= other.mean - slack
        gain, chance = self._gain(other)
        return gain + chance >= -slack

    def _gain(self, other: Measured) -> tuple[float, float]:
        """The gain over another recipe in dB, and its standard error."""
        gains = np.mean(self._by_sample - other._by_sample, axis=0)
        gain = float(gains.mean()) - self._penalty + other._penalty
        return gain, float(gains.std(ddof=1)) / math.sqrt(gains.size)

    @property
    def _by_sample(self) -> np.ndarray:
        """SQNR of each output on each sample in dB, [outputs, samples]. Below 0 dB nothing is right, as where a
        detector finds nothing; how far below says nothing of a recipe, but would hide what other samples gain."""
        signal, error = np.moveaxis(np.maximum(self.energies, 1e-30), -1, 0)
        return np.asarray(np.clip(10 * np.log10(signal / error), 0.0, BEST))

    @property
    def _penalty(self) -> float:
        return float(10 * np.log10(max(self.lost, 1.0)))


class Judge:
    """Measures recipes on some calibration samples.

    Args:
        model: the float model.
        task: the metric on these samples, None without one.
        outputs: of the user's model, which the metric gets; they come first.
    """

    def __init__(
        self, model: onnx.ModelProto, samples: Samples, task: Task | None = None, outputs: int | None = None
    ) -> None:
        network = Network(model)
        seen = correction.fit_samples(len(samples))
        chosen = [i for i in range(len(samples)) if i not in seen]
        if len(chosen) < correction.UNSEEN:
            chosen = list(range(len(samples)))
        count = min(len(chosen), int(np.clip(_WORK / max(times.all_macs(network), 1.0), *CHECKS)))
        indices = [chosen[i * len(chosen) // count] for i in range(count)]
        self._samples = Subset(samples, indices)
        self._task, self._task_names = None if task is None else task.at(indices), network.outputs[:outputs]
        self._task_real: list[Outputs] = []
        self._names = network.float_outputs()
        self._classes = classes.outputs(network)
        self._masks = Masks(network)
        self._real = Values()
        running = session(model)
        for number, sample in enumerate(self._samples):
            found = run(running, sample)
            for name in self._names:
                self._real.put(number, name, found[name])
            if self._task is not None:
                self._task_real.append({name: found[name] for name in self._task_names})

    def noise(self, recipe: Recipe) -> np.ndarray:
        """Energy of the error of each float output, as a fraction of the output's."""
        return self.measure(recipe).noise

    def measure(self, recipe: Recipe) -> Measured:
        """Noise and flips of the recipe's outputs.

        Raises:
            UsageError: onnxruntime cannot run the quantised model.
        """
        running = session(write(recipe), integers=False)
        total = [[Noise() for _ in self._samples] for _ in self._names]
        clear = np.zeros((len(self._names), 2), np.int64)
        said: list[Outputs] = []
        for number, sample in enumerate(self._samples):
            found = run(running, sample)
            if self._task is not None:
                said.append({name: found[name] for name in self._task_names})
            real = {name: self._real.get(number, name) for name in self._names}
            found |= {name: resized(found[name], value.shape) for name, value in real.items()}
            for one, name in zip(total, self._names):
                one[number].add(real[name], found[name], self._masks.seen(name, real[name]))
            clear += classes.positions(real, found, self._classes)
            del real, found
        del running
        trim_heap()
        flips = np.maximum(clear[:, 1] - CLEARLY * np.sqrt(clear[:, 1]), 0) / np.maximum(clear[:, 0], 1)
        lost = 0.0 if self._task is None else self._task.lost(said, self._task_real)
        energies = np.array([[(x.signal, x.error) for x in one] for one in total]).reshape(
            len(total), len(self._samples), 2
        )
        return Measured(recipe, noise_of(energies), flips, lost, energies)


def noise_of(energies: np.ndarray) -> np.ndarray:
    """Noise of each output over all samples; see `Measured`."""
    signal, error = np.moveaxis(energies.sum(axis=1), -1, 0)
    found = np.clip(error / np.maximum(signal, 1e-30), 1e-20, 1e20)
    return np.asarray(np.where(np.isfinite(error), found, 1e20))
