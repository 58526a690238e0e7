"""COND_IF and WHILE_LOOP around random 8-bit networks: IREE's bytes, and those of Python's own `if` and `while`."""

from __future__ import annotations

import os
from importlib.util import find_spec

import numpy as np
import pytest

import tilewright as tw
from tests.unit.compiler.importer.tosa.evaluation import evaluate
from tests.unit.compiler.importer.tosa.random_control import RandomControlProgram
from tests.unit.compiler.importer.tosa.random_graphs import digest

pytest.importorskip("xdsl")
from tilewright.compiler.importer.tosa import OPERATIONS
from tilewright.compiler.importer.tosa.reading import read

_MANY = int(os.environ.get("TOSA_PROGRAMS", "30")) // 10
_DIGESTS = {2: "a10423c39dba397a", 6: "6630ca4687ae7572", 8: "c8e5ecf3c82873e5"}
"""Digests of IREE's results by seed: programs with products for the NPU inside branches and loops."""


def _results(program: RandomControlProgram) -> dict[str, np.ndarray]:
    compiled = tw.compile(program.text(), cache=False)
    return tw.Device("functional").run(compiled, program.arrays())


def _compare(program: RandomControlProgram, want: dict[str, np.ndarray]) -> None:
    got = _results(program)
    for name, value in want.items():
        np.testing.assert_array_equal(got[name], value, err_msg=f"seed {program.seed}, {name}")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 8))
def test_inside_one_another(seed: int) -> None:
    program = RandomControlProgram(seed, depth=2)
    _compare(program, evaluate(read(program.text(), OPERATIONS), program.arrays()))


@pytest.mark.medium
@pytest.mark.parametrize("seed", _DIGESTS)
def test_bytes_are_those_iree_made_once(seed: int) -> None:
    assert digest(_results(RandomControlProgram(seed)).values()) == _DIGESTS[seed]


@pytest.mark.slow
@pytest.mark.skipif(find_spec("iree") is None, reason="IREE is not installed")
def test_bytes_are_those_of_iree() -> None:
    from tilewright.checking.iree_reference import IreeReference

    for seed in range(_MANY):
        program = RandomControlProgram(seed)
        _compare(program, IreeReference(program.text()).run(program.arrays()))
