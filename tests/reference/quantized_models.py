"""Small quantised ONNX models: one op, or a few, between DequantizeLinear and QuantizeLinear."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tilewright.checking.saturation import saturates


class Model:
    """Collects nodes and initialisers; `build` makes a checked ModelProto.

    Args:
        dtype: np.int8 or np.uint8 of the activations.
        seed: of weights and parameters.
    """

    def __init__(self, dtype: Any = np.int8, seed: int = 0, opset: int = 21) -> None:
        self.dtype = np.dtype(dtype)
        self.rng = np.random.default_rng(seed)
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[str] = []
        self.serial = 0

    def name(self, stem: str = "t") -> str:
        self.serial += 1
        return f"{stem}{self.serial}"

    def const(self, value: Any, dtype: Any = None) -> str:
        name = self.name("c")
        self.initializers.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def op(self, kind: str, *inputs: str, outputs: int = 1, domain: str = "", **attrs: Any) -> Any:
        names = [self.name(kind.lower()) for _ in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, domain=domain, **attrs))
        return names[0] if outputs == 1 else names

    def scale(self, low: float = 0.004, high: float = 0.1) -> float:
        return float(np.float32(np.exp(self.rng.uniform(np.log(low), np.log(high)))))

    def zero(self, dtype: Any = None) -> int:
        info = np.iinfo(dtype or self.dtype)
        return int(self.rng.integers(info.min, info.max + 1))

    def input(self, shape: Sequence[int], scale: float | None = None, zero: int | None = None) -> str:
        """A float graph input, quantised and dequantised; returns the float tensor behind."""
        name = self.name("x")
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)))
        return self.requantized(name, scale, zero)

    def quantized(self, x: str, scale: float | None = None, zero: int | None = None) -> str:
        s = self.const(self.scale() if scale is None else scale, np.float32)
        z = self.const(self.zero() if zero is None else zero, self.dtype)
        return self.op("QuantizeLinear", x, s, z)

    def requantized(self, x: str, scale: float | None = None, zero: int | None = None) -> str:
        q = self.quantized(x, scale, zero)
        node = self.nodes[-1]
        return self.op("DequantizeLinear", q, node.input[1], node.input[2])

    def weights(self, shape: Sequence[int], dtype: Any = np.int8, axis: int | None = None, zero: int = 0) -> str:
        """A dequantised constant; per channel along `axis` or per tensor."""
        info = np.iinfo(dtype)
        values = self.rng.integers(info.min + (info.min < 0), info.max + 1, size=tuple(shape))
        step = 2 if self.dtype == np.uint8 and info.min < 0 and saturates() else 1  # the same weights, coarser
        w = self.const(values // step, dtype)
        count = () if axis is None else (shape[axis],)
        s = self.const(step * np.exp(self.rng.uniform(-7, -4, size=count)), np.float32)
        z = self.const(np.full(count, zero), dtype)
        return self.op("DequantizeLinear", w, s, z, **({} if axis is None else {"axis": axis}))

    def bias(self, count: int, x: str, w: str) -> str:
        """A dequantised int32 constant with the scale sx * sw."""
        makers = {o: n for n in self.nodes for o in n.output}
        known = {i.name: numpy_helper.to_array(i) for i in self.initializers}
        sx, sw = known[makers[x].input[1]], known[makers[w].input[1]]
        s = np.asarray(sx * sw, np.float32)
        b = self.const(self.rng.integers(-20000, 20000, size=count), np.int32)
        z = self.const(np.zeros(s.shape), np.int32)
        return self.op("DequantizeLinear", b, self.const(s), z, **({"axis": 0} if s.ndim else {}))

    def output(self, x: str) -> None:
        self.outputs.append(x)

    def build(self, extra: Sequence[str] = ()) -> onnx.ModelProto:
        outputs = [onnx.ValueInfoProto(name=n) for n in (*self.outputs, *extra)]
        graph = helper.make_graph(self.nodes, "small", self.inputs, outputs, self.initializers)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        inferred = onnx.shape_inference.infer_shapes(model)
        types = {v.name: v for v in (*inferred.graph.value_info, *inferred.graph.output)}
        for out in model.graph.output:
            known = types.get(out.name)
            if known is not None and known.type.tensor_type.elem_type:
                out.CopyFrom(known)
            else:
                out.CopyFrom(helper.make_tensor_value_info(out.name, TensorProto.FLOAT, None))
        return model

    def feeds(self, spread: float = 1.0) -> dict[str, np.ndarray]:
        """Normal inputs scaled so that the quantised range is used."""
        makers = {n.input[0]: n for n in self.nodes if n.op_type == "QuantizeLinear"}
        known = {i.name: numpy_helper.to_array(i) for i in self.initializers}
        found = {}
        for value in self.inputs:
            shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
            node = makers.get(value.name)
            info = np.iinfo(self.dtype)
            if node is None:
                found[value.name] = self.rng.normal(size=shape).astype(np.float32)
                continue
            q = self.rng.integers(info.min, info.max + 1, size=shape)
            s, z = known[node.input[1]], known[node.input[2]]
            found[value.name] = ((q - int(z)) * s * spread).astype(np.float32)
        return found
