"""Values of samples in the types of a model's inputs."""

from __future__ import annotations

import numpy as np

from tilewright.errors import UsageError

LARGEST = float(np.sqrt(np.finfo(np.float32).max))
"""Greatest magnitude of a sample's values: the squares of greater ones are no float32 numbers."""


def converted(value: np.ndarray, dtype: np.dtype, what: str) -> np.ndarray:
    """A sample's value in the type of an input, contiguous.

    Args:
        what: the input and the sample, for messages.

    Raises:
        UsageError: a value that is no number, is beyond `LARGEST`, or does not fit the type.
    """
    if value.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            bad = ~(np.abs(value) <= np.float64(min(LARGEST, float(np.finfo(dtype).max))))
        if bad.any():
            first = value[bad].flat[0]
            hint = "; a mask may have -10000 in its place" if first < -LARGEST else ""
            most = min(LARGEST, float(np.finfo(dtype).max))
            raise UsageError(f"{what} has {first:g}{place(bad)}; numbers within ±{most:.2g} are accepted{hint}")
    elif value.dtype.kind in "iu" and dtype.kind in "iu" and value.size:
        limits = np.iinfo(dtype)
        bad = (value < limits.min) | (value > limits.max)
        if bad.any():
            raise UsageError(
                f"{what} has {value[bad].flat[0]}{place(bad)}; {limits.min}..{limits.max} are accepted: the input is "
                f"{dtype.name}"
            )
    return np.ascontiguousarray(value, dtype).reshape(value.shape)


def place(bad: np.ndarray) -> str:
    """The position of the first bad value, as text for messages. bool[...]"""
    return f" at {np.argwhere(bad)[0].tolist()}" if bad.ndim else ""
