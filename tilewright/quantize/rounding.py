"""Weights rounded so that the results of their product change least, not the weights themselves.

The error of a product y = W x over many x is tr(D H D'), with D the change of the weights and H = E[x x'] the second
moments of its input. GPTQ (Frantar et al., arXiv:2210.17323) rounds one input after the other and moves what was
rounded away to the inputs that are still real, as H says. It is exact linear algebra: no training, no random numbers.
"""

from __future__ import annotations

import numpy as np

LIMIT = 127
"""Greatest quantised weight; -128 is left out, so that scales are symmetric."""

DAMPING = 0.01
"""What is added to the diagonal of the moments, as a fraction of its mean."""

_BLOCK = 128
_SHRINKS = np.linspace(1.0, 0.7, 13)
_SMALLEST = 1e-12


def damped(moments: np.ndarray, damping: float = DAMPING) -> np.ndarray:
    """Positive definite moments. float64[groups, k, k]."""
    diagonal = np.diagonal(moments, axis1=1, axis2=2)
    floor = np.maximum(damping * diagonal.mean(axis=1), _SMALLEST)
    return np.asarray(moments + floor[:, None, None] * np.eye(moments.shape[1]))


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
    full = np.where(bound > _SMALLEST, bound / LIMIT, 1.0)
    best, least = full, np.full(full.shape, np.inf)
    for shrink in _SHRINKS:
        scale = full * shrink
        change = nearest(weights, scale) * scale[:, :, None] - weights
        error = (change * change * importance[:, None, :]).sum(axis=2)
        if not per_channel:
            error = np.broadcast_to(error.sum(), error.shape)
        better = error < least
        best, least = np.where(better, scale, best), np.where(better, error, least)
    return np.asarray(best, np.float32)


def nearest(weights: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Integers within -127..127, as floats."""
    return np.asarray(np.clip(np.rint(weights / scale[..., None]), -LIMIT, LIMIT))


def round_by_moments(weights: np.ndarray, moments: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Integers within -127..127 whose products differ least.

    Args:
        weights: float64[groups, outputs, k].
        moments: float64[groups, k, k], positive definite (see `damped`).
        scale: [groups, outputs].

    Returns:
        float64[groups, outputs, k].
    """
    groups, _, k = weights.shape
    order = np.argsort(-np.diagonal(moments, axis1=1, axis2=2), axis=1, kind="stable")
    rows = np.arange(groups)[:, None]
    sorted_moments = moments[rows[:, :, None], order[:, :, None], order[:, None, :]]
    left = np.take_along_axis(weights, order[:, None, :], axis=2).astype(np.float64)
    upper = _root_of_inverse(sorted_moments)
    result = np.empty_like(left)
    scale = scale.astype(np.float64)
    for start in range(0, k, _BLOCK):
        stop = min(start + _BLOCK, k)
        errors = np.empty((*left.shape[:2], stop - start))
        for i in range(start, stop):
            column = left[:, :, i]
            result[:, :, i] = np.clip(np.rint(column / scale), -LIMIT, LIMIT)
            error = (column - result[:, :, i] * scale) / upper[:, i, i][:, None]
            left[:, :, i:stop] -= error[:, :, None] * upper[:, None, i, i:stop]
            errors[:, :, i - start] = error
        left[:, :, stop:] -= errors @ upper[:, start:stop, stop:]
    restored = np.empty_like(result)
    np.put_along_axis(restored, np.broadcast_to(order[:, None, :], result.shape), result, axis=2)
    return restored


def _root_of_inverse(moments: np.ndarray) -> np.ndarray:
    """The upper triangular U with U' U = H^-1: the inverse of the Cholesky factor of H with its rows reversed.

    Sums in float32 may leave H with slightly negative directions; more damping takes them away.
    """
    reversed_ = moments[:, ::-1, ::-1]
    for attempt in range(6):
        try:
            factor = np.linalg.cholesky(damped(reversed_, DAMPING * 10**attempt - DAMPING) if attempt else reversed_)
        except np.linalg.LinAlgError:
            continue
        return np.asarray(np.linalg.inv(factor)[:, ::-1, ::-1])
    return np.asarray(np.broadcast_to(np.eye(moments.shape[1]), moments.shape))
