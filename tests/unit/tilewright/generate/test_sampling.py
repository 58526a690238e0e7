"""Sampling: probabilities worked out by hand, draws that repeat, and counts of many draws."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.errors import UsageError
from tilewright.generate import GREEDY, Sampler

LOGITS = np.log(np.array([0.1, 0.4, 0.2, 0.3], np.float32))


@pytest.mark.parametrize(
    "sampler, wanted",
    [
        (Sampler(1.0), [0.1, 0.4, 0.2, 0.3]),
        (Sampler(0.5), np.array([1, 16, 4, 9]) / 30),
        (Sampler(1.0, top_k=2), [0, 4 / 7, 0, 3 / 7]),
        (Sampler(1.0, top_p=0.65), [0, 4 / 7, 0, 3 / 7]),
        (Sampler(1.0, top_p=0.75), [0, 4 / 9, 2 / 9, 3 / 9]),
        (Sampler(1.0, top_k=3, top_p=0.5), [0, 4 / 7, 0, 3 / 7]),
        (Sampler(1.0, top_p=1e-9), [0, 1, 0, 0]),
        (GREEDY, [0, 1, 0, 0]),
        (Sampler(1e-6), [0, 1, 0, 0]),
    ],
)
def test_probabilities(sampler: Sampler, wanted: list[float]) -> None:
    np.testing.assert_allclose(sampler.probabilities(LOGITS), wanted, atol=1e-6)


def test_draws_follow_the_probabilities_and_repeat() -> None:
    sampler = Sampler(1.0, top_k=3, seed=5)
    drawn = [sampler.choose(LOGITS, position) for position in range(4000)]
    assert drawn == [sampler.choose(LOGITS, position) for position in range(4000)]
    np.testing.assert_allclose(np.bincount(drawn, minlength=4) / 4000, sampler.probabilities(LOGITS), atol=0.03)
    assert drawn != [Sampler(1.0, top_k=3, seed=6).choose(LOGITS, position) for position in range(4000)]


def test_greedy_takes_the_first_of_equal_ones() -> None:
    assert GREEDY.choose(np.array([1, 3, 3, 2], np.float32), 0) == 1
    assert Sampler(1.0, top_k=1).choose(np.array([1, 3, 3, 2], np.float32), 0) == 1


@pytest.mark.parametrize(
    "given, message",
    [
        ({"temperature": -1}, "temperature must be 0..100, not -1"),
        ({"temperature": float("nan")}, "temperature must be 0..100, not nan"),
        ({"top_k": -1}, "top_k must be at least 0, not -1"),
        ({"top_p": 0}, "top_p must be above 0 and at most 1, not 0"),
        ({"seed": 1 << 64}, "seed must be 0"),
    ],
)
def test_numbers_out_of_range(given: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Sampler(**given)  # type: ignore[arg-type]
