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
"""Greatest quantised weight of 8 bits; -128 is left out, so that scales are symmetric."""

LIMIT_OF_4_BITS = 7
"""The same of 4 bits."""

DAMPING = 0.01
"""Damping on the diagonal of the moments, as a fraction of its mean."""

_BLOCK = 128
_LARGE = 512  # inputs from which on moments are worked on in place
_SHRINKS = np.linspace(1.0, 0.7, 13, dtype=np.float32)
_SHRINKS_OF_FEW = np.linspace(1.0, 0.5, 21, dtype=np.float32)  # where steps are wide, cutting off costs less
_CHUNK = 1 << 17  # weights whose scales are tried at one time: what is computed with them stays in the cache
_SMALLEST = 1e-12


def damp(moments: np.ndarray, damping: float = DAMPING) -> None:
    """Makes moments positive definite, in place. [groups, k, k]."""
    diagonal = np.einsum("gii->gi", moments)  # a view
    diagonal += np.maximum(damping * diagonal.mean(axis=1), _SMALLEST)[:, None]


def best_scales(
    weights: np.ndarray, importance: np.ndarray, per_channel: bool = True, limit: int = LIMIT
) -> np.ndarray:
    """The scales with the least error of nearest rounding, weighted by each input's importance.

    Args:
        weights: [groups, outputs, k].
        importance: [groups, k], the mean square of each input.
        per_channel: False gives all outputs the same scale.
        limit: greatest integer.

    Returns:
        float32[groups, outputs].
    """
    bound = np.abs(weights).max(axis=2)
    if not per_channel:
        bound = np.broadcast_to(bound.max(), bound.shape)
    full = np.where(bound > _SMALLEST, bound / limit, 1.0).astype(np.float32)
    shrinks = _SHRINKS if limit == LIMIT else _SHRINKS_OF_FEW
    errors = np.empty((len(shrinks), *full.shape))
    groups, outputs, k = weights.shape
    rows = max(1, _CHUNK // (groups * k))
    for start in range(0, outputs, rows):
        part = np.asarray(weights[:, start : start + rows], np.float32)
        for number, shrink in enumerate(shrinks):
            scale = (full[:, start : start + rows] * shrink)[:, :, None]
            change = part / scale
            np.rint(change, out=change)
            np.clip(change, -limit, limit, out=change)
            change *= scale
            change -= part
            np.square(change, out=change)
            errors[number, :, start : start + rows] = (change @ importance[:, :, None].astype(np.float32))[:, :, 0]
    if not per_channel:
        errors = np.broadcast_to(errors.sum(axis=(1, 2), keepdims=True), errors.shape)
    return np.asarray(full * shrinks[errors.argmin(axis=0)], np.float32)


def nearest(weights: np.ndarray, scale: np.ndarray, limit: int = LIMIT) -> np.ndarray:
    """Rounds weights to integers within -limit..limit, as floats."""
    return np.asarray(np.clip(np.rint(weights / scale[..., None]), -limit, limit))


def solve(moments: np.ndarray, damping: float, loss: np.ndarray) -> np.ndarray:
    """Computes loss (moments + damping)^-1 in the memory of `loss`, where that is large. The moments are changed on the
    way, and restored at the end.

    Args:
        moments: [groups, k, k].
        damping: as for `damp`.
        loss: [groups, outputs, k].
    """
    if moments.shape[1] <= _LARGE:
        firm = moments.copy()
        damp(firm, damping)
        return np.asarray(np.linalg.solve(firm, loss.transpose(0, 2, 1)).transpose(0, 2, 1))
    for one, part in zip(moments, loss):
        diagonal = one.diagonal().copy()
        damp(one[None], damping)
        try:
            _factor(one)
            _substitute(one, part)
        except np.linalg.LinAlgError:  # nothing that can be undone
            part[:] = 0
        _restore(one, diagonal)
    return loss


def round_by_moments(
    weights: np.ndarray, moments: np.ndarray, scale: np.ndarray, overwrite: bool = False, limit: int = LIMIT
) -> np.ndarray:
    """Rounds weights to integers within -limit..limit so that their products differ least.

    Args:
        weights: [groups, outputs, k].
        moments: [groups, k, k]; `DAMPING` is added to them.
        scale: [groups, outputs].
        limit: greatest integer.
        overwrite: the moments are of no further use: large ones are worked on where they are.

    Returns:
        Floats of the weights' type, [groups, outputs, k].
    """
    groups, _, k = weights.shape
    order = np.argsort(-np.einsum("gii->gi", moments), axis=1, kind="stable")[:, ::-1]  # largest last: rounded first
    of_group = np.arange(groups)[:, None, None]
    if overwrite and k > _LARGE:
        lower = moments
        for one, own in zip(lower, order):
            _permute(one, own)
    else:
        lower = moments[of_group, order[:, :, None], order[:, None, :]]
    lower = _cholesky(lower)  # R' of the module's formula; above the diagonal anything
    restored = np.empty_like(weights)
    some = max(1, _CHUNK * 8 // (groups * k))  # outputs have nothing to do with each other
    for start in range(0, weights.shape[1], some):
        rows = slice(start, start + some)
        real = np.take_along_axis(weights[:, rows], order[:, None, :], axis=2).transpose(0, 2, 1)
        result = _rounded(np.ascontiguousarray(real), lower, scale[:, rows], limit)
        places = np.broadcast_to(order[:, None, :], restored[:, rows].shape)
        np.put_along_axis(restored[:, rows], places, result.transpose(0, 2, 1), axis=2)
    return restored


def _rounded(real: np.ndarray, lower: np.ndarray, scale: np.ndarray, limit: int) -> np.ndarray:
    """[groups, k, outputs]."""
    k = real.shape[1]
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
            result[:, at] = np.clip(np.rint(wanted / scale), -limit, limit)
            errors[:, at] = real[:, at] - result[:, at] * scale
    return result


def _cholesky(moments: np.ndarray) -> np.ndarray:
    """The lower triangular Cholesky factor of moments, to which damping is added. Large moments become the factor in
    place; the part above the diagonal is not part of it.

    Sums in float32 may leave slightly negative directions; more damping takes them away.
    """
    large = moments.shape[1] > _LARGE
    for attempt in range(6):
        damp(moments, DAMPING * 10**attempt)
        try:
            if not large:
                return np.asarray(np.linalg.cholesky(moments))
            damped = np.einsum("gii->gi", moments).copy()
            for one in moments:
                _factor(one)
            return moments
        except np.linalg.LinAlgError:
            if large:
                for one, diagonal in zip(moments, damped):
                    _restore(one, diagonal)
            continue
    return np.asarray(np.broadcast_to(np.eye(moments.shape[1], dtype=moments.dtype), moments.shape))


# -- large matrices, where they are: LAPACK by numpy takes two more of the size ---------------------------------------


def _factor(matrix: np.ndarray) -> None:
    """Writes the Cholesky factor over the lower triangle and diagonal; the part above stays. float32[k, k],
    symmetric."""
    for start in range(0, len(matrix), _BLOCK):
        stop = min(start + _BLOCK, len(matrix))
        panel = matrix[start:, start:stop] - matrix[start:, :start] @ matrix[start:stop, :start].T
        top = np.linalg.cholesky(panel[: stop - start])
        matrix[start:stop, start:stop] = top + np.triu(matrix[start:stop, start:stop], 1)
        matrix[stop:, start:stop] = panel[stop - start :] @ np.linalg.inv(top).T


def _substitute(factor: np.ndarray, rows: np.ndarray) -> None:
    """Replaces each row r by r (L L')^-1, in place. float32[n, k]."""
    blocks = [slice(start, min(start + _BLOCK, len(factor))) for start in range(0, len(factor), _BLOCK)]
    for at in blocks:
        rest = rows[:, at] - rows[:, : at.start] @ factor[at, : at.start].T
        rows[:, at] = rest @ np.linalg.inv(np.tril(factor[at, at])).T
    for at in reversed(blocks):
        rest = rows[:, at] - rows[:, at.stop :] @ factor[at.stop :, at]
        rows[:, at] = rest @ np.linalg.inv(np.tril(factor[at, at]))


def _restore(matrix: np.ndarray, diagonal: np.ndarray) -> None:
    """Restores the matrix that `_factor` overwrote, from the part above the diagonal."""
    for start in range(0, len(matrix), _BLOCK):
        stop = min(start + _BLOCK, len(matrix))
        square = np.triu(matrix[start:stop, start:stop], 1)
        matrix[start:stop, start:stop] = square + square.T
        matrix[stop:, start:stop] = matrix[start:stop, stop:].T
    np.einsum("ii->i", matrix)[:] = diagonal


def _permute(matrix: np.ndarray, order: np.ndarray) -> None:
    """Rows and columns of a square matrix in another order, in place."""
    for start in range(0, len(matrix), _BLOCK):
        matrix[start : start + _BLOCK] = matrix[start : start + _BLOCK][:, order]
    for start in range(0, len(matrix), _BLOCK):
        matrix[:, start : start + _BLOCK] = matrix[:, start : start + _BLOCK][order]
