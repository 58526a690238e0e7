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
from tilewright.errors import TilewrightError

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
@pytest.mark.parametrize("by_values", [False, True])
@pytest.mark.parametrize("seed", range(2, 6))
def test_inside_one_another(seed: int, by_values: bool) -> None:
    program = RandomControlProgram(seed, 2, by_values)
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
        program = RandomControlProgram(seed, by_values=bool(seed % 2))
        _compare(program, IreeReference(program.text()).run(program.arrays()))


COUNTED = """func.func @main(%x: tensor<2xi32>, %n: tensor<i32>) -> (tensor<i32>, tensor<2xi32>) {
  %zero = "tosa.const"() <{values = dense<0> : tensor<i32>}> : () -> tensor<i32>
  %one = "tosa.const"() <{values = dense<1> : tensor<i32>}> : () -> tensor<i32>
  %k, %s = tosa.while_loop (%i = %zero, %v = %x) : (tensor<i32>, tensor<2xi32>) -> (tensor<i32>, tensor<2xi32>) {
    %go = tosa.greater %n, %i : (tensor<i32>, tensor<i32>) -> tensor<i1>
    tosa.yield %go : tensor<i1>
  } do {
  ^bb0(%i: tensor<i32>, %v: tensor<2xi32>):
    %j = tosa.add %i, %one : (tensor<i32>, tensor<i32>) -> tensor<i32>
    %w = tosa.add %v, %x : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi32>
    tosa.yield %j, %w : tensor<i32>, tensor<2xi32>
  }
  return %k, %s : tensor<i32>, tensor<2xi32>
}
"""


def test_loops_that_an_input_ends() -> None:
    model = tw.compile(COUNTED, cache=False)
    x, counts = np.array([5, -7], np.int32), []
    for rounds in (0, 1, 5, 3):
        got = tw.Device("functional").run(model, {"input_0": x, "input_1": np.array(rounds, np.int32)})
        np.testing.assert_array_equal(got["output_0"], rounds)
        np.testing.assert_array_equal(got["output_1"], x * (1 + rounds))
        counts.append(model.compilations)  # type: ignore[union-attr]
    assert counts[1] == counts[3], "rounds are compiled once"
    message = r"'line 4: tosa.while_loop': the condition .* \(it follows from 'input_1'\) is known at run time only"
    with pytest.raises(TilewrightError, match=message):
        tw.compile_program(COUNTED, cache=False)
    program = tw.compile_program(COUNTED, constants={"input_1": 4}, cache=False)
    np.testing.assert_array_equal(tw.Device("functional").run(program, {"input_0": x})["output_1"], x * 5)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("%w : tensor<i32>, tensor<2xi32>\n  }", "%i : tensor<i32>, tensor<i32>\n  }", "a block's results are"),
        ("yield %go : tensor<i1>", "yield %i : tensor<i32>", r"its condition is tensor<i32>; one boolean is needed"),
        ("yield %go : tensor<i1>", "yield %go, %go : tensor<i1>, tensor<i1>", "its condition is"),
    ],
)
def test_blocks_that_do_not_fit(old: str, new: str, message: str) -> None:
    assert old in COUNTED
    with pytest.raises(TilewrightError, match=f"line 4: tosa.while_loop: {message}"):
        tw.compile(COUNTED.replace(old, new), cache=False)
