"""Random kernels: the functional simulator equals numpy, and the cycle-level one has no race and equals both."""

import numpy as np
import pytest

from tests.unit.tilewright.kernel.random_kernels import Case


def compare(seed: int, *devices: str) -> None:
    """Builds a random kernel and compares its bytes on random values."""
    case = Case(seed)
    x = np.random.default_rng(seed).integers(-128, 128, case.shape, np.int8)
    wanted = case.reference(x)
    built = case.kernel.build(x, config=case.config)
    for device in devices:
        np.testing.assert_array_equal(built.run(x, device=device), wanted, err_msg=f"seed {seed} on {device}")


@pytest.mark.medium
@pytest.mark.parametrize("first", range(0, 60, 20))
def test_simulators_equal_numpy(first: int) -> None:
    for seed in range(first, first + 20):
        compare(seed, "functional", "cycle")


@pytest.mark.long
@pytest.mark.parametrize("first", range(1000, 11_000, 500))
def test_many_simulated(first: int) -> None:
    for seed in range(first, first + 500):
        compare(seed, "functional", "cycle")


@pytest.mark.cosim
@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 300, 50))
def test_rtl(first: int) -> None:
    for seed in range(first, first + 50):
        compare(seed, "rtl")
