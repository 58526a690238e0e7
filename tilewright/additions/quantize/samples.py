"""Calibration data as people have it: arrays, .npy and .npz files, folders of them, folders of images.

All become `Samples`: the inputs of single runs, read one at a time and as often as wanted, in memory only if small.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.errors import UsageError
from tilewright.quantize.image_samples import ImageOptions, ImageSamples
from tilewright.quantize.model_inputs import Input
from tilewright.quantize.recipe import Sample, Samples
from tilewright.quantize.sample_values import converted
from tilewright.quantize.stored import StoredArray, stored_arrays
from tilewright.store.files import IMAGE_SUFFIXES

HELD_BACK_SHARE = 4
"""Number of samples per sample held back, for measurements on samples that ranges were not chosen by."""
MOST_HELD_BACK = 32

KEPT = 8 << 20
"""Bytes of samples kept in memory: they are read some ten times."""

Data = str | Path | np.ndarray | Mapping[str, Any] | Iterable[Mapping[str, Any]]
"""Kinds of data that `samples_of` accepts."""


class ArraySamples:
    """Samples in arrays, one array for each input.

    Of an array with one axis more than the input, the first axis counts samples. An array of the input's own rank is
    cut along its first axis: into pieces of the input's first size, or of one where that is open. A single piece, such
    as a scalar, a sampling rate, or the state a recurrent network begins with, serves for all samples.

    Args:
        arrays: numpy arrays or `StoredArray`s by name; the name "" stands for the only input.
        inputs: of the model.
        where: for messages.

    Raises:
        UsageError: names, types, shapes or numbers of samples do not fit.
    """

    def __init__(self, arrays: Mapping[str, Any], inputs: Mapping[str, Input], where: str = "calibration") -> None:
        if list(arrays) == [""] and len(inputs) == 1:
            arrays = {next(iter(inputs)): arrays[""]}
        elif list(arrays) == [""]:
            raise UsageError(f"the model has the inputs {', '.join(inputs)}: {where} must be arrays by name (.npz)")
        if inputs.keys() != arrays.keys():
            given = ", ".join(arrays) or "no arrays"
            raise UsageError(f"{where} has {given}; the model's inputs are {', '.join(inputs)}")
        self._cuts = {name: _Cut(name, inputs[name], arrays[name], where) for name in inputs}
        counts = {name: cut.count for name, cut in self._cuts.items() if cut.count != 1}
        if len(set(counts.values())) > 1:
            raise UsageError(f"{where} must have as many samples of every input, not {counts}")
        self._count = next(iter(counts.values()), 1)
        if self._count == 0:
            raise UsageError(f"{where} has not one whole sample")

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Sample:
        return {name: cut.sample(index if cut.count > 1 else 0) for name, cut in self._cuts.items()}

    def __iter__(self) -> Iterator[Sample]:
        return (self[i] for i in range(self._count))


class _Cut:
    """An array cut into samples of one input."""

    def __init__(self, name: str, wanted: Input, array: Any, where: str) -> None:
        self.wanted, self.name, self.where = wanted, name, where
        self.array = array if isinstance(array, StoredArray) else np.asarray(array)
        shape, rank = tuple(self.array.shape), len(wanted.sizes)
        self.stacked = len(shape) == rank + 1 and wanted.takes(shape[1:])
        self.rows = 1 if rank < 2 or not wanted.sizes[0] else wanted.sizes[0]
        whole = rank == 0 or (rank == 1 and wanted.takes(shape))
        piece = len(shape) == rank and not whole and wanted.takes((wanted.sizes[0] or 1, *shape[1:]))
        lacking = len(shape) == rank - 1 and wanted.takes((1, *shape))  # one sample without its batch axis
        self.whole = (whole and not self.stacked) or lacking
        if self.stacked:
            self.count = shape[0]
        elif self.whole and (lacking or wanted.takes(shape)):
            self.count = 1
        elif piece:
            self.count = shape[0] // self.rows
        else:
            found = f"{self.array.dtype.name}{list(shape)}"
            raise UsageError(
                f"{where} of {name!r} is {found}; the model takes {wanted}, or one axis more that counts samples "
                f"(--shape {name}=... changes sizes that the file has fixed)"
            )
        _check_type(name, self.array.dtype, wanted, where, shape)
        if isinstance(self.array, StoredArray):
            self.array.expand()

    def sample(self, index: int) -> np.ndarray:
        if self.whole:
            found = self.array.whole() if isinstance(self.array, StoredArray) else self.array
            if found.ndim < len(self.wanted.sizes):
                found = found[None]
        else:
            start, stop = (index, index + 1) if self.stacked else (index * self.rows, (index + 1) * self.rows)
            rows = self.array.rows(start, stop) if isinstance(self.array, StoredArray) else self.array[start:stop]
            found = rows[0] if self.stacked else rows
        number = f", {numbered(index, self.count)}" if self.count > 1 else ""
        return converted(found, self.wanted.dtype, f"{self.where} of {self.name!r}{number}")


def _check_type(name: str, dtype: np.dtype, wanted: Input, where: str, shape: Sequence[int]) -> None:
    """Converts numbers to another width of the same kind; refuses any other conversion."""
    kinds = {dtype.kind, wanted.dtype.kind}
    if dtype != wanted.dtype and not (len(kinds) == 1 or kinds <= {"i", "u"}):
        raise UsageError(
            f"{where} of {name!r} is {dtype.name}{list(shape)}; the model takes {wanted}: convert it first, with the "
            "same scaling as when the model runs"
        )


class Runs:
    """Samples given as the inputs of single runs."""

    def __init__(self, runs: Iterable[Mapping[str, Any]], inputs: Mapping[str, Input]) -> None:
        given = [{name: np.asarray(v) for name, v in run.items()} for run in runs]
        self._runs = [_checked(inputs, run, numbered(number, len(given))) for number, run in enumerate(given)]
        if not self._runs:
            raise UsageError("calibration has not one whole sample")

    def __len__(self) -> int:
        return len(self._runs)

    def __getitem__(self, index: int) -> Sample:
        return dict(self._runs[index])

    def __iter__(self) -> Iterator[Sample]:
        return (self[i] for i in range(len(self._runs)))


def numbered(index: int, count: int) -> str:
    """The number of a sample among so many, as text for messages."""
    return f"sample {index + 1} of {count} (index {index})"


def _checked(inputs: Mapping[str, Input], run: Sample, number: str) -> Sample:
    if inputs.keys() != run.keys():
        raise UsageError(f"calibration has {', '.join(run) or 'nothing'}; the model's inputs are {', '.join(inputs)}")
    for name, wanted in inputs.items():
        value = run[name]
        if not wanted.takes(value.shape):
            raise UsageError(
                f"calibration of {name!r} is {value.dtype.name}{list(value.shape)}; the model takes {wanted}"
            )
        _check_type(name, value.dtype, wanted, "calibration", value.shape)
    return {
        name: converted(value, inputs[name].dtype, f"calibration of {name!r}, {number}") for name, value in run.items()
    }


class Chain:
    """The samples of several sources, one after the other."""

    def __init__(self, parts: Sequence[Samples]) -> None:
        self._parts = parts
        self._ends = list(itertools.accumulate(len(part) for part in parts))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> Sample:
        part = bisect.bisect_right(self._ends, index)
        return self._parts[part][index - (self._ends[part - 1] if part else 0)]

    def __iter__(self) -> Iterator[Sample]:
        return itertools.chain.from_iterable(self._parts)


class Kept:
    """The samples of another source, the first of which stay in memory up to `KEPT` bytes."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples
        self._kept: dict[int, Sample] = {}
        self._room = KEPT

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> Sample:
        found = self._kept.get(index)
        if found is None:
            found = self._samples[index]
            size = sum(value.nbytes for value in found.values())
            if size <= self._room:
                self._kept[index] = found
                self._room -= size
        return dict(found)

    def __iter__(self) -> Iterator[Sample]:
        return (self[i] for i in range(len(self)))


class Subset:
    """A selection of the samples of another source."""

    def __init__(self, samples: Samples, indices: Sequence[int]) -> None:
        self.samples = samples
        self.indices = list(indices)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Sample:
        return self.samples[self.indices[index]]

    def __iter__(self) -> Iterator[Sample]:
        return (self.samples[i] for i in self.indices)


def which(samples: Samples, index: int) -> str:
    """The number of a sample in the data given by the user, as text for messages."""
    if isinstance(samples, Subset):
        return which(samples.samples, samples.indices[index])
    return f"calibration {numbered(index, len(samples))}"


def split(samples: Samples, held_back: int | None = None) -> tuple[Samples, Samples]:
    """Samples to calibrate with, and samples held back to measure on, spread evenly.

    Args:
        held_back: how many; by default one in four, at most 32. With one sample only, or for 0, both are all samples.

    Raises:
        UsageError: as many held back as there are, or more.
    """
    total = len(samples)
    count = min(total // HELD_BACK_SHARE, MOST_HELD_BACK) if held_back is None else held_back
    if held_back is None and count == 0 and total > 1:
        count = 1
    if count == 0:
        return samples, samples
    if count >= total:
        raise UsageError(f"of {total} samples {count} cannot be held back: some must be left to calibrate with")
    chosen = {(2 * i + 1) * total // (2 * count) for i in range(count)}
    return Subset(samples, [i for i in range(total) if i not in chosen]), Subset(samples, sorted(chosen))


def samples_of(
    data: Data, inputs: Mapping[str, Input], images: ImageOptions | None = None, fixed: Collection[str] = ()
) -> Samples:
    """Calibration data of any kind.

    Args:
        data: a folder of images, .npy or .npz files; an .npy or .npz file, or an image; an array (models of one input)
            or arrays by name, cut as `ArraySamples` says; or the inputs of single runs, by name.
        inputs: of the model.
        images: how images become inputs.
        fixed: inputs that the model had before their values were fixed; data may have them still.

    Raises:
        UsageError: nothing is there, it does not fit the model, or a sample has values that are no numbers or are too
            large.
    """
    found: Samples
    if isinstance(data, str | Path):
        found = _from_path(Path(data), inputs, images, fixed)
    elif isinstance(data, np.ndarray):
        found = ArraySamples({"": data}, inputs)
    elif isinstance(data, Mapping):
        found = ArraySamples(_without(data, fixed), inputs)
    else:
        found = Runs((_without(run, fixed) for run in data), inputs)
    found = Kept(found)
    for _ in found:  # now, not when one is wanted for the first time
        pass
    return found


def _without(arrays: Mapping[str, Any], fixed: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in arrays.items() if name not in fixed}


def _from_path(path: Path, inputs: Mapping[str, Input], images: ImageOptions | None, fixed: Collection[str]) -> Samples:

    accepted = (".npy", ".npz", *IMAGE_SUFFIXES)
    if not path.exists():
        raise UsageError(f"cannot read calibration {path}: no such file or folder")
    files = sorted(f for f in path.rglob("*") if f.suffix.lower() in accepted) if path.is_dir() else [path]
    kinds = {f.suffix.lower() for f in files}
    if not files or not kinds <= set(accepted):
        kind = f"calibration folder {path} has no files" if path.is_dir() else f"calibration {path}: unknown kind"
        raise UsageError(f"{kind}; accepted: {', '.join(accepted)}")
    if kinds <= set(IMAGE_SUFFIXES):
        return ImageSamples(files, inputs, images or ImageOptions())
    if kinds & set(IMAGE_SUFFIXES):
        raise UsageError(f"calibration folder {path} has images and arrays; give one kind")
    if images is not None:
        raise UsageError(f"{path} has arrays: --mean, --std, --resize and --layout are for images")
    parts = []
    for file in files:
        arrays = _without(stored_arrays(file), fixed)
        if not arrays:
            raise UsageError(f"calibration {file} has no arrays")
        parts.append(ArraySamples(arrays, inputs, f"calibration {file.name}" if len(files) > 1 else "calibration"))
    return parts[0] if len(parts) == 1 else Chain(parts)
