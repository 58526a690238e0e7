"""One operator at a time against LiteRT, byte for byte."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tilewright as tw
from tests.common.tflite_models import Model, Op, T
from tests.unit.compiler.importer.tflite import tflite_networks as networks
from tests.unit.compiler.importer.tflite.tflite_ops import CASES, MOVES, move_case
from tilewright.checking.litert_reference import LiteRtReference


def compare(data: bytes, r: np.random.Generator) -> None:
    program = tw.compile(data, "tiny")
    inputs = {}
    for t in program.inputs:
        if t.dtype == "float32":
            inputs[t.name] = r.normal(0, 1, t.shape).astype(np.float32)
            continue
        info, size = np.iinfo(t.dtype), int(np.prod(t.shape))
        values = r.integers(info.min, info.max, size, endpoint=True) if size != 256 else np.arange(256) + info.min
        inputs[t.name] = values.astype(t.dtype).reshape(t.shape)
    expected = LiteRtReference(data).run(inputs)
    with tw.Device("functional") as device:
        got = device.run(program, inputs)
    for name, value in expected.items():
        if value.dtype == np.float32:
            np.testing.assert_allclose(got[name], value, rtol=1e-5, atol=1e-5)
        else:
            np.testing.assert_array_equal(got[name], value)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("op", CASES)
def test_arithmetic(op: str, dtype: str) -> None:
    for seed in range(3):
        r = np.random.default_rng([seed, len(op)])
        compare(CASES[op](op, r, dtype), r)


@pytest.mark.parametrize("case", MOVES, ids=lambda c: c[0])
def test_movement(case: tuple) -> None:
    r = np.random.default_rng(0)
    compare(move_case(case, r), r)


@pytest.mark.parametrize("dtype", ["int8", "float32"])
@pytest.mark.parametrize("network", [networks.lstm, networks.svdf])
def test_recurrent(network: Callable[[np.random.Generator, str], bytes], dtype: str) -> None:
    for seed in range(2):
        r = np.random.default_rng(seed)
        compare(network(r, dtype), r)


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_detection_postprocess(dtype: str) -> None:
    for seed in (0, 1):
        r = np.random.default_rng(seed)
        compare(networks.detection(r, dtype), r)


def test_float_network() -> None:
    r = np.random.default_rng(0)
    compare(networks.float_network(r, "float32"), r)


def test_arg_max_of_bytes() -> None:
    r = np.random.default_rng(0)
    tensors = [
        T("x", (1, 6, 5, 7), "uint8", 0.1, 3),
        T("axis", (), "int32", data=np.array(3)),
        T("y", (1, 6, 5), "int64"),
    ]
    op = Op("ARG_MAX", ["x", "axis"], ["y"], ("ArgMaxOptions", {"OutputType": 4}), 2)
    compare(Model(tensors, [op], ["x"], ["y"]).build(), r)


def test_computed_output_shape_says_why_it_may_be_a_step_off() -> None:
    """LiteRT's builtin kernel rounds twice there: the machine's rule is within a step, in less than 0.1 %."""
    data = networks.computed_shape(np.random.default_rng(0), "int8")
    report = tw.check(data, keep="all")
    assert report.ok, report.summary()
    (row,) = (r for r in report.rows if r.name == "y.planes")
    assert "rounds twice" in row.reason and row.where == "npu"
    assert row.free_max <= 1 and row.free_differences < 0.001 * row.elements
