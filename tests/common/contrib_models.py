"""Many nodes of com.microsoft in one model, compared with onnxruntime in one compile and one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper

import tilewright as tw
from tests.common import onnx_models
from tilewright.compiler.errors import CompileError
from tilewright.compiler.importer.onnx import import_onnx


@dataclass
class Fixed:
    """An operand that is a constant of the model, any other array being an input."""

    value: Any


@dataclass
class Nodes:
    """Nodes beside each other; none reads what another one makes.

    Attributes:
        labels: what each output is of, for messages.
    """

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    feeds: dict[str, np.ndarray] = field(default_factory=dict)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    types: dict[str, Any] = field(default_factory=dict)

    def add(
        self, op: str, operands: Sequence[Any], outputs: Sequence[int] = (0,), label: str = "", **attrs: Any
    ) -> None:
        """A node with the outputs of these numbers; operands are arrays, `Fixed` ones, or None where left out."""
        number, names = len(self.nodes), []
        for k, operand in enumerate(operands):
            names.append("" if operand is None else f"n{number}_{k}")
            if isinstance(operand, Fixed):
                self.constants[names[-1]] = np.asarray(operand.value)
            elif operand is not None:
                self.feeds[names[-1]] = np.asarray(operand)
        while not names[-1]:
            names.pop()
        made = [f"y{number}_{k}" if k in outputs else "" for k in range(max(outputs) + 1)]
        self.nodes.append(helper.make_node(op, names, made, name=f"node{number}", domain="com.microsoft", **attrs))
        first = operands[0].value if isinstance(operands[0], Fixed) else operands[0]
        for name in filter(None, made):
            self.labels[name] = f"{op} {label} {attrs}"
            # onnxruntime infers no type of the fourth output of attention
            self.types[name] = (helper.np_dtype_to_tensor_dtype(first.dtype), None) if name.endswith("_3") else None

    def model(self) -> onnx.ModelProto:
        return onnx_models.model_of(self.nodes, self.feeds, self.types, self.constants)

    def compare(self, relative: float = 2e-5) -> None:
        """Compiles and runs the model, and asserts that every output is onnxruntime's but for rounding."""
        model = self.model()
        expected = onnx_models.run(model, self.feeds)
        with tw.Device("functional") as device:
            got = device.run(tw.compile(model, "tiny", cache=False), self.feeds)
        for name, want in expected.items():
            assert got[name].dtype == want.dtype and got[name].shape == want.shape, self.labels[name]
            limit = relative * max(float(np.max(np.abs(want.astype(np.float64)), initial=0)), 1e-3)
            np.testing.assert_allclose(
                got[name].astype(np.float64), want.astype(np.float64), rtol=0, atol=limit, err_msg=self.labels[name]
            )


def refusal(op: str, operands: Sequence[Any], outputs: Sequence[int] = (0,), **attrs: Any) -> str:
    """The one line a node is refused with."""
    nodes = Nodes()
    nodes.add(op, operands, outputs, **attrs)
    try:
        import_onnx(nodes.model())
    except CompileError as error:
        assert "\n" not in str(error)
        return str(error)
    raise AssertionError(f"{op} {attrs} was not refused")
