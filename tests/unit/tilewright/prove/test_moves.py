"""Rules of what moves or mixes elements of planes, on constants; and programs that do it on the NPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from tests.common.onnx_models import model_of
from tests.reference.quantized_models import Model
from tests.unit.tilewright.prove.sides import both
from tilewright.isa.config import PRESETS
from tilewright.prove.checker.cells import VALUE
from tilewright.prove.checker.compare import prove
from tilewright.prove.checker.evaluate import evaluate
from tilewright.prove.checker.fields import as_integers
from tilewright.prove.checker.graph import Step, Value
from tilewright.prove.checker.names import Names
from verification.proved_graphs import of_litert

Array = np.ndarray


def integers(op: str, operands: list[Array], shape: tuple[int, ...], zero: int = 0, **attributes: Any) -> Array:
    """The integers that the rule of an operator makes of constants."""
    names, given = Names(5), [f"x{i}" for i in range(len(operands))]
    scale, least = np.float32(0.5), np.array(zero, np.int32)
    values = {
        n: Value(x.shape, x.dtype, x if x.dtype == bool else None, scale, least)
        for n, x in zip(given, operands, strict=True)
    } | {"y": Value(shape, np.dtype(np.int8), None, scale, least)}
    cells = {n: names.constants(x.astype(np.int64)) for n, x in zip(given, operands, strict=True)}
    (made,) = evaluate(names, Step(op, op, tuple(given), ("y",), attributes), values, cells, ())
    known, found = as_integers(made[..., VALUE])
    assert known.all()
    return found


@pytest.mark.parametrize(("op", "attributes"), [
    ("DepthToSpace", {"blocksize": 2}), ("DepthToSpace", {"blocksize": 3, "mode": "CRD"}),
    ("DepthToSpace", {"blocksize": 3, "mode": "DCR"}), ("SpaceToDepth", {"blocksize": 2}), ("Where", {}),
])  # fmt: skip
def test_elements_are_where_onnx_puts_them(op: str, attributes: dict[str, Any]) -> None:
    random = np.random.default_rng(2)
    operands = [random.integers(-128, 128, (2, 36, 4, 6)).astype(np.int8)]
    if op == "Where":
        operands = [random.integers(0, 2, (36, 1, 6)).astype(bool), *operands,
                    random.integers(-128, 128, (2, 1, 4, 6)).astype(np.int8)]  # fmt: skip
    node = helper.make_node(op, [f"x{i}" for i in range(len(operands))], ["y"], **attributes)
    model = model_of([node], {f"x{i}": x for i, x in enumerate(operands)}, ["y"], {})
    (wanted,) = ReferenceEvaluator(model).run(None, {f"x{i}": x for i, x in enumerate(operands)})
    assert np.array_equal(integers(op, operands, wanted.shape, **attributes), wanted)


@pytest.mark.parametrize("to_even", [False, True])
@pytest.mark.parametrize("ones", [(1, 1), (2, 8), (16, 4)])
def test_interpolation_rounds_once(ones: tuple[int, int], to_even: bool) -> None:
    random, zero, axes = np.random.default_rng(3), -7, []
    x = total = random.integers(-128, 128, (2, 3, 5, 4))
    for axis, (one, size) in enumerate(zip(ones, x.shape[2:], strict=True), 2):
        first, second = random.integers(0, size, (2, 9))
        shares = random.integers(0, one + 1, 9)
        weights = np.zeros((9, size), np.int64)
        np.add.at(weights, (np.arange(9), first), one - shares)
        np.add.at(weights, (np.arange(9), second), shares)
        total = np.moveaxis(np.tensordot(weights, total, (1, axis)), 0, axis)
        axes.append({"first": tuple(first), "second": tuple(second), "shares": tuple(shares), "one": one})
    whole = ones[0] * ones[1]
    wanted = np.rint((total - zero * whole) / whole) + zero if to_even else np.floor(total / whole + 0.5)
    found = integers("QInterpolate", [x], wanted.shape, zero, rows=axes[0], columns=axes[1], to_even=to_even)
    assert np.array_equal(found, wanted)


@pytest.mark.medium
@pytest.mark.parametrize("seed", [11, 58, 86, 104])
def test_graphs_of_litert(seed: int) -> None:
    """A mean that no machine computes, one of uint8 whose halves go away from 0, an interpolation, and DepthToSpace by
    a transposed convolution."""
    assert of_litert(seed).found == "proved"


def chosen_model(chosen: Array) -> bytes:
    """Elements of a convolution, or -1.5, before another one."""
    m = Model(np.int8, seed=4)
    x = m.requantized(m.op("Conv", m.input((1, 8, 6, 5), 0.05, 2), m.weights((16, 8, 1, 1))), 0.05, 5)
    y = m.op("Where", m.const(chosen, bool), x, m.const(np.float32(-1.5), np.float32))
    m.output(m.requantized(m.op("Conv", m.requantized(y, 0.05, 5), m.weights((8, 16, 1, 1))), 0.3, 4))
    return bytes(m.build().SerializeToString())


def test_elements_chosen_by_constants_are_proved() -> None:
    """A choice between convolutions is Adds of integers; another choice is another function."""
    chosen = np.random.default_rng(4).integers(0, 2, (1, 16, 6, 5)).astype(bool)
    graph, program = both(chosen_model(chosen), PRESETS["base"])
    assert not any(step.op == "Where" for steps in graph.work.values() for step in steps)  # on the NPU
    assert prove(graph, program, seed=1).proved
    chosen[0, 3, 2, 1] ^= True
    assert not prove(graph, both(chosen_model(chosen), PRESETS["base"])[1], seed=1).proved
