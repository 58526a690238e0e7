"""Between a tensor as the model has it and the bytes of its buffer, which may be channel-blocked.

Blocked layouts have the shape [N, ceil(C / block), spatial..., block] for a tensor [N, C, spatial...]; lanes beyond C
hold whatever the machine left there. `xor` 128 moves between uint8 and the machine's int8.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from isa.program import TensorInfo


def dtype_of(info: TensorInfo) -> np.dtype[Any]:
    """The numpy type of a tensor; small float types come from ml_dtypes."""
    try:
        return np.dtype(info.dtype)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, info.dtype))


def nbytes_of(info: TensorInfo) -> int:
    """Bytes of the tensor in its buffer."""
    shape = info.relayout["shape"] if info.relayout else info.shape
    return math.prod(shape) * dtype_of(info).itemsize


def _blocked(raw: np.ndarray, info: TensorInfo) -> tuple[np.ndarray, int]:
    assert info.relayout is not None
    return raw.view(np.uint8).reshape(info.relayout["shape"]), int(info.relayout["block"])


def to_tensor(raw: np.ndarray, info: TensorInfo) -> np.ndarray:
    """The tensor whose buffer holds the bytes `raw`; a fresh array."""
    raw = raw[: nbytes_of(info)]
    if not info.relayout:
        return raw.copy().view(dtype_of(info)).reshape(info.shape)
    source, block = _blocked(raw, info)
    result = np.empty(_at_least_2d(info.shape), np.uint8)
    for first in range(0, result.shape[1], block):
        part = result[:, first : first + block]
        part[...] = np.moveaxis(source[:, first // block, ..., : part.shape[1]], -1, 1)
    result ^= np.uint8(info.relayout.get("xor", 0))
    return result.reshape(info.shape).view(dtype_of(info))


def put_tensor(raw: np.ndarray, info: TensorInfo, value: np.ndarray) -> None:
    """Writes `value` into the buffer bytes `raw` in place; lanes beyond the channels keep their bytes."""
    raw = raw[: nbytes_of(info)]
    flat = np.ascontiguousarray(value)
    if not info.relayout:
        raw[...] = flat.reshape(-1).view(np.uint8)
        return
    target, block = _blocked(raw, info)
    source = flat.view(np.uint8).reshape(_at_least_2d(info.shape)) ^ np.uint8(info.relayout.get("xor", 0))
    for first in range(0, source.shape[1], block):
        part = source[:, first : first + block]
        target[:, first // block, ..., : part.shape[1]] = np.moveaxis(part, 1, -1)


def _at_least_2d(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape if len(shape) >= 2 else (1, math.prod(shape))
