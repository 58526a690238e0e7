"""A graph that is drawn, node by node."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.compiler.graph.graph import QUANTIZED_OPS, Graph, Node, Quant, Tensor


class Case:
    """A graph under construction from a seeded generator."""

    def __init__(self, seed: int) -> None:
        self.few_outside = False
        self.rng = np.random.default_rng(seed)
        self.graph = Graph(f"case{seed}")

    def integer(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def quant(self, dtype: Any) -> Quant:
        info = np.iinfo(dtype)
        zero = self.integer(int(info.min), int(info.max))
        if self.chance(0.3):
            zero = 0 if dtype == np.int8 else 128
        return Quant.of(np.float32(np.exp(self.rng.uniform(-5, -2))), zero)

    def tensor(self, name: str, shape: tuple[int, ...], dtype: Any, quant: Quant | None = None) -> str:
        self.graph.add(Tensor(name, shape, np.dtype(dtype), None, quant or self.quant(dtype)))
        return name

    def dtype(self) -> Any:
        return np.uint8 if self.chance(0.4) else np.int8

    def input(self, shape: tuple[int, ...], dtype: Any) -> str:
        name = self.tensor(f"x{len(self.graph.inputs)}", shape, dtype)
        self.graph.inputs.append(name)
        return name

    def weights(self, shape: tuple[int, ...], channels: int, axis: int) -> str:
        if self.few_outside:
            return self._few_outside(shape)
        data = self.rng.integers(-128, 128, shape).astype(np.int8)
        if self.chance(0.3):
            data = np.clip(self.rng.normal(0, 20, shape), -127, 127).astype(np.int8)
        per_channel = channels > 1 and self.chance(0.6)
        n = channels if per_channel else 1
        # Scales that keep most results inside the output range.
        scale = np.exp(self.rng.uniform(-8, -5, n)).astype(np.float32)
        zero = self.rng.integers(-128, 128, n) if self.chance(0.15) else np.zeros(n, np.int64)
        quant = Quant.of(scale, zero, axis) if per_channel else Quant.of(scale[0], zero[0])
        return self.graph.constant("w", data, quant)

    def _few_outside(self, shape: tuple[int, ...]) -> str:
        """Weights as uint8 ones often are: without their zero point, few of them leave int8."""
        data = np.clip(self.rng.normal(0, 30, shape), -110, 110).astype(np.int8)
        flat = data.reshape(-1)
        flat[self.rng.integers(0, flat.size, self.integer(1, 6))] = -128 if self.chance(0.5) else 127
        zero = self.integer(1, 17) * (1 if self.chance(0.5) else -1)
        return self.graph.constant("w", data, Quant.of(np.float32(np.exp(self.rng.uniform(-8, -5))), zero))

    def bias(self, channels: int) -> list[str]:
        if self.chance(0.3):
            return []
        size = 1 << self.integer(4, 20)
        return [self.graph.constant("b", self.rng.integers(-size, size, channels).astype(np.int32))]

    def limits(self, dtype: Any) -> dict[str, int]:
        info = np.iinfo(dtype)
        if self.chance(0.6):
            return {"out_min": int(info.min), "out_max": int(info.max)}
        low = self.integer(int(info.min), int(info.max) - 1)
        return {"out_min": low, "out_max": self.integer(low + 1, int(info.max))}

    def finish(self, op: str, inputs: list[str], shape: tuple[int, ...], dtype: Any, **attrs: Any) -> str:
        name = self.tensor(f"{op}.{len(self.graph.nodes)}", shape, dtype, attrs.pop("quant", None))
        self.graph.nodes.append(Node.of(QUANTIZED_OPS[op](**attrs), inputs, [name], name))
        return name


def lut(case: Case, x: str) -> str:
    table = case.rng.integers(0, 256, 256).astype(np.uint8).tobytes()
    return case.finish("QLut", [x], case.graph.tensor(x).shape, case.dtype(), table=table)


def small_conv(case: Case, x: str, o: int, k: int, dtype: Any = None) -> str:
    """A convolution of group 1 with padding that keeps the size."""
    n, c, *size = case.graph.tensor(x).shape
    axes = len(size)
    dtype, w = dtype or case.dtype(), case.weights((o, c, *[k] * axes), o, 0)
    return case.finish(
        "QConv", [x, w, *case.bias(o)], (n, o, *size), dtype, kernel=[k] * axes, strides=[1] * axes,
        dilations=[1] * axes, pads=[k // 2] * 2 * axes, group=1, **case.limits(dtype),
    )  # fmt: skip


def move(case: Case, op: str, x: str, constants: list[list[int]], shapes: list[list[int]], **attrs: Any) -> list[str]:
    """Results of a data movement, of the operand's type and quantisation."""
    t = case.graph.tensor(x)
    names = [
        case.tensor(f"{op}.{len(case.graph.nodes)}.{i}", tuple(shape), t.dtype, t.quant)
        for i, shape in enumerate(shapes)
    ]
    inputs = [x, *(case.graph.constant("part", np.array(values, np.int64)) for values in constants)]
    case.graph.nodes.append(Node(op, inputs, names, attrs, names[0]))
    return names


def spatial(case: Case, size: tuple[int, ...], kernel_most: int) -> dict[str, Any]:
    rank = len(size)
    while True:
        kernel = [case.integer(1, kernel_most) for _ in size]
        strides = [case.integer(1, 3) for _ in size]
        dilations = [case.integer(1, 3) if case.chance(0.3) else 1 for _ in size]
        pads = [case.integer(0, k) for k in kernel] + [case.integer(0, k) for k in kernel]
        out = tuple(
            (size[i] + pads[i] + pads[rank + i] - (kernel[i] - 1) * dilations[i] - 1) // strides[i] + 1
            for i in range(rank)
        )
        if min(out) > 0:
            return {"kernel": kernel, "strides": strides, "dilations": dilations, "pads": pads, "out": out}
