"""Between a tensor as the model has it and the bytes of its buffer, which may be channel-blocked.

Blocked layouts have the shape [N, ceil(C / block), H, W, block]; lanes beyond C hold whatever the machine left there.
The convention "c1" has the channels on axis 1 of the tensor, "last" on its last axis (then W counts rows, H is 1).
`xor` 128 moves between uint8 and the machine's int8.
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


def _blocked(raw: np.ndarray, info: TensorInfo) -> np.ndarray:
    assert info.relayout is not None
    return raw.view(np.uint8).reshape(info.relayout["shape"])


def _planes(info: TensorInfo) -> tuple[int, int, int, int]:
    """(N, C, H, W) of the tensor; with the convention "last" C is the last axis and rows are W."""
    assert info.relayout is not None
    n, _, h, w, _ = info.relayout["shape"]
    return n, info.shape[-1] if _last(info) else info.shape[1], h, w


def _last(info: TensorInfo) -> bool:
    return info.relayout is not None and info.relayout.get("convention", "c1") == "last"


def to_tensor(raw: np.ndarray, info: TensorInfo) -> np.ndarray:
    """The tensor whose buffer holds the bytes `raw`; a fresh array."""
    raw = raw[: nbytes_of(info)]
    if not info.relayout:
        return raw.copy().view(dtype_of(info)).reshape(info.shape)
    source, block = _blocked(raw, info), int(info.relayout["block"])
    planes = np.empty(_planes(info), np.uint8)
    for first in range(0, planes.shape[1], block):
        part = planes[:, first : first + block]
        part[...] = np.moveaxis(source[:, first // block, ..., : part.shape[1]], -1, 1)
    planes ^= np.uint8(info.relayout.get("xor", 0))
    if _last(info):
        planes = np.ascontiguousarray(np.moveaxis(planes, 1, -1))
    return planes.reshape(info.shape).view(dtype_of(info))


def put_tensor(raw: np.ndarray, info: TensorInfo, value: np.ndarray) -> None:
    """Writes `value` into the buffer bytes `raw` in place; lanes beyond the channels keep their bytes."""
    raw = raw[: nbytes_of(info)]
    flat = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    if not info.relayout:
        raw[...] = flat
        return
    target, block = _blocked(raw, info), int(info.relayout["block"])
    n, c, h, w = _planes(info)
    planes = np.moveaxis(flat.reshape(n, h, w, c), -1, 1) if _last(info) else flat.reshape(n, c, h, w)
    planes = planes ^ np.uint8(info.relayout.get("xor", 0))
    for first in range(0, c, block):
        part = planes[:, first : first + block]
        target[:, first // block, ..., : part.shape[1]] = np.moveaxis(part, 1, -1)
