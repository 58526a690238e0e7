"""Weights rounded by the moments of their inputs."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.quantize.rounding import LIMIT_OF_4_BITS, best_scales, damp, nearest, round_by_moments, solve

RANDOM = np.random.default_rng(5)


def mixed(count: int, inputs: int) -> np.ndarray:
    """Correlated inputs: [count, inputs]."""
    return RANDOM.normal(size=(count, 4)) @ RANDOM.normal(size=(4, inputs)) + 0.1 * RANDOM.normal(size=(count, inputs))


@pytest.mark.medium
def test_products_differ_less() -> None:
    """Products with other inputs of the same kind are far nearer than with nearest rounding."""
    weights, directions = RANDOM.normal(size=(1, 16, 200)), RANDOM.normal(size=(4, 200))
    seen, others = (
        RANDOM.normal(size=(2000, 4)) @ directions + 0.1 * RANDOM.normal(size=(2000, 200)) for _ in range(2)
    )
    moments = (seen.T @ seen / len(seen))[None]
    scale = best_scales(weights, np.diagonal(moments, axis1=1, axis2=2))
    good = round_by_moments(weights, moments, scale) * scale[:, :, None]
    plain = nearest(weights, scale) * scale[:, :, None]
    error = lambda found: float(np.square((found - weights)[0] @ others.T).mean())
    assert error(good) < error(plain) / 4
    assert np.abs(good / scale[:, :, None]).max() <= 127


def test_independent_inputs_are_rounded_to_the_nearest() -> None:
    weights = RANDOM.normal(size=(3, 4, 9))
    scale = best_scales(weights, np.ones((3, 9)))
    found = round_by_moments(weights, np.broadcast_to(np.eye(9), (3, 9, 9)), scale)
    assert np.array_equal(found, nearest(weights, scale))


def test_deterministic_and_safe() -> None:
    """The same twice; moments that are not positive definite, as sums in float32 leave them, do not fail."""
    weights, inputs = RANDOM.normal(size=(1, 4, 30)), mixed(10, 30)
    moments = (inputs.T @ inputs)[None] / 10
    moments[0, 0, 0] -= 0.5
    scale = best_scales(weights, np.ones((1, 30)))
    first, second = (round_by_moments(weights, moments, scale) for _ in range(2))
    assert np.array_equal(first, second) and np.isfinite(first).all()


def test_one_scale_for_all() -> None:
    weights = RANDOM.normal(size=(1, 4, 30)) * np.array([1, 2, 3, 4])[None, :, None]
    scale = best_scales(weights, np.ones((1, 30)), per_channel=False)
    assert len(np.unique(scale)) == 1


@pytest.mark.medium
def test_large_moments_in_place() -> None:
    """Blocks give what LAPACK gives on the whole matrix; moments come back as they were."""
    inputs = mixed(900, 700)
    moments = (inputs.T @ inputs)[None] / 900
    weights, loss = RANDOM.normal(size=(1, 5, 700)), RANDOM.normal(size=(1, 5, 700))
    firm = moments.copy()
    damp(firm, 0.1)
    before = moments.copy()
    assert np.allclose(np.linalg.solve(firm[0], loss[0].T).T, solve(moments, 0.1, loss)[0], rtol=1e-6)
    assert np.array_equal(moments, before)
    scale = best_scales(weights, np.ones((1, 700)))
    first = round_by_moments(weights, moments, scale)
    assert np.array_equal(moments, before)
    assert np.array_equal(first, round_by_moments(weights, moments, scale, overwrite=True))
    error = lambda found: float(np.square((found * scale[:, :, None] - weights)[0] @ inputs.T).mean())
    assert error(first) < error(nearest(weights, scale)) / 4
    before[0, 0, 0] -= 2.0  # a negative direction: more damping, from the beginning
    assert np.isfinite(round_by_moments(weights, before, scale, overwrite=True)).all()


def test_weights_of_4_bits_are_rounded_by_moments_too() -> None:
    """Integers stay within -7..7, and the results of the product are nearer than those of nearest rounding."""
    random = np.random.default_rng(8)
    weights = random.standard_normal((1, 16, 64)).astype(np.float32)
    mixed = random.standard_normal((64, 64)).astype(np.float32)
    moments = (mixed @ mixed.T)[None] / 64
    power = np.diagonal(moments, axis1=1, axis2=2)
    scale = best_scales(weights, power, limit=LIMIT_OF_4_BITS)
    good = round_by_moments(weights, moments.copy(), scale, limit=LIMIT_OF_4_BITS)
    near = nearest(weights, scale, LIMIT_OF_4_BITS)
    assert np.abs(good).max() == np.abs(near).max() == 7
    errors = []
    for integers in (good, near):
        change = weights[0] - integers[0] * scale[0][:, None]
        errors.append(np.einsum("ok,kl,ol->", change, moments[0], change))
    assert errors[0] < 0.6 * errors[1]
