"""Judges a model before and after quantisation by a metric of the user's."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.common import store
from tilewright.errors import UsageError
from tilewright.quantize.recipe import Progress, Sample, Samples
from tilewright.quantize.samples import Subset
from tilewright.store.files import open_arrays

#: Bytes of labels at most: a file of a kilobyte can hold a gigabyte of zeros.
_LABELS_BYTES = 1 << 28
ALLOWED = 0.01
"""Change of a metric, as a fraction of its figure, that is no loss."""

Outputs = dict[str, Any]
Run = Callable[[Sample], Outputs]
Metric = Callable[[Sequence[Outputs], Any], float]
"""A function of the outputs of all samples, in order, and the labels; its result is the figure. Without labels of the
user, labels are the outputs of the float model."""


@dataclass(frozen=True)
class Comparison:
    """A metric before and after quantisation.

    Attributes:
        metric: its name.
        before, after: of the float model and of the quantised one.
        samples: number of samples it was measured on.
        labels: whether there were labels; else the float model is taken to be right.
    """

    metric: str
    before: float
    after: float
    samples: int
    labels: bool

    def __str__(self) -> str:
        against = "" if self.labels else ", the float model taken as right"
        return f"{self.metric}: {self.before:.4g} before, {self.after:.4g} after, on {self.samples} samples{against}"


def top1(outputs: Sequence[Outputs], labels: Any) -> float:
    """Share of positions whose largest value is at the label's index, in the first output.

    Classes are on the last axis, in tensors of four axes on axis 1.

    Args:
        labels: integers, one for each position of each sample; or the outputs of another model.
    """
    found = [_best(next(iter(x.values()))) for x in outputs]
    right = [_best(next(iter(x.values()))) if isinstance(x, dict) else np.asarray(x) for x in labels]
    if any(a.size != b.size for a, b in zip(found, right)):
        raise UsageError(f"top1 has {found[0].size} results for a sample and {right[0].size} labels")
    equal = np.concatenate([a.reshape(-1) == b.reshape(-1) for a, b in zip(found, right)])
    return float(equal.mean())


def _best(scores: np.ndarray) -> np.ndarray:
    return np.asarray(np.argmax(scores, axis=1 if scores.ndim == 4 else -1)) if scores.ndim else scores


def metric_of(name: str) -> Metric:
    """ "top1", or "module:function" with a module that Python finds, also beside the user.

    Raises:
        UsageError: there is none of this name.
    """
    if name == "top1":
        return top1
    module, _, function = name.partition(":")
    if not module or not function:
        raise UsageError(f"--metric {name}: must be top1 or module:function")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"--metric {name}: {error}") from None
    if not callable(found):
        raise UsageError(f"--metric {name}: {function} is no function")
    return found  # type: ignore[no-any-return]


def read_labels(path: Path, total: int) -> np.ndarray:
    """Labels, one for each sample of the calibration data.

    Args:
        path: .npy, .npz with one array, or a text file with one integer per line.

    Raises:
        UsageError: it cannot be read, or has another number of labels.
    """
    if path.suffix in (".npy", ".npz"):
        arrays = open_arrays(path)
        if len(arrays) != 1:
            raise UsageError(f"{path} has {len(arrays)} arrays; labels are one")
        (found,) = arrays.values()
        _check_labels(path, found.shape, total)
        if found.nbytes > _LABELS_BYTES:
            raise UsageError(f"{path} has {found.nbytes} bytes of labels; up to {_LABELS_BYTES} are accepted")
        return found.read()
    try:
        labels = np.array([int(line) for line in store.read(path).split()], np.int64)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{path} must have one integer per line: {error}") from None
    _check_labels(path, labels.shape, total)
    return labels


def _check_labels(path: Path, shape: tuple[int, ...], total: int) -> None:
    if shape[:1] != (total,):
        raise UsageError(f"{path} has {shape[0] if shape else 'a single value for'} labels; there are {total} samples")


@dataclass
class Task:
    """A metric that candidates of a quantisation are judged by, on some samples.

    Attributes:
        name: of the metric.
        labels: one for each sample; None takes the float model's outputs.
    """

    name: str
    labels: np.ndarray | None = None
    _scale: float | None = None

    def at(self, indices: Sequence[int]) -> Task:
        """Returns the task on some of the samples."""
        return Task(self.name, None if self.labels is None else self.labels[list(indices)])

    def lost(self, found: Sequence[Outputs], real: Sequence[Outputs]) -> float:
        """Returns the distance of the figure from the float model's, as a multiple of what it may be: `ALLOWED` of
        the larger one of the float model's figure and the first candidate's. Large figures may be good or bad.

        Raises:
            UsageError: the metric fails.
        """
        truth = real if self.labels is None else self.labels
        wanted, got = (_figure(self.name, outputs, truth) for outputs in (real, found))
        if self._scale is None:
            self._scale = max(abs(wanted), abs(got))
        return abs(got - wanted) / (ALLOWED * self._scale) if self._scale else 0.0


def task_of(name: str | None, labels: np.ndarray | None, samples: Samples) -> Task | None:
    """The task to judge by where the user gives one: labels, or a metric of their own."""
    if name is None or (name == "top1" and labels is None):
        return None
    return Task(name, _labels_of(samples, labels))


def _labels_of(samples: Samples, labels: np.ndarray | None) -> np.ndarray | None:
    """Labels of the samples, given those of all from which they were chosen perhaps."""
    return labels[samples.indices] if labels is not None and isinstance(samples, Subset) else labels


def _figure(name: str, outputs: Sequence[Outputs], truth: Any) -> float:
    try:
        return float(metric_of(name)(outputs, truth))
    except UsageError:
        raise
    except Exception as error:  # of the user's own function
        raise UsageError(f"--metric {name} failed: {type(error).__name__}: {error}") from error


def compare(
    name: str,
    before: Run,
    after: Run,
    samples: Samples,
    labels: np.ndarray | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """A metric of two models on the same samples.

    Args:
        labels: of the samples, or of all from which `samples` were chosen.

    Raises:
        UsageError: no such metric, or it fails.
    """
    labels = _labels_of(samples, labels)
    found: list[list[Outputs]] = []
    for at, model in enumerate((before, after)):
        outputs = []
        for sample in samples:
            outputs.append(model(sample))
            if progress is not None:
                progress("comparing", (at + len(outputs) / len(samples)) / 2)
        found.append(outputs)
    first, second = (_figure(name, outputs, found[0] if labels is None else labels) for outputs in found)
    return Comparison(name, first, second, len(samples), labels is not None)
