"""TFLite operators between convolutions: the NPU gives LiteRT's bytes in one step."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tilewright as tw
from tests.common.tflite_models import Model, Op, T
from tilewright.isa.program import CpuStep, NpuStep

H, W, C = 6, 7, 24


class _Network:
    def __init__(self) -> None:
        self.rng = np.random.default_rng(3)
        self.tensors = [T("x", (1, H, W, 8), "int8", 0.05, 3)]
        self.ops: list[Op] = []

    def tensor(self, shape: tuple[int, ...], scale: float, zero: int) -> str:
        self.tensors.append(T(f"t{len(self.tensors)}", shape, "int8", scale, zero))
        return self.tensors[-1].name

    def constant(self, data: np.ndarray, dtype: str, scale: float | None = None) -> str:
        self.tensors.append(T(f"c{len(self.tensors)}", data.shape, dtype, scale, 0, data=data))
        return self.tensors[-1].name

    def shape(self, name: str) -> tuple[int, ...]:
        return next(tuple(t.shape) for t in self.tensors if t.name == name)

    def conv(self, x: str, outputs: int, scale: float, zero: int) -> str:
        n, h, w, c = self.shape(x)
        weights = self.constant(self.rng.integers(-127, 128, (outputs, 1, 1, c)), "int8", 0.01)
        sx = next(t.scale for t in self.tensors if t.name == x)
        bias = self.constant(self.rng.integers(-500, 500, outputs), "int32", float(np.float32(sx) * np.float32(0.01)))
        y = self.tensor((n, h, w, outputs), scale, zero)
        self.ops.append(Op("CONV_2D", [x, weights, bias], [y], ("Conv2DOptions", {"StrideH": 1, "StrideW": 1}), 3))
        return y

    def reduce(self, op: str, x: str, axes: list[int], scale: float, zero: int) -> str:
        at = self.constant(np.array(axes), "int32")
        y = self.tensor(tuple(1 if a in axes else n for a, n in enumerate(self.shape(x))), scale, zero)
        self.ops.append(Op(op, [x, at], [y], ("ReducerOptions", {"KeepDims": True}), 2))
        return y

    def pair(self, op: str, a: str, b: str, scale: float, zero: int) -> str:
        y = self.tensor(self.shape(a), scale, zero)
        options = ("MulOptions", {}) if op == "MUL" else ("MaximumMinimumOptions", {})
        self.ops.append(Op(op, [a, b], [y], options, 2))
        return y


def mean(net: _Network, x: str, axes: list[int]) -> str:
    return net.reduce("MEAN", x, axes, 0.2937, -4)


def extremum(net: _Network, x: str, op: str) -> str:
    return net.pair(op, x, net.conv("x", C, 0.3, 5), 0.3, 5)


def gate(net: _Network, x: str) -> str:
    return net.pair("MUL", x, net.conv(x, 1, 0.02, -3), 0.2, 7)


CASES: dict[str, Callable[[_Network, str], str]] = {
    **{f"mean {a}": lambda net, x, a=a: mean(net, x, a) for a in ([3], [1], [2], [1, 2], [2, 3], [1, 2, 3])},
    **{op: lambda net, x, op=op: extremum(net, x, op) for op in ("MAXIMUM", "MINIMUM")},
    **{
        f"{op} {a}": lambda net, x, op=op, a=a: net.reduce(op, x, a, 0.3, 5)
        for op in ("REDUCE_MAX", "REDUCE_MIN")
        for a in ([3], [1], [1, 2])
    },
    "gate": gate,
}


@pytest.mark.medium
@pytest.mark.parametrize("name", CASES)
def test_equals_litert(name: str) -> None:
    net = _Network()
    y = net.conv(CASES[name](net, net.conv("x", C, 0.3, 5)), 8, 0.1, 1)
    model = Model(net.tensors, net.ops, ["x"], [y]).build()
    steps = tw.compile(model, "base").steps
    assert sum(isinstance(step, NpuStep) for step in steps) == 1
    assert {o.split()[0] for s in steps if isinstance(s, CpuStep) for o in s.ops} <= {
        "Relayout",
        "Transpose",
        "Reshape",
    }
    x = net.rng.integers(-128, 128, (1, H, W, 8)).astype(np.int8)
    report = tw.check(model, {"x": x}, config="base", keep="all", cache=False)
    assert report.ok and {row.status for row in report.rows} == {"equal"}, report.summary()
    assert len(report.rows) >= 4
