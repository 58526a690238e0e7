"""Random pruned networks, as ONNX and as TFLite: filters of zeros, inputs that no filter reads, sums that are nothing
beside a step of the result, biases that saturate or lie on ties."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx

from tests.common import tflite_models as tfl
from tests.reference.quantized_models import Model
from tilewright.checking.saturation import saturates

Array = np.ndarray


@dataclass(frozen=True)
class Value:
    """A tensor int8 [1, channels, rows, columns] of a scale and zero point."""

    shape: tuple[int, int, int]
    scale: float
    zero: int

    @property
    def quant(self) -> tuple[float, int]:
        return self.scale, self.zero


@dataclass
class Layer:
    """A layer: values by number, the weights int8 [outputs, inputs or 1, kernel, kernel] of a product."""

    kind: str
    operands: list[int]
    made: Value
    kernel: int = 1
    stride: int = 1
    same: bool = False
    relu: bool = False
    weights: Array = field(default_factory=lambda: np.zeros(0))
    scales: Array = field(default_factory=lambda: np.zeros(0))
    bias: Array = field(default_factory=lambda: np.zeros(0))


class PrunedNetwork:
    """The network of a seed, whose results are the values that no layer reads."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        size = int(self.rng.integers(4, 8))
        steps = (2.0 ** -self.rng.integers(2, 6), float(np.float32(self.rng.uniform(0.02, 0.2))))
        self.quants = [(s, int(z)) for s in steps for z in (-128, self.rng.integers(-128, 128))]
        self.values = [Value((int(self.rng.choice((3, 4, 8))), size, size), *self.quants[self.rng.integers(4)])]
        self.layers: list[Layer] = []
        for _ in range(self.rng.integers(4, 10)):
            self._grow()
        read = {v for layer in self.layers for v in layer.operands}
        self.results = [v for v in range(1, len(self.values)) if v not in read]

    def _grow(self) -> None:
        """Adds a layer to one of the last values."""
        x = max(len(self.values) - 1 - int(self.rng.integers(3)) // 2, 0)
        kinds = ["conv"] * 4 + ["depthwise"] * 3 + ["add", "add", "concat", "max", "average", "table", "mean"]
        kind = str(self.rng.choice(kinds))
        v, others = self.values[x], []
        if kind in ("add", "concat"):
            alike = [i for i, o in enumerate(self.values) if i != x and o.shape == v.shape]
            others = [i for i in alike if kind == "add" or self.values[i].quant == v.quant]
            if not others:
                self._product(x, False, alike=True)
                others = [len(self.values) - 1]
        if kind in ("max", "average", "mean") and (v.shape[1] < 3 or not x):
            kind = "conv"
        if kind in ("conv", "depthwise"):
            self._product(x, kind == "depthwise")
            return
        (channels, rows, columns), quant = v.shape, v.quant
        layer = Layer(kind, [x], v)
        if kind in ("add", "concat"):
            layer.operands.append(int(self.rng.choice(others)))
            self.rng.shuffle(layer.operands)
            if kind == "concat":
                layer.made = Value((2 * channels, rows, columns), *quant)
            else:
                layer.relu, layer.made = bool(self.rng.integers(2)), Value(v.shape, *self.quants[self.rng.integers(4)])
        elif kind == "table":
            layer.made = Value(v.shape, 1 / 256, -128)
        elif kind == "mean":
            layer.made = Value((channels, 1, 1), *self.quants[self.rng.integers(4)])
        else:
            layer.kernel = 3
            layer.made = Value((channels, rows - 2, columns - 2), *quant)
        self._add(layer)

    def _product(self, x: int, depthwise: bool, alike: bool = False) -> None:
        """Adds a convolution; with `alike` its result has the shape and quantisation of its operand."""
        rng, v = self.rng, self.values[x]
        channels, rows, columns = v.shape
        kernel = int(rng.choice((1, 3))) if not depthwise or rows < 3 else 3
        same = bool(alike or rows < kernel or rng.integers(2))
        stride = 1 if alike else int(rng.choice((1, 1, 2)))
        outputs = channels * int(rng.choice((1, 1, 2))) if depthwise else int(rng.choice((4, 6, 8, 12, 20)))
        outputs = channels if alike else outputs
        shape = (outputs, 1 if depthwise else channels, kernel, kernel)
        weights = rng.integers(-127, 128, shape) // (2 if saturates() else 1)
        weights[rng.random(shape) < rng.choice((0.0, 0.0, 0.3, 0.8))] = 0
        weights[rng.random(outputs) < rng.choice((0.0, 0.3, 0.7, 1.0), p=(0.45, 0.43, 0.1, 0.02))] = 0
        if not depthwise:
            weights[:, rng.random(channels) < rng.choice((0.0, 0.0, 0.3, 0.7))] = 0
        scales = np.full(outputs, 2.0 ** -rng.integers(6, 10), np.float32)
        if rng.integers(2):
            scales = np.exp(rng.uniform(-6, -4, outputs)).astype(np.float32)
        scales[rng.random(outputs) < rng.choice((0.0, 0.0, 0.2))] *= np.float32(
            2.0**-15
        )  # a step of the result is more than all sums
        scale, zero = v.quant if alike else self.quants[rng.integers(4)]
        factor = np.float64(v.scale) * scales / scale
        steps = rng.choice((0.0, 0.0, 0.5, -0.5, 1.5, -2.5, 20.0, -30.0, rng.normal() * 50, 1000.0), outputs)
        bias = np.clip(np.rint(steps / factor), -(1 << 28), 1 << 28).astype(np.int32)
        spatial = tuple(-(-n // stride) if same else (n - kernel) // stride + 1 for n in (rows, columns))
        layer = Layer("depthwise" if depthwise else "conv", [x], Value((outputs, *spatial), scale, zero))
        layer.kernel, layer.stride, layer.same, layer.relu = kernel, stride, same, bool(rng.integers(2))
        layer.weights, layer.scales, layer.bias = weights.astype(np.int8), scales, bias
        self._add(layer)

    def _add(self, layer: Layer) -> None:
        self.layers.append(layer)
        self.values.append(layer.made)

    def pads(self, layer: Layer) -> list[int]:
        """The pads of a layer, begins first, as TFLite's SAME has them."""
        if not layer.same:
            return [0, 0, 0, 0]
        _, rows, columns = self.values[layer.operands[0]].shape
        total = [max((-(-n // layer.stride) - 1) * layer.stride + layer.kernel - n, 0) for n in (rows, columns)]
        return [t // 2 for t in total] + [t - t // 2 for t in total]

    def floats(self, x: Array) -> Array:
        """The float inputs of the ONNX model whose integers these are."""
        first = self.values[0]
        zero = first.zero + (128 if x.dtype == np.uint8 else 0)
        return np.asarray((x.astype(np.int64) - zero) * np.float32(first.scale), np.float32)

    def onnx(self, dtype: type = np.int8) -> onnx.ModelProto:
        """The network in QDQ form; the zero points of uint8 are 128 more."""
        m = Model(dtype)
        more = 128 if dtype == np.uint8 else 0
        names = [m.input((1, *self.values[0].shape), self.values[0].scale, self.values[0].zero + more)]
        for layer in self.layers:
            y = self._onnx_layer(m, layer, [names[i] for i in layer.operands])
            if layer.relu and layer.made.zero == -128:  # others onnxruntime leaves in floats
                y = m.op("Relu", y)
            names.append(m.requantized(y, layer.made.scale, layer.made.zero + more))
        for result in self.results:
            m.output(names[result])
        return m.build()

    def _onnx_layer(self, m: Model, layer: Layer, xs: list[str]) -> str:
        match layer.kind:
            case "conv" | "depthwise":
                x = self.values[layer.operands[0]]
                zeros, channel = np.zeros(len(layer.scales)), {"axis": 0}
                w = [m.const(layer.weights), m.const(layer.scales), m.const(zeros, np.int8)]
                step = (np.float32(x.scale) * layer.scales).astype(np.float32)
                b = [m.const(layer.bias), m.const(step), m.const(zeros, np.int32)]
                inputs = [m.op("DequantizeLinear", *part, **channel) for part in (w, b)]
                group = x.shape[0] if layer.kind == "depthwise" else 1
                return str(m.op("Conv", *xs, *inputs, strides=[layer.stride] * 2, pads=self.pads(layer), group=group))
            case "add":
                return str(m.op("Add", *xs))
            case "concat":
                return str(m.op("Concat", *xs, axis=1))
            case "table":
                return str(m.op("Sigmoid", *xs))
            case "mean":
                return str(m.op("GlobalAveragePool", *xs))
        kind = {"max": "MaxPool", "average": "AveragePool"}[layer.kind]
        return str(m.op(kind, *xs, kernel_shape=[3, 3]))

    def tflite(self) -> bytes:
        """The network as a TFLite file, of int8."""
        tensors, ops = [_tensor("v0", self.values[0])], []
        for number, layer in enumerate(self.layers, 1):
            xs, y = [f"v{i}" for i in layer.operands], f"v{number}"
            tensors.append(_tensor(y, layer.made))
            act = {"FusedActivationFunction": int(layer.relu)}
            window = {"Padding": 0 if layer.same else 1, "StrideW": layer.stride, "StrideH": layer.stride}
            match layer.kind:
                case "conv" | "depthwise":
                    depthwise = layer.kind == "depthwise"
                    x, o = self.values[layer.operands[0]], len(layer.bias)
                    w = layer.weights.transpose((1, 2, 3, 0) if depthwise else (0, 2, 3, 1))
                    step = (np.float32(x.scale) * layer.scales).astype(np.float32)
                    tensors += [
                        tfl.T(f"w{number}", w.shape, "int8", layer.scales, 0, 3 if depthwise else 0, w),
                        tfl.T(f"b{number}", (o,), "int32", step, 0, 0, layer.bias),
                    ]
                    more = {"DepthMultiplier": o // x.shape[0]} if depthwise else {}
                    name = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"
                    kind = "DepthwiseConv2DOptions" if depthwise else "Conv2DOptions"
                    dilation = {"DilationWFactor": 1, "DilationHFactor": 1}
                    ops.append(
                        tfl.Op(name, [*xs, f"w{number}", f"b{number}"], [y], (kind, window | act | more | dilation), 3)
                    )
                case "add":
                    ops.append(tfl.Op("ADD", xs, [y], ("AddOptions", act), 2))
                case "concat":
                    ops.append(tfl.Op("CONCATENATION", xs, [y], ("ConcatenationOptions", {"Axis": 3}), 2))
                case "table":
                    ops.append(tfl.Op("LOGISTIC", xs, [y], None, 2))
                case "mean":
                    tensors.append(tfl.T(f"a{number}", (2,), "int32", data=np.array([1, 2])))
                    ops.append(tfl.Op("MEAN", [*xs, f"a{number}"], [y], ("ReducerOptions", {"KeepDims": True}), 2))
                case _:
                    name = "MAX_POOL_2D" if layer.kind == "max" else "AVERAGE_POOL_2D"
                    pool = window | {"FilterWidth": 3, "FilterHeight": 3}
                    ops.append(tfl.Op(name, xs, [y], ("Pool2DOptions", pool | act), 2))
        return tfl.Model(tensors, ops, ["v0"], [f"v{i}" for i in self.results]).build()


def _tensor(name: str, v: Value) -> tfl.T:
    channels, rows, columns = v.shape
    return tfl.T(name, (1, rows, columns, channels), "int8", v.scale, v.zero)


def extremes(shape: tuple[int, ...], dtype: type, seed: int) -> list[Array]:
    """Inputs at the limits of a type: all lowest, all highest, either at random, and any integers."""
    info, rng = np.iinfo(dtype), np.random.default_rng(seed)
    ends = rng.choice((info.min, info.max), shape)
    any_ = rng.integers(info.min, info.max + 1, shape)
    return [np.full(shape, v, dtype) for v in (info.min, info.max)] + [ends.astype(dtype), any_.astype(dtype)]
