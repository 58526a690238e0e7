"""Random TFLite models of recurrent, detection and float operators, for comparison with LiteRT."""

from __future__ import annotations

from typing import Any

import numpy as np
from flatbuffers import flexbuffers

from tests.common.tflite_models import Model, Op, T
from tests.unit.compiler.importer.tflite.tflite_ops import Random, scale, zero

_GATES = ("input", "forget", "cell", "output")


def lstm(r: Random, dtype: str) -> bytes:
    """int8 with a 16-bit cell, or float32; with or without an input gate; either order of time and batch."""
    steps, k, n = int(r.integers(2, 6)), *(int(v) for v in r.integers(1, 12, 2))
    coupled, major, whole = bool(r.integers(2)), bool(r.integers(2)), dtype == "int8"
    gates = _GATES[coupled:]
    zx, zh = zero(r, "int8") // 8, zero(r, "int8") // 8
    shape = (lambda c: (steps, 1, c)) if major else (lambda c: (1, steps, c))
    tensors = [T("x", shape(k), dtype, 0.03, zx), T("y", shape(n), dtype, 0.007, zh)]
    names = {}
    for side, columns in (("from_input", k), ("from_state", n)):
        for gate in gates:
            names[side, gate] = f"{side}_{gate}"
            data = r.integers(-127, 128, (n, columns)) if whole else r.normal(0, 0.5, (n, columns))
            tensors.append(T(names[side, gate], (n, columns), dtype, float(r.uniform(0.002, 0.01)), 0, 0, data))
    for gate in gates:
        names["bias", gate] = f"bias_{gate}"
        data = r.integers(-3000, 3000, n) if whole else r.normal(0, 0.3, n)
        tensors.append(T(names["bias", gate], (n,), "int32" if whole else dtype, 0.00015, 0, 0, data))
    tensors.append(T("state", (1, n), dtype, 0.007, zh))
    tensors.append(T("cell", (1, n), "int16" if whole else dtype, 2.0 ** -int(r.integers(10, 14)), 0))
    inner = [T(f"inner{i}", (0,), "int16" if i < 4 else "int8", 0.007, zh if i == 4 else 0) for i in range(5)]
    inputs = ["x", *(names.get((side, g), "") for side in ("from_input", "from_state") for g in _GATES), "", "", ""]
    inputs += [*(names.get(("bias", g), "") for g in _GATES), "", "", "state", "cell", "", "", "", ""]
    options = {"FusedActivationFunction": 4, "CellClip": float(r.choice([0.0, 2.0])), "TimeMajor": major}
    op = Op("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, ["y"], ("UnidirectionalSequenceLSTMOptions", options))
    op.variables = ["state", "cell"]
    op.intermediates = [t.name for t in inner] if whole else []
    return Model(tensors + inner, [op], ["x"], ["y"]).build()


def float_lstm(r: Random, peepholes: bool, coupled: bool, activation: int, both: bool) -> bytes:
    """float32 with or without peepholes and an input gate, forwards or both ways."""
    steps, batch, (k, n) = int(r.integers(2, 6)), 1 + both, (int(v) for v in r.integers(1, 12, 2))
    sides = ("forward", "backward")[: 1 + both]
    outputs = [f"y_{side}" for side in sides]
    tensors = [T("x", (steps, batch, k), "float32"), *(T(y, (steps, batch, n), "float32") for y in outputs)]
    inputs, states = ["x"], []
    for side in sides:
        shapes = [(n, k)] * 4 + [(n, n)] * 4 + [(n,)] * 3 + [(n,)] * 4
        absent = {0, 4, 8, 11} if coupled else set()  # those of the input gate
        absent |= set() if peepholes else {8, 9, 10}
        for place, shape in enumerate(shapes):
            if place in absent:
                inputs.append("")
                continue
            inputs.append(f"{side}{place}")
            tensors.append(T(inputs[-1], shape, "float32", data=r.normal(0, 0.5, shape)))
        inputs += ["", ""]
        states += [f"{side}_state", f"{side}_cell"]
        tensors += [T(name, (batch, n), "float32") for name in states[-2:]]
    inputs += states + [""] * (9 if both else 4)
    kind = "BidirectionalSequenceLSTM" if both else "UnidirectionalSequenceLSTM"
    options: dict[str, Any] = {"FusedActivationFunction": activation, "TimeMajor": True}
    op = Op("BIDIRECTIONAL_SEQUENCE_LSTM" if both else "UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, outputs,
            (f"{kind}Options", options))  # fmt: skip
    op.variables = states
    return Model(tensors, [op], ["x"], outputs).build()


def svdf(r: Random, dtype: str) -> bytes:
    k, units, rank, memory = (int(v) for v in r.integers(1, 12, 4))
    filters, whole = units * rank, dtype == "int8"
    features, times = r.integers(-127, 128, (filters, k)), r.integers(-32767, 32768, (filters, memory))
    bias = r.integers(-9000, 9000, units)
    if not whole:
        features, times, bias = features / 127, times / 32767, bias / 9000
    tensors = [
        T("x", (1, k), dtype, 0.05, zero(r, "int8")), T("y", (1, units), dtype, 0.05, zero(r, "int8")),
        T("features", (filters, k), dtype, 0.01, 0, 0, features),
        T("times", (filters, memory), "int16" if whole else dtype, 2.0**-15, 0, 0, times),
        T("bias", (units,), "int32" if whole else dtype, 2.0**-25, 0, 0, bias),
        T("state", (1, filters * memory), "int16" if whole else dtype, 2.0**-10),
    ]  # fmt: skip
    options = ("SVDFOptions", {"Rank": rank, "FusedActivationFunction": 1})
    op = Op("SVDF", ["x", "features", "times", "bias", "state"], ["y"], options, 3, variables=["state"])
    return Model(tensors, [op], ["x"], ["y"]).build()


def detection(r: Random, dtype: str) -> bytes:
    n, classes, kept, background = (
        int(r.integers(5, 40)),
        int(r.integers(1, 5)),
        int(r.integers(1, 8)),
        int(r.integers(2)),
    )
    whole = {"max_detections": kept, "max_classes_per_detection": 1, "detections_per_class": 6, "num_classes": classes}
    real = {"nms_score_threshold": 0.3, "nms_iou_threshold": 0.5, "y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0}
    options = flexbuffers.Builder()
    with options.Map():
        for key, value in whole.items():
            options.Key(key)
            options.Int(value)
        for key, number in {**real, "w_scale": 5.0}.items():
            options.Key(key)
            options.Float(number)
        options.Key("use_regular_nms")
        options.Bool(bool(r.integers(2)))
    anchors = r.uniform(0.2, 0.8, (n, 4))
    low = 0 if dtype == "float32" else 128
    tensors = [
        T("boxes", (1, n, 4), dtype, 0.05, low), T("scores", (1, n, classes + background), dtype, 1 / 256),
        T("anchors", (n, 4), dtype, 1 / 256, 0, 0, anchors if dtype == "float32" else anchors * 256),
        T("where", (1, kept, 4), "float32"), T("what", (1, kept), "float32"), T("sure", (1, kept), "float32"),
        T("count", (1,), "float32"),
    ]  # fmt: skip
    inputs, outputs = ["boxes", "scores", "anchors"], ["where", "what", "sure", "count"]
    op = Op("TFLite_Detection_PostProcess", inputs, outputs, custom=bytes(options.Finish()))
    return Model(tensors, [op], inputs[:2], outputs).build()


def float_network(r: Random, dtype: str) -> bytes:
    """Convolution with float16 weights, leaky ReLU, average pool, mean, product, softmax."""
    c, o = (int(v) for v in r.integers(2, 9, 2))
    tensors = [
        T("x", (1, 8, 6, c), "float32"), T("half", (o, 3, 3, c), "float16", data=r.normal(0, 0.3, (o, 3, 3, c))),
        T("w", (o, 3, 3, c), "float32"), T("b", (o,), "float32", data=r.normal(0, 1, o)),
        T("conv", (1, 8, 6, o), "float32"), T("leaky", (1, 8, 6, o), "float32"), T("pool", (1, 4, 3, o), "float32"),
        T("axes", (2,), "int32", data=np.array([1, 2])), T("mean", (1, o), "float32"),
        T("v", (5, o), "float32", data=r.normal(0, 1, (5, o))), T("product", (1, 5), "float32"),
        T("y", (1, 5), "float32"),
    ]  # fmt: skip
    steps = {"StrideH": 2, "StrideW": 2, "FilterHeight": 3, "FilterWidth": 3}
    ops = [
        Op("DEQUANTIZE", ["half"], ["w"], None, 3),
        Op("CONV_2D", ["x", "w", "b"], ["conv"], ("Conv2DOptions", {"StrideH": 1, "StrideW": 1})),
        Op("LEAKY_RELU", ["conv"], ["leaky"], ("LeakyReluOptions", {"Alpha": 0.2})),
        Op("AVERAGE_POOL_2D", ["leaky"], ["pool"], ("Pool2DOptions", steps)),
        Op("MEAN", ["pool", "axes"], ["mean"], ("ReducerOptions", {})),
        Op("FULLY_CONNECTED", ["mean", "v", ""], ["product"], ("FullyConnectedOptions", {}), 6),
        Op("SOFTMAX", ["product"], ["y"], ("SoftmaxOptions", {"Beta": 1.0})),
    ]
    return Model(tensors, ops, ["x"], ["y"]).build()


def computed_shape(r: Random, dtype: str) -> bytes:
    """A transposed convolution whose output shape the file computes, as converters write it for an open batch size."""
    sw: Any = np.exp(r.uniform(-7, -5, 16))
    sx = scale(r)
    tensors = [
        T("x", (1, 9, 8, 16), "int8", sx, zero(r, "int8")), T("shape", (4,), "int32"), T("n", (), "int32"),
        *(T(f"at{i}", (1,), "int32", data=np.array([i])) for i in (0, 1)),
        *(T(f"size{v}", (), "int32", data=np.array(v)) for v in (18, 16)), T("sizes", (4,), "int32"),
        T("w", (16, 3, 3, 16), "int8", sw, 0, 0, r.integers(-127, 128, (16, 3, 3, 16))),
        T("y", (1, 18, 16, 16), "int8", sx * 0.5, zero(r, "int8")),
    ]  # fmt: skip
    ops = [
        Op("SHAPE", ["x"], ["shape"], ("ShapeOptions", {"OutType": 2})),
        Op("STRIDED_SLICE", ["shape", "at0", "at1", "at1"], ["n"], ("StridedSliceOptions", {"ShrinkAxisMask": 1})),
        Op("PACK", ["n", "size18", "size16", "size16"], ["sizes"], ("PackOptions", {"ValuesCount": 4})),
        Op("TRANSPOSE_CONV", ["sizes", "w", "x"], ["y"], ("TransposeConvOptions", {"StrideH": 2, "StrideW": 2}), 2),
    ]
    return Model(tensors, ops, ["x"], ["y"]).build()
