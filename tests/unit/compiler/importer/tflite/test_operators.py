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
from tilewright.compiler.errors import UnsupportedError


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


@pytest.mark.medium
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


@pytest.mark.medium
@pytest.mark.parametrize("dtype", ["int8", "float32"])
@pytest.mark.parametrize("network", [networks.lstm, networks.svdf])
def test_recurrent(network: Callable[[np.random.Generator, str], bytes], dtype: str) -> None:
    for seed in range(2):
        r = np.random.default_rng(seed)
        compare(network(r, dtype), r)


@pytest.mark.medium
def test_an_lstm_of_bytes_is_one_kernel_and_says_why_it_is_on_the_cpu() -> None:
    program = tw.compile(networks.lstm(np.random.default_rng(0), "int8"), cache=False)
    assert [layer.op for layer in program.layers].count("IntegerLSTM") == 1
    (note,) = [note for note in program.notes if "IntegerLSTM run on the CPU" in note]
    assert "1 MatMulInteger, 1 IntegerLSTM" in note and "leaves it as 8 bits" in note


@pytest.mark.medium
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("activation", [4, 1])
def test_float_lstm(activation: int, both: bool) -> None:
    """LSTMs equal LiteRT's where they are one ONNX node, and where they are unrolled (without an input gate)."""
    for peepholes in (False, True):
        for coupled in (False, True):
            r = np.random.default_rng(activation)
            compare(networks.float_lstm(r, peepholes, coupled, activation, both), r)


def test_float_lstm_without_activation() -> None:
    """LiteRT then multiplies the output gate by the cell gate."""
    with pytest.raises(UnsupportedError, match="activation 0; TANH and RELU are accepted"):
        tw.compile(networks.float_lstm(np.random.default_rng(0), False, False, 0, False))


@pytest.mark.medium
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_detection_postprocess(dtype: str) -> None:
    for seed in (0, 1):
        r = np.random.default_rng(seed)
        compare(networks.detection(r, dtype), r)


@pytest.mark.medium
@pytest.mark.parametrize("padding", [1, 2])
def test_transposed_convolution_of_mediapipe(padding: int) -> None:
    """A custom operator that LiteRT's XNNPACK knows."""
    for seed in range(3):
        r = np.random.default_rng([seed, padding])
        h, w, kh, kw, c, o, sh, sw = (int(v) for v in r.integers(1, 5, 8))
        kh, kw = max(kh, sh), max(kw, sw)
        out = (h * sh, w * sw) if padding == 1 else ((h - 1) * sh + kh, (w - 1) * sw + kw)
        tensors = [
            T("x", (1, h, w, c), "float32"), T("w", (o, kh, kw, c), "float32", data=r.normal(0, 1, (o, kh, kw, c))),
            T("b", (o,), "float32", data=r.normal(0, 1, o)), T("y", (1, *out, o), "float32"),
        ]  # fmt: skip
        op = Op(
            "Convolution2DTransposeBias", ["x", "w", "b"], ["y"], custom=np.array([padding, sw, sh], "<i4").tobytes()
        )
        compare(Model(tensors, [op], ["x"], ["y"]).build(), r)


@pytest.mark.medium
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


@pytest.mark.medium
def test_computed_output_shape_says_why_it_may_be_a_step_off() -> None:
    """LiteRT's builtin kernel rounds twice there: the machine's rule is within a step, in less than 0.1 %."""
    data = networks.computed_shape(np.random.default_rng(0), "int8")
    report = tw.check(data, keep="all")
    assert report.ok, report.summary()
    (row,) = (r for r in report.rows if r.name == "y.planes")
    assert "rounds twice" in row.reason and row.where == "npu"
    assert row.free_max <= 1 and row.free_differences < 0.001 * row.elements


@pytest.mark.parametrize("op", ["MUL", "DEQUANTIZE", "TANH"])
def test_operators_numbered_in_the_younger_field_alone(op: str) -> None:
    """Operators are read from the newer field, as ai-edge-quantizer writes them: `deprecated_builtin_code` is 0, which
    alone would be ADD."""
    x, kind = T("x", (1, 4, 4, 3), "int8", 0.1, 3), "float32" if op == "DEQUANTIZE" else "int8"
    y = T("y", (1, 4, 4, 3), kind, None if kind == "float32" else 1 / 128, 0)
    options = ("MulOptions", {}) if op == "MUL" else None
    node = Op(op, ["x"] * (2 if op == "MUL" else 1), ["y"], options, 2)
    compare(Model([x, y], [node], ["x"], ["y"], byte_codes=False).build(), np.random.default_rng(0))


@pytest.mark.parametrize("op", ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"])
def test_bias_that_names_the_channel_axis_of_the_weights(op: str) -> None:
    """A bias [O] quantised along axis 3 has a scale a channel all the same. LiteRT refuses the file, other runtimes do
    not look: the values are those of the file with the axis mended."""
    r, channels = np.random.default_rng(1), 4
    shape, axis = {"CONV_2D": ((4, 1, 1, 4), 0), "DEPTHWISE_CONV_2D": ((1, 1, 1, 4), 3)}.get(op, ((4, 4), 0))
    scales = np.array([0.01, 0.02, 0.03, 0.04], np.float32)
    image, out = ((3, 4), (3, 4)) if op == "FULLY_CONNECTED" else ((1, 3, 3, 4), (1, 3, 3, 4))
    table = {"CONV_2D": "Conv2DOptions", "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions"}.get(op, "FullyConnectedOptions")
    options = {} if op == "FULLY_CONNECTED" else {"StrideH": 1, "StrideW": 1}
    options |= {"DepthMultiplier": 1} if op == "DEPTHWISE_CONV_2D" else {}

    def file(named: int) -> bytes:
        weights = T("w", shape, "int8", scales, 0, axis, r.integers(-127, 128, shape))
        bias = T("b", (channels,), "int32", scales * 0.5, 0, named, np.array([500, -300, 0, 2000]))
        tensors = [T("x", image, "int8", 0.5, 7), weights, bias, T("y", out, "int8", 0.9, -3)]
        return Model(tensors, [Op(op, ["x", "w", "b"], ["y"], (table, options), 5)], ["x"], ["y"]).build()

    state = r.bit_generator.state
    mended = file(0)
    r.bit_generator.state = state
    odd = file(3)
    x = r.integers(-128, 128, image).astype(np.int8)
    with tw.Device("functional") as device:
        got = device.run(tw.compile(odd, "tiny"), {"x": x})
    np.testing.assert_array_equal(got["y"], LiteRtReference(mended).run({"x": x})["y"])
    with pytest.raises(tw.UsageError):
        LiteRtReference(odd).run({"x": x})


@pytest.mark.medium
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_product_of_a_tensor_with_itself(dtype: str) -> None:
    """Scales at which half steps are common: the parity of the zero point decides them."""
    low = np.iinfo(dtype).min
    for k in range(12):
        x, y = T("x", (16, 16), dtype, 0.1, low + 20 * k), T("y", (16, 16), dtype, 0.7 * (k % 4 + 1), low + 11 * k)
        options = ("MulOptions", {"FusedActivationFunction": k % 2})
        node = Op("MUL", ["x", "x"], ["y"], options, 2)
        compare(Model([x, y], [node], ["x"], ["y"]).build(), np.random.default_rng(k))


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "float32"])
@pytest.mark.parametrize("start", [[1, 2, 0], [5, -3, 7]])
def test_a_part_replaced_at_a_place_that_is_an_input(start: list[int], dtype: str) -> None:
    """A part that would reach beyond an end begins earlier."""
    r, scale = np.random.default_rng(0), 0.01 if dtype in ("int8", "int16") else None
    tensors = [T("x", (4, 6, 3), dtype, scale), T("part", (2, 3, 2), dtype, scale), T("y", (4, 6, 3), dtype, scale)]
    tensors.append(T("start", (3,), "int32"))
    op = Op("DYNAMIC_UPDATE_SLICE", ["x", "part", "start"], ["y"], None, 2)
    data = Model(tensors, [op], ["x", "part", "start"], ["y"]).build()
    inputs = {t.name: r.normal(0, 50, t.shape).astype(dtype) for t in tensors[:2]} | {
        "start": np.array(start, np.int32)
    }
    with tw.Device("functional") as device:
        got = device.run(tw.compile(data, "tiny"), inputs)
    np.testing.assert_array_equal(got["y"], LiteRtReference(data).run(inputs)["y"])


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_sums_of_many_and_at_places(dtype: str) -> None:
    """ADD_N of three, and SCATTER_ND with a place named twice."""
    tensors = [T(name, (4, 6), dtype) for name in "abcs"] + [
        T("i", (4, 1), "int32", data=np.array([[1], [4], [1], [0]]))
    ]
    tensors += [T("shape", (2,), "int32", data=np.array([5, 6])), T("y", (5, 6), dtype)]
    ops = [Op("ADD_N", ["a", "b", "c"], ["s"]), Op("SCATTER_ND", ["i", "s", "shape"], ["y"])]
    r = np.random.default_rng(1)
    inputs = {name: r.normal(0, 50, (4, 6)).astype(dtype) for name in "abc"}
    data = Model(tensors, ops, ["a", "b", "c"], ["y"]).build()
    with tw.Device("functional") as device:
        got = device.run(tw.compile(data, "tiny"), inputs)
    np.testing.assert_allclose(got["y"], LiteRtReference(data).run(inputs)["y"], rtol=1e-6)


@pytest.mark.parametrize("stride, dilation, same", [(1, 1, True), (2, 1, True), (1, 2, False), (2, 1, False)])
def test_convolution_in_three_dimensions(stride: int, dilation: int, same: bool) -> None:
    r = np.random.default_rng(2)
    kernel, size = (2, 3, 1), (6, 7, 5)
    reach = [(k - 1) * dilation + 1 for k in kernel]
    out = [-(-(n if same else n - k + 1) // stride) for n, k in zip(size, reach)]
    options: dict[str, int] = {"Padding": int(not same), "FusedActivationFunction": 1}
    options |= {f"Stride{axis}": stride for axis in "DHW"} | {f"Dilation{axis}Factor": dilation for axis in "DHW"}
    tensors = [
        T("x", (2, *size, 3), "float32"), T("w", (*kernel, 3, 4), "float32", data=r.normal(0, 1, (*kernel, 3, 4))),
        T("b", (4,), "float32", data=r.normal(0, 1, 4)), T("y", (2, *out, 4), "float32"),
    ]  # fmt: skip
    compare(
        Model(tensors, [Op("CONV_3D", ["x", "w", "b"], ["y"], ("Conv3DOptions", options))], ["x"], ["y"]).build(), r
    )
