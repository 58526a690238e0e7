"""Reductions, normalisation, pooling against onnxruntime."""

import numpy as np
import pytest

from tests.unit.compiler.cpu.support import check_op

R = np.random.default_rng(2)


def normal(*shape: int) -> np.ndarray:
    return R.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("op", ["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp"])
@pytest.mark.parametrize("axes", [None, (0,), (-1,), (1, 2), (0, 3)])
def test_reduce(op: str, axes: tuple[int, ...] | None) -> None:
    x = normal(3, 4, 5, 33)
    if op == "LogSum":
        x = np.abs(x)
    inputs = [x] if axes is None else [x, np.array(axes, np.int64)]
    check_op(f"Reduce{op}", inputs, consts=(1,) if axes else (), opset=18)
    check_op(f"Reduce{op}", inputs, consts=(1,) if axes else (), opset=18, keepdims=0)


def test_reduce_integers() -> None:
    x = R.integers(-9, 9, (4, 5, 6)).astype(np.int32)
    for op in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceMean"):
        check_op(op, [x, np.array([1])], consts=(1,), opset=18)
    check_op("ReduceSum", [x], axes=[1], opset=11)


@pytest.mark.medium
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
def test_arg(op: str, last: int) -> None:
    x = R.integers(-4, 4, (5, 6, 7)).astype(np.float32)
    for axis in (0, 1, -1):
        check_op(op, [x], axis=axis, keepdims=axis % 2, select_last_index=last)


def test_top_k() -> None:
    x = R.integers(-20, 20, (5, 33)).astype(np.float32)
    for k in (1, 5, 33):
        check_op("TopK", [x, np.array([k])], consts=(1,), outputs=2)
    check_op("TopK", [x, np.array([3])], consts=(1,), outputs=2, axis=0, largest=0)


def test_cum_sum() -> None:
    x = normal(3, 4, 5)
    for axis in (0, 1, 2):
        for exclusive in (0, 1):
            check_op("CumSum", [x, np.int64(axis)], consts=(1,), exclusive=exclusive, reverse=axis % 2)


@pytest.mark.medium
def test_hardmax() -> None:
    x = R.integers(-4, 4, (5, 6, 7)).astype(np.float32)
    for axis in (0, 1, -1):
        check_op("Hardmax", [x], axis=axis, opset=13)
        check_op("Hardmax", [x], axis=axis, opset=11)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax(op: str, opset: int, axis: int) -> None:
    check_op(op, [normal(3, 5, 37) * 5], opset=opset, axis=axis)


@pytest.mark.medium
def test_normalisations() -> None:
    x = normal(2, 6, 5, 7)
    c = normal(6)
    check_op("LayerNormalization", [x, normal(7), normal(7)])
    check_op("LayerNormalization", [x, normal(5, 7)], axis=2)
    check_op("LayerNormalization", [x, normal(7), normal(7)], outputs=3)
    check_op("InstanceNormalization", [x, c, normal(6)], epsilon=1e-3)
    check_op("GroupNormalization", [x, c, normal(6)], num_groups=3)
    check_op("BatchNormalization", [x, c, normal(6), normal(6), np.abs(normal(6))])
    check_op("LpNormalization", [x], axis=1, p=1)
    check_op("LpNormalization", [x], axis=-1, p=2)
    check_op("LRN", [x], size=3, alpha=0.1, beta=0.6, bias=1.5)
    check_op("MeanVarianceNormalization", [x], rtol=3e-5)


@pytest.mark.medium
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(
    "attrs",
    [
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
        {"kernel_shape": [2, 3], "pads": [1, 0, 0, 2], "strides": [1, 2]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
        {"kernel_shape": [2, 2], "dilations": [2, 3]},
        {"kernel_shape": [3, 2], "auto_pad": "SAME_LOWER", "strides": [2, 1]},
        {"kernel_shape": [9, 8], "pads": [4, 4, 4, 4]},
    ],
)
def test_pool(op: str, attrs: dict) -> None:
    x = normal(2, 3, 11, 13)
    check_op(op, [x], **attrs)
    if op == "AveragePool":
        check_op(op, [x], count_include_pad=1, **attrs)
    else:
        check_op(op, [x], outputs=2, **attrs)
        check_op(op, [(x * 30).astype(np.int8)], **attrs)


@pytest.mark.medium
def test_pool_rest() -> None:
    check_op("MaxPool", [normal(2, 3, 15)], kernel_shape=[4], strides=[3])
    check_op("AveragePool", [normal(1, 2, 5, 6, 7)], kernel_shape=[2, 3, 3], pads=[0, 1, 1, 0, 1, 1])
    check_op("LpPool", [normal(1, 2, 8, 9)], kernel_shape=[3, 2], p=3)
    for op in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
        check_op(op, [normal(2, 5, 7, 8)])
