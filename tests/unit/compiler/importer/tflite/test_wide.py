"""16-bit activations with 8-bit weights, one operator at a time, against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tests.common.tflite_models import Model, Op, T, unary
from tests.unit.compiler.importer.tflite.tflite_ops import MOVES
from tests.unit.compiler.importer.tflite.wide_ops import CASES
from tilewright.checking.litert_reference import LiteRtReference
from tilewright.compiler.errors import UnsupportedError
from tilewright.compiler.importer.tflite.schema import read
from tilewright.isa import wide_numerics
from tilewright.isa.config import NpuConfig, preset

#: Moves of which LiteRT has no form of 16 bits.
NARROW = ("SPACE_TO_DEPTH", "DEPTH_TO_SPACE")


SIXTEEN = preset("tiny").with_(wide_results=1)


def compare(
    data: bytes, r: np.random.Generator, config: NpuConfig | str = "tiny", where: str = "", keep: str = "outputs"
) -> None:
    """Byte for byte; 65,536 elements are all values there are, floats half steps (ties) and some between."""
    program = tw.compile(data, config, keep=keep)
    assert not where or where in {layer.where for layer in program.layers}
    reference = LiteRtReference(data)
    assert reference.by_reference_kernels
    inputs = {}
    for t in program.inputs:
        size = int(np.prod(t.shape))
        if t.dtype == "float32":
            (quant,) = (f.quant for f in read(data).tensors if f.quant is not None)
            steps = np.where(r.integers(2, size=size), r.integers(-80000, 80000, size), r.normal(0, 30000, size))
            values = 0.5 * steps * float(quant.scale)
        else:
            info = np.iinfo(t.dtype)
            every = size == 1 << 16 and t.dtype == "int16"
            values = np.arange(size) + info.min if every else r.integers(info.min, info.max, size, endpoint=True)
        inputs[t.name] = values.astype(t.dtype).reshape(t.shape)
    with tw.Device("functional") as device:
        got = device.run(program, inputs)
    for name, value in reference.run(inputs).items():
        np.testing.assert_array_equal(got[name], value)


@pytest.mark.medium
@pytest.mark.parametrize("op", CASES)
def test_operator(op: str) -> None:
    for seed in range(6):
        r = np.random.default_rng([seed, len(op)])
        compare(CASES[op](op, r), r)


@pytest.mark.medium
@pytest.mark.parametrize("op", ["CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"])
def test_operator_on_the_npu(op: str) -> None:
    for seed in range(6):
        r = np.random.default_rng([seed, len(op)])
        compare(CASES[op](op, r), r, SIXTEEN, "npu")


@pytest.mark.medium
def test_a_convolution_of_a_maximum_on_the_npu() -> None:
    """The maximum has the scale of its operands, without which no layer of the NPU takes it."""
    r, shape, options = np.random.default_rng(3), (1, 6, 5, 3), ("Conv2DOptions", {"StrideH": 1, "StrideW": 1})
    tensors = [T(name, shape, "int16", 0.001) for name in "xhm"] + [T("y", shape, "int16", 0.003)]
    tensors += [
        T("c", (3,), "int16", 0.001, data=r.integers(-9999, 9999, 3)),
        T("w", (3, 3, 3, 3), "int8", np.full(3, 0.02), data=r.integers(-127, 128, (3, 3, 3, 3))),
        T("b", (3,), "int64", np.full(3, 0.00002), data=r.integers(-9999, 9999, 3)),
    ]
    ops = [
        Op("CONV_2D", ["x", "w", "b"], ["h"], options, 4),
        Op("MAXIMUM", ["h", "c"], ["m"], ("MaximumMinimumOptions", {}), 2),
        Op("CONV_2D", ["m", "w", "b"], ["y"], options, 4),
    ]
    compare(Model(tensors, ops, ["x"], ["y"]).build(), r, SIXTEEN, "npu", "all")


@pytest.mark.parametrize("case", [c for c in MOVES if c[0] not in NARROW], ids=lambda c: c[0])
def test_movement(case: tuple) -> None:
    op, x, y, constants, options, inputs, count = case
    names = [f"y{k}" for k in range(count)]
    tensors = [T("x", x, "int16", 0.001), *(T(n, y, "int16", 0.001) for n in names)]
    tensors += [T(f"c{k}", np.shape(c), "int32", data=np.asarray(c)) for k, c in enumerate(constants)]
    compare(Model(tensors, [Op(op, inputs, names, options)], ["x"], names).build(), np.random.default_rng(0))


def test_factors_of_the_reference() -> None:
    """15 bits and a shift, as `QuantizeMultiplier` and the product of 64 bits have them: worked out by hand."""
    assert wide_numerics.wide_multiplier(1.0) == (1 << 14, 14)
    assert wide_numerics.wide_multiplier(0.75) == (3 << 13, 15)
    assert wide_numerics.wide_multiplier(1 - 2.0**-40) == (1 << 14, 14)  # rounds up to 1 with 31 bits
    assert wide_numerics.wide_multiplier(1 - 2.0**-20) == (0x7FFF, 15)  # would round up to 1 with 15
    assert wide_numerics.wide_multiplier(2.0**-33) == (0, 15)


def test_rounding_of_sums() -> None:
    """Ties upwards with a multiplier, away from zero with a factor; then the limits."""
    half, shift = wide_numerics.wide_multiplier(0.5)
    sums = np.array([-5, -3, -1, 1, 3, 5, 1 << 20])
    assert wide_numerics.requantize_wide(sums, half, shift, -2, 1000).tolist() == [-2, -1, 0, 1, 2, 3, 1000]
    assert wide_numerics.requantize_wide_product(sums, 0.5, -2, 1000).tolist() == [-2, -2, -1, 1, 2, 3, 1000]
    assert wide_numerics.requantize_wide_product(1, 0.5 - 2.0**-54, -9, 9) == 0


@pytest.mark.medium
def test_largest_sums() -> None:
    """All operands at an end of their range: 47 bits would not be reached by a file, 32 are exceeded."""
    k = 5000
    tensors = [
        T("x", (4, k), "int16", 0.001), T("w", (3, k), "int8", [0.5, 0.25, 0.1], data=np.full((3, k), -127)),
        T("b", (3,), "int64", [0.0005, 0.00025, 0.0001], data=np.array([1 << 40, -(1 << 40), 5])),
        T("y", (4, 3), "int16", 20000.0),
    ]  # fmt: skip
    for op, kind in (("FULLY_CONNECTED", "FullyConnectedOptions"), ("CONV_2D", "Conv2DOptions")):
        if op == "CONV_2D":
            tensors[0].shape, tensors[1].shape, tensors[3].shape = (4, 1, 1, k), (3, 1, 1, k), (4, 1, 1, 3)
        assert tensors[1].data is not None
        tensors[1].data = tensors[1].data.reshape(tensors[1].shape)
        options = {"StrideH": 1, "StrideW": 1} if op == "CONV_2D" else {}
        data = Model(tensors, [Op(op, ["x", "w", "b"], ["y"], (kind, options), 4)], ["x"], ["y"]).build()
        x = np.stack([np.full(k, v) for v in (-32768, 32767, -1, 0)]).astype(np.int16).reshape(tensors[0].shape)
        with tw.Device("functional") as device:
            got = device.run(tw.compile(data, "tiny"), {"x": x})
        np.testing.assert_array_equal(got["y"], LiteRtReference(data).run({"x": x})["y"])


def test_a_network_of_bytes_beside() -> None:
    """The default kernels are the reference where operators compute bytes too."""
    data = unary("TANH", T("x", (1, 4), "int8", 0.1), T("y", (1, 4), "int8", 1 / 128), version=2)
    assert not LiteRtReference(data).by_reference_kernels


def test_moves_of_bytes_beside() -> None:
    """The reference kernels are right behind a RESHAPE of bytes, the default ones behind a QUANTIZE of bytes."""
    shape = T("s", (1,), "int32", data=np.array([64]))
    tensors = [T("x", (8, 8), "int8", 0.05), shape, T("f", (64,), "int8", 0.05), T("y", (64,), "int16", 0.001)]
    last = Op("QUANTIZE", ["f"], ["y"], ("QuantizeOptions", {}), 3)
    compare(Model(tensors, [Op("RESHAPE", ["x", "s"], ["f"]), last], ["x"], ["y"]).build(), np.random.default_rng(0))
    tensors = [T("x", (64,), "int8", 0.07), *tensors[2:]]
    ops = [Op("QUANTIZE", ["x"], ["f"], ("QuantizeOptions", {}), 3), last]
    assert not LiteRtReference(Model(tensors, ops, ["x"], ["y"]).build()).by_reference_kernels


def test_factors_that_are_nothing() -> None:
    """A factor below 2^-32 is 0, also beside one that is not."""
    x, y = T("x", (300,), "int16", 1e-9), T("y", (300,), "int16", 1e9)
    compare(unary("LEAKY_RELU", x, y, ("LeakyReluOptions", {"Alpha": 0.1}), 2), np.random.default_rng(0))
    axes, mean = (
        T("axes", (1,), "int32", data=np.array([0])),
        Op("MEAN", ["x", "axes"], ["y"], ("ReducerOptions", {}), 3),
    )
    compare(Model([x, axes, T("y", (), "int16", 1e9)], [mean], ["x"], ["y"]).build(), np.random.default_rng(0))


def one(op: str, sx: float, sy: float, kind: str, version: int = 2, **options: float) -> bytes:
    x, y = T("x", (1, 1 << 16), "int16", sx), T("y", (1, 1 << 16), "int16", sy)
    return unary(op, x, y, (kind, options) if kind else None, version)


def product(bias: int, factor: float, op: str) -> bytes:
    shape = (1, 1, 1) if op == "CONV_2D" else ()
    tensors = [
        T("x", (4, *shape[1:], 4), "int16", 0.5), T("w", (2, *shape[1:], 4), "int8", 0.5, data=np.full(8, 7)),
        T("b", (2,), "int64", 0.25, data=np.array([-bias, bias])), T("y", (4, *shape[1:], 2), "int16", 0.25 / factor),
    ]  # fmt: skip
    assert tensors[1].data is not None
    tensors[1].data = tensors[1].data.reshape(tensors[1].shape)
    options = ("Conv2DOptions", {"StrideH": 1, "StrideW": 1}) if shape else ("FullyConnectedOptions", {})
    return Model(tensors, [Op(op, ["x", "w", "b"], ["y"], options, 4)], ["x"], ["y"]).build()


#: Just within what is accepted, just beyond it, and what is said then. 2^31 - 28 * 2^15 is the largest bias.
LIMITS = [
    *((product((1 << 31) - 28 * (1 << 15) - 1, 1.0, op), product((1 << 31) - 28 * (1 << 15), 1.0, op),
       "results before the limits of 16 bits of channel 0 may reach 2.14748e.09, .*; below 2.31 is accepted")
      for op in ("CONV_2D", "FULLY_CONNECTED")),
    (product((1 << 47) - (1 << 20), 2.0**-18, "CONV_2D"), product(1 << 47, 2.0**-18, "CONV_2D"), "below 2.47"),
    *((one(op, 0.999, 2.0**-15, kind, **options), one(op, 1.0, 2.0**-15, kind, **options),
       f"{op} .* a factor of 32768 for integers up to 32768; below 32768 is accepted")
      for op, kind, options in (("RELU6", "", {}), ("LEAKY_RELU", "LeakyReluOptions", {"Alpha": 0.5}),
                                ("QUANTIZE", "QuantizeOptions", {}))),
    *((one(op, 5.333, 2.0**-15, ""), one(op, 5.334, 2.0**-15, ""), "'x' has scale 5.334; below 5.3333 is accepted")
      for op in ("LOGISTIC", "TANH")),
    (one("SOFTMAX", 4.9999, 2.0**-15, "SoftmaxOptions", 3, Beta=1.0),
     one("SOFTMAX", 5.001, 2.0**-15, "SoftmaxOptions", 3, Beta=1.0), "for integers up to 65535; below 32768 is"),
]  # fmt: skip


@pytest.mark.medium
@pytest.mark.parametrize(("within", "beyond", "message"), LIMITS)
def test_limits_of_32_bits(within: bytes, beyond: bytes, message: str) -> None:
    compare(within, np.random.default_rng(0))
    with pytest.raises(UnsupportedError, match=message):
        tw.compile(beyond, "tiny")


def test_products_beyond_32_bits() -> None:
    tensors = [T(name, (4,), "int16", s) for name, s in (("x", 0.001), ("b", 0.001), ("y", 1e-7))]
    data = Model(tensors, [Op("MUL", ["x", "b"], ["y"], ("MulOptions", {}), 4)], ["x", "b"], ["y"]).build()
    with pytest.raises(UnsupportedError, match="a factor of 10 for integers up to 1073741824; below 1 is accepted"):
        tw.compile(data, "tiny")


def conv(biased: bool = True, **changes: T) -> bytes:
    tensors = {
        "x": T("x", (1, 2, 2, 4), "int16", 0.001), "w": T("w", (2, 1, 1, 4), "int8", 0.01, data=np.ones((2, 1, 1, 4))),
        "b": T("b", (2,), "int64", 0.00001, data=np.ones(2)), "y": T("y", (1, 2, 2, 2), "int16", 0.001),
    }  # fmt: skip
    options = ("Conv2DOptions", {"StrideH": 1, "StrideW": 1})
    made = [*(tensors | changes).values()]
    return Model(made, [Op("CONV_2D", ["x", "w", "b"][: 2 + biased], ["y"], options, 4)], ["x"], ["y"]).build()


def joined(scale: float, zero: int) -> bytes:
    tensors = [T(name, (n,), "int16", scale, zero) for name, n in (("x", 4), ("b", 4), ("y", 8))]
    options = ("ConcatenationOptions", {"Axis": 0})
    return Model(tensors, [Op("CONCATENATION", ["x", "b"], ["y"], options, 3)], ["x", "b"], ["y"]).build()


def test_plain_integers_are_moved() -> None:
    """A scale of 0 is none: moves take such integers, what computes refuses them (below)."""
    data = joined(0.0, 0)
    inputs = {name: np.arange(4, dtype=np.int16) - k for k, name in enumerate("xb")}
    with tw.Device("functional") as device:
        np.testing.assert_array_equal(device.run(tw.compile(data, "tiny"), inputs)["y"], [0, 1, 2, 3, -1, 0, 1, 2])


def test_what_is_refused() -> None:
    """One line with the operator, what there is and what would be accepted."""
    ones = np.ones((2, 1, 1, 4))
    for data, message in (
        (conv(x=T("x", (1, 2, 2, 4), "int16", 0.001, 3)), r"CONV_2D .*'x' must have one scale and the zero point 0"),
        (conv(x=T("x", (1, 2, 2, 4), "int8", 0.001)), "'x' is INT8; int16 with one scale is accepted"),
        (conv(w=T("w", (2, 1, 1, 4), "int8", 0.01, 1, data=ones)), "weights 'w' must be int8 with the zero point 0"),
        (conv(b=T("b", (2,), "int32", 0.00001, data=np.ones(2))), r"bias 'b' is INT32\[2\]; int64\[2\] is accepted"),
        (conv(y=T("y", (1, 2, 2, 2), "int16", 1e-8)), "scales that are 1000 of that of the result; below 128"),
        (conv(biased=False), r"CONV_2D .*: there is no bias; LiteRT asks for one of int64"),
        (joined(0.1, 5), "CONCATENATION .*'y' must have one scale and the zero point 0"),
        (unary("NEG", T("x", (4,), "int16", 0.0), T("y", (4,), "int16", 0.0)), "NEG .* is not supported with 16-bit"),
        (unary("RELU", T("x", (4,), "int16", 0.0), T("y", (4,), "int16", 0.0)), "RELU .*'x' has scale 0; up to 2.40"),
        *((unary(op, T("x", (4,), "int16", 0.1), T("y", (4,), "int16", 0.1)), f"{op} .* is not supported with 16-bit")
          for op in ("RELU_N1_TO_1", "RELU_0_TO_1")),
        (unary("HARD_SWISH", T("x", (4,), "int16", 0.1), T("y", (4,), "int16", 0.1)),
         "HARD_SWISH .* is not supported with 16-bit activations; docs/tflite.md"),
        (unary("TANH", T("x", (4,), "int16", 0.1), T("y", (4,), "int16", 0.1)), "'y' has scale 0.1; 2\\^-15"),
        (unary("RESHAPE", T("x", (4,), "int16", 0.1), T("y", (4,), "int16", 0.2)), "must have the same scale"),
    ):  # fmt: skip
        with pytest.raises(UnsupportedError, match=message):
            tw.compile(data, "tiny")


@pytest.mark.medium
def test_notes_say_where_it_runs() -> None:
    program = tw.compile(conv(), "tiny", cache=False)
    assert [layer.where for layer in program.layers if layer.macs] == ["cpu"]
    assert any(note.startswith("16-bit activations: 1 QConv16 multiply them") for note in program.notes)
    assert any(note.startswith("nothing runs on the NPU") for note in program.notes)
    assert "every sum leaves this NPU as 8 bits" in program.notes[0] and "With `wide_results`" in program.notes[0]
    wide = tw.compile(conv(), SIXTEEN, cache=False)
    assert [layer.where for layer in wide.layers if layer.macs] == ["npu"]
    assert "1 of them run on the NPU" in wide.notes[0] and len(wide.notes) == 1
    limit = wide_numerics.WIDE_BIAS_MOST - 128 * 4
    for bias, where in ((limit, "npu"), (limit + 1, "cpu")):
        b = T("b", (2,), "int64", 0.00001, data=np.array([bias, 0]))
        made = tw.compile(conv(b=b, y=T("y", (1, 2, 2, 2), "int16", 100.0)), SIXTEEN, cache=False)
        assert [layer.where for layer in made.layers if layer.macs] == [where]
        assert any(f"a bias of {bias + 512}" in note for note in made.notes) == (where == "cpu")
