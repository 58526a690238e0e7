"""A sample of ONNX's suite, all excluded tests, and a light network with random weights; `make onnx-suite` runs all."""

from __future__ import annotations

import functools
import os
import time
import unittest
from collections.abc import Iterator

import onnx.backend.test
import pytest

import tilewright.onnx_backend as backend
from tests.onnx_suite import exclusions, light, pool, provider, suite

SAMPLE = 14  # every 14th test of a kind
SPARSE = 2  # of those, for the suite as the compiler is given it; the others are long
SECONDS = 60.0  # limit of one test


@pytest.fixture(scope="module")
def tests() -> suite.Tests:
    return suite.load()


def chosen(tests: suite.Tests) -> list[str]:
    return [n for kind in suite.KINDS if kind != "real" for n in [m for m in tests if tests[m][0] == kind][::SAMPLE]]


def results(tests: suite.Tests, names: list[str]) -> Iterator[suite.Result]:
    died = lambda name, reason: suite.Result(tests[name][0], name, "error", reason, SECONDS)
    for _, result in pool.run(functools.partial(suite.run, tests), names, 1, SECONDS, died):
        yield exclusions.judged(result)


@pytest.mark.parametrize("first", [0, pytest.param(1, marks=pytest.mark.long)])
def test_sample(tests: suite.Tests, first: int) -> None:
    names = chosen(tests)[first::SPARSE]
    failed = [f"{r.name}: {r.reason}" for r in results(tests, names) if r.status not in suite.GOOD]
    assert not failed, "\n".join(failed)


def test_sample_through_onnxruntime() -> None:
    """The execution provider takes most of the sample, and passes it."""
    both = provider.load()
    names = chosen(both[0])[::4]
    died = lambda name, reason: suite.Result(both[0][name][0], name, "error", reason, SECONDS)
    found = [r for _, r in pool.run(functools.partial(provider.run_provided, both), names, 1, SECONDS, died)]
    failed = [f"{r.name}: {r.reason}" for r in found if r.status not in suite.GOOD]
    assert not failed, "\n".join(failed)
    assert sum(r.reason == provider.TAKEN for r in found) > len(found) // 3


def test_exclusions_are_needed(tests: suite.Tests) -> None:
    assert set(exclusions.EXCLUDED) <= set(tests), "an excluded test is not in the suite"
    passing = [r.name for r in results(tests, list(exclusions.EXCLUDED)) if r.status != "excluded"]
    assert not passing, f"excluded, but they pass: {passing}"


def test_a_crash_is_one_failure() -> None:
    found = dict(pool.run(_crash_on_two, [1, 2, 3], 1, SECONDS, lambda job, reason: reason))
    assert found[1] == 1 and found[3] == 3
    assert "died" in found[2]


def _crash_on_two(job: int) -> int:
    if job == 2:
        os.kill(os.getpid(), 9)
    return job


def test_a_hang_is_one_failure() -> None:
    found = dict(pool.run(_hang_on_one, [1, 2], 1, 5.0, lambda job, reason: reason))
    assert found[2] == 2
    assert "5 s" in found[1]


def _hang_on_one(job: int) -> int:
    if job == 1:
        time.sleep(3600)
    return job


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_onnx_runs_its_suite_over_the_module() -> None:
    tests = onnx.backend.test.BackendTest(backend, __name__)
    tests.include(r"^test_(sub|sub_bcast|gemm_all_attributes)_cpu$")
    result = unittest.TestResult()
    tests.test_suite.run(result)
    assert result.wasSuccessful(), result.failures + result.errors
    assert result.testsRun - len(result.skipped) == 3


@pytest.mark.network
def test_random_weights() -> None:
    for difference in light.compare("squeezenet"):
        assert difference.relative <= light.TOLERANCE, difference
