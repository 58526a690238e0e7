"""Cases of `tilewright bench --cpu`: the zoo's float networks and small models, some with numpy's form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tilewright import zoo

LARGE = (64, 256, 1024)  # 64 MiB of float32: more than second-level caches hold
Nodes = Sequence[tuple[str, Sequence[str], dict[str, object]]]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One model to time.

    Attributes:
        name: what it is.
        group: networks, fused, reduction, movement, matmul, conv, int8 or recurrent.
        model: makes the ONNX model.
        limit: the ratio to onnxruntime's time that this kind has to stay below, None where there is none.
        numpy: the same in numpy, of the inputs in the model's order.
    """

    name: str
    group: str
    model: Callable[[], onnx.ModelProto]
    limit: float | None = None
    numpy: Callable[..., object] | None = None


def _model(
    nodes: Nodes,
    inputs: dict[str, tuple[Sequence[int], type]],
    constants: dict[str, np.ndarray] | None = None,
    opset: int = 20,
    output: Sequence[int] | None = None,
) -> onnx.ModelProto:
    """A model of a chain of nodes; node k writes `t<k>`. The last one is the output, of shape `output` where onnx
    cannot infer it."""
    made = [
        helper.make_node(op, list(names), [f"t{k}"], name=f"n{k}", **attrs)
        for k, (op, names, attrs) in enumerate(nodes)
    ]
    graph = helper.make_graph(
        made,
        "case",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(np.dtype(t)), s)
            for n, (s, t) in inputs.items()
        ],
        [
            onnx.ValueInfoProto(name=made[-1].output[0])
            if output is None
            else helper.make_tensor_value_info(made[-1].output[0], onnx.TensorProto.FLOAT, output)
        ],
        [numpy_helper.from_array(np.ascontiguousarray(a), n) for n, a in (constants or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return onnx.shape_inference.infer_shapes(model, strict_mode=True)


def _unary(op: str, shape: Sequence[int] = LARGE, **attrs: object) -> Callable[[], onnx.ModelProto]:
    return lambda: _model([(op, ["x"], attrs)], {"x": (shape, np.float32)})


def _random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _layer_norm() -> onnx.ModelProto:
    n = LARGE[-1]
    constants = {"scale": _random(n), "bias": _random(n, seed=1)}
    return _model([("LayerNormalization", ["x", "scale", "bias"], {"axis": -1})], {"x": (LARGE, np.float32)}, constants)


def _channel_norm(op: str, **attrs: object) -> Callable[[], onnx.ModelProto]:
    shape = (4, 64, 224, 224)
    constants = {"scale": _random(64), "bias": _random(64, seed=1)}
    return lambda: _model([(op, ["x", "scale", "bias"], attrs)], {"x": (shape, np.float32)}, constants, 21, shape)


def _erf_gelu() -> onnx.ModelProto:
    constants = {n: np.array(v, np.float32) for n, v in (("root", np.sqrt(2)), ("one", 1), ("half", 0.5))}
    nodes: Nodes = [("Div", ["x", "root"], {}), ("Erf", ["t0"], {}), ("Add", ["t1", "one"], {}),
                    ("Mul", ["x", "t2"], {}), ("Mul", ["t3", "half"], {})]  # fmt: skip
    return _model(nodes, {"x": (LARGE, np.float32)}, constants)


def _hard_swish() -> onnx.ModelProto:
    constants = {n: np.array(v, np.float32) for n, v in (("three", 3), ("zero", 0), ("six", 6))}
    nodes: Nodes = [("Add", ["x", "three"], {}), ("Clip", ["t0", "zero", "six"], {}), ("Mul", ["x", "t1"], {}),
             ("Div", ["t2", "six"], {})]  # fmt: skip
    return _model(nodes, {"x": (LARGE, np.float32)}, constants)


def _chain() -> onnx.ModelProto:
    constants = {"a": np.array(1.5, np.float32), "b": np.array(-0.25, np.float32)}
    nodes: Nodes = [("Mul", ["x", "a"], {}), ("Add", ["t0", "y"], {}), ("Relu", ["t1"], {}), ("Sub", ["t2", "x"], {}),
             ("Abs", ["t3"], {}), ("Add", ["t4", "b"], {})]  # fmt: skip
    return _model(nodes, {"x": (LARGE, np.float32), "y": (LARGE, np.float32)}, constants)


def _reduce(op: str, axes: Sequence[int]) -> Callable[[], onnx.ModelProto]:
    constants = {"axes": np.array(axes, np.int64)}
    return lambda: _model([(op, ["x", "axes"], {"keepdims": 0})], {"x": (LARGE, np.float32)}, constants)


def _matmul(m: int, k: int, n: int, constant: bool) -> Callable[[], onnx.ModelProto]:
    def make() -> onnx.ModelProto:
        inputs: dict[str, tuple[Sequence[int], type]] = {"a": ((m, k), np.float32)}
        if not constant:
            inputs["b"] = ((k, n), np.float32)
        return _model([("MatMul", ["a", "b"], {})], inputs, {"b": _random(k, n)} if constant else {})

    return make


def _conv(
    shape: Sequence[int], channels: int, kernel: int, stride: int = 1, groups: int = 1
) -> Callable[[], onnx.ModelProto]:
    def make() -> onnx.ModelProto:
        weights = _random(channels, shape[1] // groups, kernel, kernel) * np.float32(0.05)
        constants = {"w": weights, "b": _random(channels, seed=1)}
        attrs = {"pads": [kernel // 2] * 4, "strides": [stride] * 2, "group": groups}
        return _model([("Conv", ["x", "w", "b"], attrs), ("Relu", ["t0"], {})], {"x": (shape, np.float32)}, constants)

    return make


def _conv_transpose(shape: Sequence[int], channels: int, kernel: int) -> Callable[[], onnx.ModelProto]:
    """A transposed convolution whose strides are those of its kernel."""

    def make() -> onnx.ModelProto:
        constants = {"w": _random(shape[1], channels, kernel, kernel) * np.float32(0.05)}
        nodes: Nodes = [("ConvTranspose", ["x", "w"], {"strides": [kernel] * 2})]
        return _model(nodes, {"x": (shape, np.float32)}, constants)

    return make


def _resize(shape: Sequence[int], factor: float, quantised: bool = False) -> Callable[[], onnx.ModelProto]:
    """Linear Resize of planes, of floats or between quantisers."""

    def make() -> onnx.ModelProto:
        constants = {"scales": np.array([1, 1, factor, factor], np.float32)}
        attrs: dict[str, object] = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
        if not quantised:
            return _model([("Resize", ["x", "", "scales"], attrs)], {"x": (shape, np.float32)}, constants)
        constants |= {"s": np.array(0.03, np.float32), "z": np.array(3, np.int8)}
        nodes: Nodes = [("DequantizeLinear", ["x", "s", "z"], {}), ("Resize", ["t0", "", "scales"], attrs),
                        ("QuantizeLinear", ["t1", "s", "z"], {})]  # fmt: skip
        return _model(nodes, {"x": (shape, np.int8)}, constants)

    return make


def _integers(low: int, high: int, dtype: type, *shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(low, high, shape).astype(dtype)


def _qlinear_conv(shape: Sequence[int], channels: int, kernel: int, groups: int = 1) -> Callable[[], onnx.ModelProto]:
    def make() -> onnx.ModelProto:
        constants: dict[str, np.ndarray] = {
            "xs": np.array(0.02, np.float32), "xz": np.array(128, np.uint8),
            "w": _integers(-127, 128, np.int8, channels, shape[1] // groups, kernel, kernel),
            "ws": np.full(channels, 0.001, np.float32), "wz": np.zeros(channels, np.int8),
            "ys": np.array(0.05, np.float32), "yz": np.array(120, np.uint8),
        }  # fmt: skip
        names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"]
        attrs = {"pads": [kernel // 2] * 4, "group": groups}
        return _model([("QLinearConv", names, attrs)], {"x": (shape, np.uint8)}, constants)

    return make


def _conv_integer() -> onnx.ModelProto:
    constants = {"w": _integers(-127, 128, np.int8, 128, 128, 3, 3), "xz": np.array(128, np.uint8)}
    return _model(
        [("ConvInteger", ["x", "w", "xz"], {"pads": [1] * 4})], {"x": ((1, 128, 28, 28), np.uint8)}, constants
    )


def _matmul_integer(m: int, k: int, n: int) -> Callable[[], onnx.ModelProto]:
    constants = {"b": _integers(-127, 128, np.int8, k, n), "z": np.array(128, np.uint8)}
    return lambda: _model([("MatMulInteger", ["a", "b", "z"], {})], {"a": ((m, k), np.uint8)}, constants)


def _recurrent(op: str, steps: int, batch: int, size: int, both: bool = False) -> Callable[[], onnx.ModelProto]:
    """A recurrent layer with `size` inputs and units."""

    def make() -> onnx.ModelProto:
        directions, rows = 1 + both, {"RNN": 1, "GRU": 3, "LSTM": 4}[op] * size
        shapes = {"w": (directions, rows, size), "r": (directions, rows, size), "b": (directions, 2 * rows)}
        constants = {n: _random(*s) / np.float32(2 * np.sqrt(size)) for n, s in shapes.items()}
        attrs: dict[str, object] = {"hidden_size": size, "direction": "bidirectional" if both else "forward"}
        inputs: dict[str, tuple[Sequence[int], type]] = {"x": ((steps, batch, size), np.float32)}
        return _model([(op, ["x", *shapes], attrs)], inputs, constants, 14, (steps, directions, batch, size))

    return make


def _dynamic_lstm(steps: int, size: int) -> Callable[[], onnx.ModelProto]:
    """onnxruntime's LSTM with int8 weights and activations quantised while it runs: `size` inputs and units."""

    def make() -> onnx.ModelProto:
        constants = {n: _integers(-127, 128, np.int8, 1, size, 4 * size) for n in ("w", "r")}
        constants |= {n: np.full(1, 0.002 / np.sqrt(size), np.float32) for n in ("ws", "rs")}
        constants |= {n: np.zeros(1, np.int8) for n in ("wz", "rz")}
        names = ["x", "w", "r", "", "", "", "", "", "ws", "wz", "rs", "rz"]
        node = helper.make_node("DynamicQuantizeLSTM", names, ["y"], domain="com.microsoft", hidden_size=size)
        kind = onnx.TensorProto.FLOAT
        x, y = (helper.make_tensor_value_info(n, kind, s) for n, s in (("x", (steps, 1, size)), ("y", None)))
        graph = helper.make_graph(
            [node], "case", [x], [y], [numpy_helper.from_array(a, n) for n, a in constants.items()]
        )
        opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    return make


def _network(name: str, **parameters: bool) -> Callable[[], onnx.ModelProto]:
    def make() -> onnx.ModelProto:
        return zoo.build(name, cache=True, **parameters)

    return make


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


IMAGE = (1, 64, 512, 512)

CASES: tuple[Case, ...] = (
    Case(name="ResNet-18 224", group="networks", model=_network("resnet18", batch_norm=True), limit=1.5),
    Case(name="MobileNetV2 224", group="networks", model=_network("mobilenet_v2", batch_norm=True), limit=1.5),
    Case(name="transformer, 4 layers of 192", group="networks", model=_network("transformer"), limit=1.5),
    Case(name="x*a + y, Relu, - x, Abs, + b", group="fused", model=_chain, limit=1.0,
         numpy=lambda x, y: np.abs(np.maximum(x * np.float32(1.5) + y, 0) - x) - np.float32(0.25)),
    Case(name="GELU by Erf", group="fused", model=_erf_gelu, limit=1.0),
    Case(name="GELU by Tanh", group="fused", model=_unary("Gelu", approximate="tanh"), limit=1.0),
    Case(name="HardSwish, decomposed", group="fused", model=_hard_swish, limit=1.0,
         numpy=lambda x: x * np.clip(x + np.float32(3), 0, 6) / np.float32(6)),
    Case(name="HardSwish", group="fused", model=_unary("HardSwish"), limit=1.0),
    Case(name="Exp", group="fused", model=_unary("Exp"), limit=1.0, numpy=np.exp),
    Case(name="Tanh", group="fused", model=_unary("Tanh"), limit=1.0, numpy=np.tanh),
    Case(name="Erf", group="fused", model=_unary("Erf"), limit=1.0),
    Case(name="Sigmoid", group="fused", model=_unary("Sigmoid"), limit=1.0),
    Case(name="Softmax, rows of 1024", group="fused", model=_unary("Softmax", axis=-1), limit=1.0, numpy=_softmax),
    Case(name="Softmax, rows of 197", group="fused", model=_unary("Softmax", (64, 1024, 197), axis=-1), limit=1.0),
    Case(name="Softmax over axis 1", group="fused", model=_unary("Softmax", (16, 256, 64, 64), axis=1), limit=1.0),
    Case(name="LogSoftmax, rows of 1024", group="fused", model=_unary("LogSoftmax", axis=-1), limit=1.0),
    Case(name="LayerNorm, rows of 1024", group="fused", model=_layer_norm, limit=1.0),
    Case(name="InstanceNorm 64x224x224", group="fused", model=_channel_norm("InstanceNormalization"), limit=1.0),
    Case(name="GroupNorm, 8 groups", group="fused", model=_channel_norm("GroupNormalization", num_groups=8), limit=1.0),
    Case(name="ReduceMean, last axis", group="reduction", model=_reduce("ReduceMean", [2]), limit=1.0,
         numpy=lambda x: x.mean(2)),
    Case(name="ReduceMean, middle axis", group="reduction", model=_reduce("ReduceMean", [1]), limit=1.0,
         numpy=lambda x: x.mean(1)),
    Case(name="ReduceMean, first axis", group="reduction", model=_reduce("ReduceMean", [0]), limit=1.0,
         numpy=lambda x: x.mean(0)),
    Case(name="ReduceMax, last axis", group="reduction", model=_reduce("ReduceMax", [2]), limit=1.0,
         numpy=lambda x: x.max(2)),
    Case(name="ReduceSum, all", group="reduction", model=_reduce("ReduceSum", [0, 1, 2]), limit=1.0,
         numpy=lambda x: x.sum()),
    Case(name="ReduceL2, last axis", group="reduction", model=_reduce("ReduceL2", [2]), limit=1.0),
    Case(name="Transpose to NHWC", group="movement", model=_unary("Transpose", IMAGE, perm=[0, 2, 3, 1]), limit=1.0,
         numpy=lambda x: np.ascontiguousarray(x.transpose(0, 2, 3, 1))),
    Case(name="Transpose to NCHW", group="movement", model=_unary("Transpose", (1, 512, 512, 64), perm=[0, 3, 1, 2]),
         limit=1.0, numpy=lambda x: np.ascontiguousarray(x.transpose(0, 3, 1, 2))),
    Case(name="Transpose 4096x4096", group="movement", model=_unary("Transpose", (4096, 4096), perm=[1, 0]), limit=1.0,
         numpy=lambda x: np.ascontiguousarray(x.T)),
    Case(name="Transpose heads 0213", group="movement",
         model=_unary("Transpose", (16, 256, 16, 64), perm=[0, 2, 1, 3]), limit=1.0,
         numpy=lambda x: np.ascontiguousarray(x.transpose(0, 2, 1, 3))),
    Case(name="Resize linear 2 32x64x64", group="movement", model=_resize((1, 32, 64, 64), 2), limit=1.0),
    Case(name="Resize linear 2 256x16x16 int8", group="movement", model=_resize((1, 256, 16, 16), 2, True), limit=1.0),
    Case(name="MatMul 512^3", group="matmul", model=_matmul(512, 512, 512, False), limit=1.5, numpy=np.matmul),
    Case(name="MatMul 1024^3", group="matmul", model=_matmul(1024, 1024, 1024, False), limit=1.5, numpy=np.matmul),
    Case(name="MatMul 197x768x3072 const B", group="matmul", model=_matmul(197, 768, 3072, True), limit=1.5),
    Case(name="MatMul 1x2048x1000 const B", group="matmul", model=_matmul(1, 2048, 1000, True), limit=1.5),
    Case(name="Conv 3x3 64 56x56", group="conv", model=_conv((1, 64, 56, 56), 64, 3), limit=1.5),
    Case(name="Conv 3x3 512 7x7", group="conv", model=_conv((1, 512, 7, 7), 512, 3), limit=1.5),
    Case(name="Conv 1x1 256 28x28", group="conv", model=_conv((1, 256, 28, 28), 256, 1), limit=1.5),
    Case(name="Conv 7x7/2 3 224x224", group="conv", model=_conv((1, 3, 224, 224), 64, 7, 2), limit=1.5),
    Case(name="Conv depthwise 3x3 144 56x56", group="conv", model=_conv((1, 144, 56, 56), 144, 3, 1, 144), limit=1.5),
    Case(name="Conv depthwise 3x3/2 96 112x112", group="conv", model=_conv((1, 96, 112, 112), 96, 3, 2, 96), limit=1.5),
    Case(name="Conv depthwise 5x5 96 80x80", group="conv", model=_conv((1, 96, 80, 80), 96, 5, 1, 96), limit=1.5),
    Case(name="Conv depthwise 7x7 96 80x80", group="conv", model=_conv((1, 96, 80, 80), 96, 7, 1, 96), limit=1.5),
    Case(name="Conv depthwise 5x5/2 96 80x80", group="conv", model=_conv((1, 96, 80, 80), 96, 5, 2, 96), limit=1.5),
    Case(name="Conv depthwise 7x7/2 96 80x80", group="conv", model=_conv((1, 96, 80, 80), 96, 7, 2, 96), limit=1.5),
    Case(name="ConvTranspose 2x2/2 24 to 1 160x160", group="conv", model=_conv_transpose((1, 24, 160, 160), 1, 2),
         limit=1.5),
    Case(name="QLinearConv 3x3 64 56x56", group="int8", model=_qlinear_conv((1, 64, 56, 56), 64, 3), limit=2.0),
    Case(name="QLinearConv 1x1 256 28x28", group="int8", model=_qlinear_conv((1, 256, 28, 28), 256, 1), limit=2.0),
    Case(name="QLinearConv 3x3 512 7x7", group="int8", model=_qlinear_conv((1, 512, 7, 7), 512, 3), limit=2.0),
    Case(name="QLinearConv depthwise 3x3 144", group="int8", model=_qlinear_conv((1, 144, 56, 56), 144, 3, 144),
         limit=2.0),
    Case(name="ConvInteger 3x3 128 28x28", group="int8", model=_conv_integer, limit=2.0),
    Case(name="MatMulInteger 512^3", group="int8", model=_matmul_integer(512, 512, 512), limit=2.0),
    Case(name="MatMulInteger 197x768x3072", group="int8", model=_matmul_integer(197, 768, 3072), limit=2.0),
    Case(name="BiLSTM 512, 20 steps", group="recurrent", model=_recurrent("LSTM", 20, 1, 512, True),
         limit=1.5),
    Case(name="BiLSTM 512, 20 steps, batch 8", group="recurrent",
         model=_recurrent("LSTM", 20, 8, 512, True), limit=1.5),
    Case(name="LSTM 256, 50 steps", group="recurrent", model=_recurrent("LSTM", 50, 1, 256), limit=1.5),
    Case(name="LSTM 256, 50 steps, batch 8", group="recurrent", model=_recurrent("LSTM", 50, 8, 256), limit=1.5),
    Case(name="LSTM 64, 100 steps", group="recurrent", model=_recurrent("LSTM", 100, 1, 64), limit=1.5),
    Case(name="GRU 256, 50 steps", group="recurrent", model=_recurrent("GRU", 50, 1, 256), limit=1.5),
    Case(name="BiGRU 256, 50 steps, batch 8", group="recurrent",
         model=_recurrent("GRU", 50, 8, 256, True), limit=1.5),
    Case(name="DynamicQuantizeLSTM 256, 50 steps", group="recurrent", model=_dynamic_lstm(50, 256), limit=1.5),
    Case(name="RNN 256, 50 steps", group="recurrent", model=_recurrent("RNN", 50, 1, 256), limit=1.5),
)  # fmt: skip
