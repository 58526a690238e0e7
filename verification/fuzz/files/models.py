"""Models: ONNX and TFLite."""

from __future__ import annotations

import functools
import random
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.common.tflite_models import Model, Op, T, unary
from tilewright.api.compilation import compile_program
from tilewright.dynamic.model import DynamicModel
from tilewright.runtime.devices import Device
from tilewright.runtime.inputs import random_inputs
from verification.fuzz.files import mutations as m

#: Limit of what a mutated model may make the harness itself run, in bytes.
RUN_BYTES = 1 << 22


def _tensor(name: str, values: Any, dtype: Any) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(values, dtype), name)


def onnx_bytes(nodes: list[onnx.NodeProto], shape: list[int], *constants: onnx.TensorProto) -> bytes:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [value("x", TensorProto.FLOAT, shape)], [value("y", TensorProto.FLOAT, None)], list(constants)
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString())


@functools.cache
def conv_model() -> bytes:
    node, weights = helper.make_node, np.arange(4 * 4 * 9).reshape(4, 4, 3, 3) % 7 - 3
    return onnx_bytes(
        [
            node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
            node("QLinearConv", ["xq", "s", "z", "w", "s", "z", "s", "z"], ["cq"], pads=[1, 1, 1, 1]),
            node("DequantizeLinear", ["cq", "s", "z"], ["c"]),
            node("Add", ["c", "c"], ["d"]),
            node("QuantizeLinear", ["d", "s", "z"], ["dq"]),
            node("DequantizeLinear", ["dq", "s", "z"], ["y"]),
        ],
        [1, 4, 8, 8], _tensor("s", 0.1, np.float32), _tensor("z", 0, np.int8), _tensor("w", weights, np.int8),
    )  # fmt: skip


@functools.cache
def _onnx_models() -> tuple[bytes, ...]:
    node, f, i = helper.make_node, np.float32, np.int64
    one = lambda op, *inputs, **a: node(op, ["x", *inputs], ["y"], **a)
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [node("Add", ["v", "v"], ["w"])], "b",
        [value("i", TensorProto.INT64, []), value("c", TensorProto.BOOL, []), value("v", TensorProto.FLOAT, [4])],
        [value("c", TensorProto.BOOL, []), value("w", TensorProto.FLOAT, [4])],
    )  # fmt: skip
    shape = [1, 4, 8, 8]
    return (
        conv_model(),
        onnx_bytes([one("AveragePool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])], shape),
        onnx_bytes([one("MaxPool", kernel_shape=[2, 2], dilations=[1, 2])], shape),
        onnx_bytes([one("Conv", "w", strides=[2, 2], group=4)], shape, _tensor("w", np.ones((4, 1, 3, 3)), f)),
        onnx_bytes([one("ConvTranspose", "w", output_padding=[1, 1], strides=[2, 2])], shape,
              _tensor("w", np.ones((4, 2, 3, 3)), f)),
        onnx_bytes([one("Reshape", "s")], shape, _tensor("s", [0, -1, 4], i)),
        onnx_bytes([one("Resize", "", "", "s", mode="linear")], shape, _tensor("s", [1, 4, 5, 13], i)),
        onnx_bytes([one("Pad", "p", mode="reflect")], shape, _tensor("p", [0, 0, 1, 2, 0, 0, 1, 0], i)),
        onnx_bytes([one("Slice", "a", "b", "c", "d")], shape, _tensor("a", [1, 7], i), _tensor("b", [3, 0], i),
              _tensor("c", [1, 2], i), _tensor("d", [1, -2], i)),
        onnx_bytes([one("Tile", "r")], shape, _tensor("r", [1, 2, 1, 3], i)),
        onnx_bytes([one("Transpose", perm=[0, 2, 3, 1])], shape),
        onnx_bytes([one("Softmax", axis=1)], shape),
        onnx_bytes([one("ReduceMean", axes=[2, 3], keepdims=0)], shape),
        onnx_bytes([one("Gather", "k", axis=2)], shape, _tensor("k", [[0, -1]], i)),
        onnx_bytes([node("Split", ["x", "k"], ["a", "b"], axis=1), node("Concat", ["b", "a"], ["y"], axis=2)], shape,
              _tensor("k", [2, 2], i)),
        onnx_bytes([one("DepthToSpace", blocksize=2)], shape),
        onnx_bytes([one("LRN", size=3)], shape),
        onnx_bytes([one("Einsum", "x", equation="abcd,abed->ace")], shape),
        onnx_bytes([node("Loop", ["n", "", "x"], ["y"], body=body)], [4], _tensor("n", 3, i)),
        onnx_bytes([node("LSTM", ["x", "w", "r"], ["", "y"], hidden_size=2)], [3, 1, 4],
                   _tensor("w", np.ones((1, 8, 4)), f), _tensor("r", np.ones((1, 8, 2)), f)),
        onnx_bytes([node("TopK", ["x", "k"], ["y", "i"], axis=2)], shape, _tensor("k", [3], i)),
    )  # fmt: skip


def mutated_onnx(rng: random.Random) -> bytes:
    data = rng.choice(_onnx_models())
    if rng.random() < 0.25:
        return m.mutate_bytes(rng, data)
    model = onnx.load_model_from_string(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        _change_message(rng, model)
    return bytes(model.SerializeToString())


def _change_message(rng: random.Random, message: Any) -> None:
    """Changes one field somewhere below a message of protobuf."""
    fields = [(d, v) for d, v in message.ListFields()]
    if not fields:
        return
    descriptor, value = rng.choice(fields)
    several = not isinstance(value, str | bytes | int | float) and hasattr(value, "__len__")
    if descriptor.message_type is not None:
        if several and rng.random() < 0.1:
            del value[rng.randrange(len(value))]
        elif several and rng.random() < 0.1:
            value.add().CopyFrom(rng.choice(value))
        else:
            _change_message(rng, rng.choice(value) if several else value)
        return
    old = rng.choice(list(value)) if several else value
    new = _leaf(rng, old)
    try:
        if several and rng.random() < 0.15:
            value.append(new)
        elif several:
            value[rng.randrange(len(value))] = new
        else:
            setattr(message, descriptor.name, new)
    except (ValueError, TypeError, OverflowError):
        pass  # a 32-bit field, or text that is none: left as it was


def _leaf(rng: random.Random, value: Any) -> Any:
    if isinstance(value, bytes):
        return m.mutate_bytes(rng, value)
    if isinstance(value, str):
        return rng.choice((*m.TEXTS, "x", "y", "s", "Add", "MatMul", "Sigmoid", "Shape", "ConstantOfShape", "NonZero"))
    return m.another(rng, value) if rng.random() < 0.9 else value


@functools.cache
def _tflite_models() -> tuple[bytes, ...]:
    x, y = T("x", [1, 8, 8, 4], "int8", 0.1, 3), T("y", [1, 8, 8, 4], "int8", 0.2, -5)
    w = T("w", [4, 3, 3, 4], "int8", [0.1] * 4, [0] * 4, 0, np.ones((4, 3, 3, 4), np.int8))
    b = T("b", [4], "int32", [0.01] * 4, [0] * 4, 0, np.ones(4, np.int32))
    conv = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1, "Padding": 0}
    pool = {"StrideH": 1, "StrideW": 1, "FilterHeight": 2, "FilterWidth": 2, "Padding": 0}
    ints = lambda name, values: T(name, [len(values)], "int32", data=np.asarray(values, np.int32))
    of = lambda op, *more, options=None: Model(
        [x, y, *more], [Op(op, ["x", *(t.name for t in more)], ["y"], options)], ["x"], ["y"]
    ).build()
    small, ones8 = T("y", [1, 4], "int8", 0.2, -5), np.ones((1, 8, 8, 4), np.int8)
    return (
        Model([x, w, b, y], [Op("CONV_2D", ["x", "w", "b"], ["y"], ("Conv2DOptions", conv))], ["x"], ["y"]).build(),
        *(of(op, options=("Pool2DOptions", pool)) for op in ("AVERAGE_POOL_2D", "MAX_POOL_2D")),
        unary("SOFTMAX", T("x", [1, 8], "int8", 0.1, 3), T("y", [1, 8], "int8", 1 / 256, -128),
              ("SoftmaxOptions", {"Beta": 1.0})),
        unary("SOFTMAX", T("x", [1, 8], "float32"), T("y", [1, 8], "float32"), ("SoftmaxOptions", {"Beta": 1.0})),
        *(unary(op, x, y) for op in ("LOGISTIC", "TANH", "RELU", "HARD_SWISH", "ABS", "QUANTIZE", "SQRT")),
        of("ADD", T("v", [1, 8, 8, 4], "int8", 0.3, 1, data=ones8), options=("AddOptions", {})),
        of("MUL", T("v", [4], "int8", 0.3, 1, data=np.ones(4, np.int8)), options=("MulOptions", {})),
        of("RESHAPE", ints("k", [1, 8, 8, 4])),
        of("TRANSPOSE", ints("k", [0, 1, 2, 3])),
        of("PAD", T("k", [4, 2], "int32", data=np.zeros((4, 2), np.int32))),
        of("RESIZE_BILINEAR", ints("k", [8, 8]), options=("ResizeBilinearOptions", {})),
        Model([x, ints("k", [1, 2]), small], [Op("MEAN", ["x", "k"], ["y"], ("ReducerOptions", {}))],
              ["x"], ["y"]).build(),
        Model([T("x", [1, 4], "int8", 0.1, 3), T("w", [4, 4], "int8", 0.1, 0, data=np.ones((4, 4), np.int8)), b, small],
              [Op("FULLY_CONNECTED", ["x", "w", "b"], ["y"], ("FullyConnectedOptions", {}))], ["x"], ["y"]).build(),
    )  # fmt: skip


def mutated_tflite(rng: random.Random) -> bytes:
    return m.mutate_bytes(rng, rng.choice(_tflite_models()), 12)


def read_model(data: bytes, rng: random.Random, folder: Path) -> None:
    program = compile_program(
        data, rng.choice(("tiny", "small")), cache=False, tuning="off", cpu_only=rng.random() < 0.3
    )
    if rng.random() < 0.1 and program.arena_bytes + program.host_bytes < RUN_BYTES:
        Device("functional", config=program.config).run(program, random_inputs(program))


def read_onnx(data: bytes, rng: random.Random, folder: Path) -> None:
    if rng.random() < 0.2:
        DynamicModel(data, "tiny")
    read_model(data, rng, folder)
