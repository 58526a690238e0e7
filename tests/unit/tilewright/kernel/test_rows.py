"""Softmax and norms in kernels: equal to their numpy forms, which are near to floats; machines without ROW refuse."""

import numpy as np
import pytest

from tilewright import kernel as tk
from tilewright.isa.config import PRESETS

X = np.random.default_rng(9).integers(-128, 128, (9, 37), np.int8)


@pytest.mark.medium
@pytest.mark.parametrize("centred", [False, True])
def test_norms_are_near_to_floats(centred: bool) -> None:
    random = np.random.default_rng(2)
    gamma, beta = random.uniform(0.5, 2, 37), random.uniform(-1, 1, 37)
    steps, zero_points, held = (0.03, 1 / 40), (5, -7), []

    @tk.kernel
    def normed(k: tk.Chip, x: tk.Tensor) -> tk.Tensor:
        norm = k.normalisation(gamma, beta, epsilon=1e-3, steps=steps, zero_points=zero_points, centred=centred)
        held.append(norm)
        y = k.tensor(x.shape)
        for part in tk.chunks(x.rows, 4):
            k.norm(k.load(x.at(part)), norm, into=y.at(part))
        return y

    built = normed.build(X)
    real = (X.astype(float) - zero_points[0]) * steps[0]
    real -= real.mean(1, keepdims=True) if centred else 0
    real /= np.sqrt(np.mean(real**2, 1, keepdims=True) + 1e-3)
    wanted = np.clip((real * gamma + beta) / steps[1] + zero_points[1], -128, 127)
    for device in ("functional", "cycle"):
        found = built.run(X, device=device)
        assert isinstance(found, np.ndarray)
        np.testing.assert_array_equal(found, held[0].of(X))
        assert np.abs(found - wanted).max() < 0.52


@pytest.mark.medium
def test_softmax_is_near_to_floats() -> None:
    @tk.kernel
    def softmax(k: tk.Chip, x: tk.Tensor) -> tk.Tensor:
        y, tile = k.tensor(x.shape), k.load(x.at())
        k.store(k.softmax(tile, 37, k.exponentials(0.04), into=tile), y.at())
        return y

    found = softmax(X, device="cycle")
    assert isinstance(found, np.ndarray)
    terms = np.exp(0.04 * X.astype(float))
    assert np.abs(found + 128.0 - 255 * terms / terms.sum(1, keepdims=True)).max() < 0.51
    np.testing.assert_array_equal(found, tk.Exponentials(0.04, 255.0).of(X))


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda k, a: k.softmax(a, 32, k.exponentials(0.1)), "32 channels do not fill the 3 blocks"),
        (lambda k, a: k.exponentials(-1.0), "scale must be above 0"),
        (lambda k, a: k.norm(a, k.normalisation(np.ones(64))), "64 channels do not fill the 3 blocks"),
        (lambda k, a: k.normalisation(np.ones(5000)), "gamma and beta have 1..4096 channels"),
        (lambda k, a: k.normalisation(np.ones(37), epsilon=1e9), "epsilon 1e[+]09 does not fit ROW"),
    ],
)
def test_mistakes(call, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(tk.KernelError, match=rf"^test_rows\.py:\d+: .*{message}"):
        tk.Kernel(lambda k, x: call(k, k.load(x.at()))).build(X)


def test_machines_without_the_unit() -> None:
    with pytest.raises(tk.KernelError, match="'small' has no row unit"):
        tk.Kernel(lambda k, x: k.exponentials(0.1)).build(X, config="small")
    with pytest.raises(tk.KernelError, match="has no row unit"):
        tk.Kernel(lambda k, x: k.normalisation(np.ones(37))).build(X, config=PRESETS["base"].with_(row_unit=0))
