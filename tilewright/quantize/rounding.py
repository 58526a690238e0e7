"""Weights rounded so that the results of their product change least, not the weights themselves.

The error of a product y = W x over many x is tr(D H D'), with D the change of the weights and H = E[x x'] the second
moments of its input. GPTQ (Frantar et al., arXiv:2210.17323) rounds one input after the other and moves what was
rounded away to the inputs that are still real, as H says. It is exact linear algebra: no training, no random numbers.

The error is |R (w - v)|^2 with H = R' R, R upper triangular. Its last row holds the last input alone, the row before
the last two, and so on: rounding from the last input to the first, each to the integer that makes its own row's term
least, gives what GPTQ gives (Babai's nearest plane, see Chen et al., arXiv:2507.18553), without an inverse of H.
"""

from __future__ import annotations

import numpy as np

LIMIT = 127
"""Greatest quantised weight; -128 is left out, so that scales are symmetric."""

DAMPING = 0.01
"""What is added to the diagonal of the moments, as a fraction of its mean."""

_BLOCK = 128
_SHRINKS = np.linspace(1.0, 0.7, 13, dtype=np.float32)
_CHUNK = 1 << 17  # weights whose scales are tried at one time: what is computed with them stays in the cache
_SMALLEST = 1e-12


def damp(moments: np.ndarray, damping: float = DAMPING) -> None:
    """Makes moments positive definite, in place. [groups, k, k]."""
    diagonal = np.einsum("gii->gi", moments)  # a view
    diagonal += np.maximum(damping * diagonal.mean(axis=1), _SMALLEST)[:, None]


def best_scales(weights: np.ndarray, importance: np.ndarray, per_channel: bool = True) -> np.ndarray:
    """The scales with the least error of nearest rounding, weighted by each input's importance.

    Args:
        weights: [groups, outputs, k].
        importance: [groups, k], the mean square of each input.
        per_channel: False gives all outputs the same scale.

    Returns:
        float32[groups, outputs].
    """
    bound = np.abs(weights).max(axis=2)
    if not per_channel:
        bound = np.broadcast_to(bound.max(), bound.shape)
    full = np.where(bound > _SMALLEST, bound / LIMIT, 1.0).astype(np.float32)
    errors = np.empty((len(_SHRINKS), *full.shape))
    groups, outputs, k = weights.shape
    rows = max(1, _CHUNK // (groups * k))
    for start in range(0, outputs, rows):
        part = np.asarray(weights[:, start : start + rows], np.float32)
        for number, shrink in enumerate(_SHRINKS):
            scale = (full[:, start : start + rows] * shrink)[:, :, None]
            change = part / scale
            np.rint(change, out=change)
            np.clip(change, -LIMIT, LIMIT, out=change)
            change *= scale
            change -= part
            np.square(change, out=change)
            errors[number, :, start : start + rows] = (change @ importance[:, :, None].astype(np.float32))[:, :, 0]
    if not per_channel:
        errors = np.broadcast_to(errors.sum(axis=(1, 2), keepdims=True), errors.shape)
    return np.asarray(full * _SHRINKS[errors.argmin(axis=0)], np.float32)


def nearest(weights: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Integers within -127..127, as floats."""
    return np.asarray(np.clip(np.rint(weights / scale[..., None]), -LIMIT, LIMIT))


def round_by_moments(weights: np.ndarray, moments: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Integers within -127..127 whose products differ least.

    Args:
        weights: [groups, outputs, k].
        moments: [groups, k, k]; `DAMPING` is added to them.
        scale: [groups, outputs].

    Returns:
        Floats of the weights' type, [groups, outputs, k].
    """
    groups, _, k = weights.shape
    order = np.argsort(-np.einsum("gii->gi", moments), axis=1, kind="stable")[:, ::-1]  # largest last: rounded first
    of_group = np.arange(groups)[:, None, None]
    lower = _cholesky(moments[of_group, order[:, :, None], order[:, None, :]])  # R' of the module's formula
    real = np.ascontiguousarray(np.take_along_axis(weights, order[:, None, :], axis=2).transpose(0, 2, 1))
    errors = np.empty_like(real)  # what each input was rounded by
    result = np.empty_like(real)
    for stop in range(k, 0, -_BLOCK):
        start = max(stop - _BLOCK, 0)
        pulled = lower[:, stop:, start:stop].transpose(0, 2, 1) @ errors[:, stop:]
        block = np.ascontiguousarray(lower[:, start:stop, start:stop].transpose(0, 2, 1))
        for i in range(stop - start - 1, -1, -1):
            at = start + i
            pull = pulled[:, i] + (block[:, i, None, i + 1 :] @ errors[:, at + 1 : stop])[:, 0]
            wanted = real[:, at] + pull / block[:, i, i, None]
            result[:, at] = np.clip(np.rint(wanted / scale), -LIMIT, LIMIT)
            errors[:, at] = real[:, at] - result[:, at] * scale
    restored = np.empty_like(weights)
    np.put_along_axis(restored, np.broadcast_to(order[:, None, :], weights.shape), result.transpose(0, 2, 1), axis=2)
    return restored


def _cholesky(moments: np.ndarray) -> np.ndarray:
    """The lower triangular factor of moments with damping, which are changed.

    Sums in float32 may leave slightly negative directions; more damping takes them away.
    """
    for attempt in range(6):
        damp(moments, DAMPING * 10**attempt)
        try:
            return np.asarray(np.linalg.cholesky(moments))
        except np.linalg.LinAlgError:
            continue
    return np.asarray(np.broadcast_to(np.eye(moments.shape[1], dtype=moments.dtype), moments.shape))
