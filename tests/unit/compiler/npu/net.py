"""Small graphs of int8 tensors for tests of the NPU back end."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.network.layer_cases import Case
from tilewright.compiler.graph.graph import Graph, Node, Quant


class Net(Case):
    """Builds a graph of int8 tensors, node after node; each method returns the name of its output."""

    def __init__(self) -> None:
        super().__init__(seed=0)

    def quant(self, dtype: Any) -> Quant:
        """Returns the quantisation of a tensor: scale 0.05 and zero point 3."""
        return Quant.of(np.float32(0.05), 3)

    def plane(self, channels: int, size: int) -> str:
        """Adds a graph input [1, channels, size, size]."""
        return self.input((1, channels, size, size), np.int8)

    def conv(self, x: str, outputs: int, kernel: int = 1, stride: int = 1, group: int = 1) -> str:
        n, c, h, w = self.graph.tensor(x).shape
        weights = self.weights((outputs, c // group, kernel, kernel), 1, 0)
        out = tuple((size + 2 * (kernel // 2) - kernel) // stride + 1 for size in (h, w))
        return self.finish(
            "QConv", [x, weights], (n, outputs, *out), np.int8, kernel=[kernel] * 2, strides=[stride] * 2,
            dilations=[1, 1], pads=[kernel // 2] * 4, group=group, out_min=-128, out_max=127,
        )  # fmt: skip

    def add(self, a: str, b: str) -> str:
        return self.finish("QAdd", [a, b], self.graph.tensor(a).shape, np.int8, out_min=-128, out_max=127)

    def table(self, x: str) -> str:
        table = np.arange(256, dtype=np.uint8)[::-1].tobytes()
        return self.finish("QLut", [x], self.graph.tensor(x).shape, np.int8, table=table)

    def concat(self, axis: int, *parts: str) -> str:
        shape = list(self.graph.tensor(parts[0]).shape)
        shape[axis] = sum(self.graph.tensor(part).shape[axis] for part in parts)
        return self.finish("QConcat", list(parts), tuple(shape), np.int8, axis=axis, tables=(None,) * len(parts))

    def product(self, a: str, columns: int | str) -> str:
        """Adds a matrix product with constant weights [k, columns], or with the tensor named `columns`."""
        *rows, k = self.graph.tensor(a).shape
        b = self.constant((k, columns)) if isinstance(columns, int) else columns
        shape = (*rows, self.graph.tensor(b).shape[-1])
        return self.finish("QMatMul", [a, b], shape, np.int8, out_min=-128, out_max=127)

    def softmax(self, x: str) -> str:
        """Adds a QSoftmax, which the NPU of no preset for an FPGA runs."""
        return self.finish("QSoftmax", [x], self.graph.tensor(x).shape, np.int8)

    def constant(self, shape: tuple[int, ...]) -> str:
        """Adds an int8 constant of ones."""
        return self.graph.constant("c", np.ones(shape, np.int8), self.quant(np.int8))

    def reshape(self, x: str, *shape: int) -> str:
        return self.move("Reshape", [x, self.graph.constant("shape", np.array(shape, np.int64))], shape, {})

    def transpose(self, x: str, *perm: int) -> str:
        shape = tuple(self.graph.tensor(x).shape[axis] for axis in perm)
        return self.move("Transpose", [x], shape, {"perm": list(perm)})

    def move(self, op: str, inputs: list[str], shape: tuple[int, ...], attrs: dict[str, Any]) -> str:
        name = self.tensor(f"{op}.{len(self.graph.nodes)}", shape, np.int8, self.graph.tensor(inputs[0]).quant)
        self.graph.nodes.append(Node(op, inputs, [name], attrs, name))
        return name

    def done(self, *outputs: str) -> Graph:
        """Adds graph outputs, and returns the verified graph."""
        self.graph.outputs += outputs
        self.graph.verify("the test")
        return self.graph
