"""Write float ONNX networks with `onnx.helper`: seeded weights, tracked shapes, one method per kind of layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 18
IR_VERSION = 10

Size = int | tuple[int, int]
"""A square height and width, or (height, width)."""


class Value(NamedTuple):
    """A float32 tensor of the graph under construction."""

    name: str
    shape: tuple[int, ...]

    @property
    def channels(self) -> int:
        """Size of the channel axis of an [N, C, ...] tensor."""
        return self.shape[1]


def pair(size: Size) -> tuple[int, int]:
    """(height, width) of a size given in either form."""
    return (size, size) if isinstance(size, int) else size


def scaled_channels(channels: float) -> int:
    """The nearest multiple of 8, never more than 10 % below `channels`: the MobileNet rule."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


class Builder:
    """A graph under construction.

    Every layer method takes and returns a `Value`. Weights are He-initialised (`normal * gain * sqrt(2 / fan_in)`)
    from one seeded generator, so equal calls give equal models. With `batch_norm=True` each normalised layer is
    followed by a BatchNormalization node with random statistics; with False the same affine map is folded into
    weights and bias.
    """

    def __init__(self, name: str, *, seed: int = 0, batch_norm: bool = False) -> None:
        self.name = name
        self.batch_norm = batch_norm
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}
        self.inputs: list[onnx.ValueInfoProto] = []
        self.counts: dict[str, int] = {}

    # ---- plumbing

    def fresh(self, kind: str) -> str:
        """A name not used before, such as `conv_3`."""
        number = self.counts[kind] = self.counts.get(kind, -1) + 1
        return f"{kind}_{number}"

    def constant(self, array: np.ndarray, name: str) -> str:
        """Add an initialiser; returns its name."""
        self.constants[name] = numpy_helper.from_array(np.asarray(array, order="C"), name)
        return name

    def input(self, shape: Sequence[int], name: str = "input") -> Value:
        """A float32 graph input."""
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)))
        return Value(name, tuple(shape))

    def op(self, op_type: str, inputs: Sequence[object], shape: Sequence[int], **attributes: object) -> Value:
        """Add one node with one output of the given shape."""
        name = self.fresh(op_type.lower())
        names = [x.name if isinstance(x, Value) else str(x) for x in inputs]
        self.nodes.append(helper.make_node(op_type, names, [name], name=name, **attributes))
        return Value(name, tuple(int(d) for d in shape))

    def finish(self, output: Value, name: str = "output") -> onnx.ModelProto:
        """The model whose one output is `output`, checked with full shape inference."""
        for node in self.nodes:
            node.input[:] = [name if x == output.name else x for x in node.input]
            node.output[:] = [name if x == output.name else x for x in node.output]
        result = helper.make_tensor_value_info(name, TensorProto.FLOAT, list(output.shape))
        graph = helper.make_graph(self.nodes, self.name, self.inputs, [result], list(self.constants.values()))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="tilewright.zoo")
        model.ir_version = IR_VERSION
        model = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
        onnx.checker.check_model(model)
        return model

    # ---- weights

    def he(self, shape: Sequence[int], fan_in: int, gain: float = 1.0) -> np.ndarray:
        """He-initialised float32 weights."""
        deviation = gain * np.sqrt(2 / fan_in)
        return (self.random.standard_normal(tuple(shape), dtype=np.float32) * np.float32(deviation)).astype(np.float32)

    def statistics(self, channels: int) -> dict[str, np.ndarray]:
        """Batch-norm parameters near the identity, each float32 [channels]."""

        def draw(low: float, high: float) -> np.ndarray:
            return self.random.uniform(low, high, channels).astype(np.float32)

        # The order is the order of BatchNormalization's inputs.
        return {"scale": draw(0.8, 1.2), "shift": draw(-0.2, 0.2), "mean": draw(-0.1, 0.1), "var": draw(0.8, 1.2)}

    # ---- layers with weights

    def conv(
        self,
        x: Value,
        channels: int,
        kernel: Size = 3,
        *,
        stride: Size = 1,
        padding: Size | tuple[int, int, int, int] | None = None,
        groups: int = 1,
        norm: bool = True,
        activation: str | None = None,
        gain: float = 1.0,
    ) -> Value:
        """Convolution [N, C, H, W] -> [N, channels, H', W'] with batch norm (or bias only) and activation.

        `padding` is one size, (vertical, horizontal) or (top, left, bottom, right); the default keeps the size at
        stride 1.
        """
        (kh, kw), (sh, sw) = pair(kernel), pair(stride)
        if padding is None:
            padding = (kh // 2, kw // 2)
        sides = pair(padding) * 2 if isinstance(padding, int) or len(padding) == 2 else padding
        n, c, h, w = x.shape
        out = (n, channels, (h + sides[0] + sides[2] - kh) // sh + 1, (w + sides[1] + sides[3] - kw) // sw + 1)
        weights = self.he((channels, c // groups, kh, kw), c // groups * kh * kw, gain)
        y = self._normalised(
            "Conv", x, weights, out, norm, 0, kernel_shape=[kh, kw], strides=[sh, sw], pads=list(sides), group=groups
        )
        return self.activate(y, activation)

    def depthwise(self, x: Value, kernel: Size = 3, **options: object) -> Value:
        """Convolution of every channel by itself; options as for `conv`."""
        return self.conv(x, x.channels, kernel, groups=x.channels, **options)  # type: ignore[arg-type]

    def conv_transpose(self, x: Value, channels: int, *, activation: str | None = None) -> Value:
        """Learned doubling of height and width: [N, C, H, W] -> [N, channels, 2H, 2W], kernel 2, stride 2."""
        n, c, h, w = x.shape
        weights = self.he((c, channels, 2, 2), c)
        y = self._normalised(
            "ConvTranspose", x, weights, (n, channels, 2 * h, 2 * w), True, 1, kernel_shape=[2, 2], strides=[2, 2]
        )
        return self.activate(y, activation)

    def _normalised(
        self,
        op_type: str,
        x: Value,
        weights: np.ndarray,
        shape: Sequence[int],
        norm: bool,
        axis: int,
        **attributes: object,
    ) -> Value:
        """A convolution and its batch norm; `axis` is the output channel's place in `weights`."""
        channels = weights.shape[axis]
        parameters = self.statistics(channels)
        prefix = f"{op_type.lower()}_{self.counts.get(op_type.lower(), -1) + 1}"
        if norm and self.batch_norm:
            y = self.op(op_type, [x, self.constant(weights, f"{prefix}.weight")], shape, **attributes)
            names = [self.constant(array, f"{prefix}.norm.{name}") for name, array in parameters.items()]
            return self.op("BatchNormalization", [y, *names], shape, epsilon=1e-5)
        bias = parameters["shift"]
        if norm:
            factor = parameters["scale"] / np.sqrt(parameters["var"] + np.float32(1e-5))
            bias = bias - parameters["mean"] * factor
            weights = weights * factor.reshape([-1 if i == axis else 1 for i in range(weights.ndim)])
        inputs = [x, self.constant(weights, f"{prefix}.weight"), self.constant(bias, f"{prefix}.bias")]
        return self.op(op_type, inputs, shape, **attributes)

    def dense(self, x: Value, features: int, *, activation: str | None = None, gain: float = 1.0) -> Value:
        """Fully connected layer on the last axis: Gemm for [N, C], MatMul and Add for more axes."""
        c = x.shape[-1]
        shape = (*x.shape[:-1], features)
        bias = self.random.uniform(-0.1, 0.1, features).astype(np.float32)
        kind = "Gemm" if len(x.shape) == 2 else "MatMul"
        prefix = f"{kind.lower()}_{self.counts.get(kind.lower(), -1) + 1}"
        if kind == "Gemm":
            weights = self.constant(self.he((features, c), c, gain), f"{prefix}.weight")
            y = self.op("Gemm", [x, weights, self.constant(bias, f"{prefix}.bias")], shape, transB=1)
        else:
            weights = self.constant(self.he((c, features), c, gain), f"{prefix}.weight")
            y = self.op("MatMul", [x, weights], shape)
            y = self.op("Add", [y, self.constant(bias, f"{prefix}.bias")], shape)
        return self.activate(y, activation)

    def layer_norm(self, x: Value) -> Value:
        """LayerNormalization over the last axis with random scale and bias."""
        c = x.shape[-1]
        prefix = f"layernormalization_{self.counts.get('layernormalization', -1) + 1}"
        scale = self.constant(self.random.uniform(0.8, 1.2, c).astype(np.float32), f"{prefix}.scale")
        bias = self.constant(self.random.uniform(-0.2, 0.2, c).astype(np.float32), f"{prefix}.bias")
        return self.op("LayerNormalization", [x, scale, bias], x.shape, axis=-1, epsilon=1e-6)

    # ---- layers without weights

    def activate(self, x: Value, activation: str | None) -> Value:
        """Apply an activation by name; None is the identity."""
        match activation:
            case None:
                return x
            case "relu":
                return self.op("Relu", [x], x.shape)
            case "relu6":
                low = self.constant(np.array(0, np.float32), "relu6.low")
                high = self.constant(np.array(6, np.float32), "relu6.high")
                return self.op("Clip", [x, low, high], x.shape)
            case "sigmoid":
                return self.op("Sigmoid", [x], x.shape)
            case "hard_sigmoid":
                return self.op("HardSigmoid", [x], x.shape, alpha=1 / 6, beta=0.5)
            case "hard_swish":
                return self.op("HardSwish", [x], x.shape)
            case "silu":
                return self.op("Mul", [x, self.op("Sigmoid", [x], x.shape)], x.shape)
            case "gelu":
                # The form exporters write: 0.5 * x * (1 + erf(x / sqrt(2))).
                root = self.constant(np.array(np.sqrt(2), np.float32), "gelu.root")
                one = self.constant(np.array(1, np.float32), "gelu.one")
                half = self.constant(np.array(0.5, np.float32), "gelu.half")
                error = self.op("Erf", [self.op("Div", [x, root], x.shape)], x.shape)
                product = self.op("Mul", [x, self.op("Add", [error, one], x.shape)], x.shape)
                return self.op("Mul", [product, half], x.shape)
        raise ValueError(f"activation must be a known name or None, not {activation!r}")

    def add(self, x: Value, y: Value, activation: str | None = None) -> Value:
        """Element by element sum of two tensors of one shape."""
        return self.activate(self.op("Add", [x, y], x.shape), activation)

    def max_pool(self, x: Value, kernel: int, stride: int, padding: int = 0) -> Value:
        """Max pooling over height and width."""
        n, c, h, w = x.shape
        out = [(d + 2 * padding - kernel) // stride + 1 for d in (h, w)]
        options = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [padding] * 4}
        return self.op("MaxPool", [x], (n, c, *out), **options)

    def global_pool(self, x: Value, *, flatten: bool = False) -> Value:
        """Mean over height and width: [N, C, 1, 1], or [N, C] when flattened."""
        n, c = x.shape[:2]
        y = self.op("GlobalAveragePool", [x], (n, c, 1, 1))
        return self.op("Flatten", [y], (n, c), axis=1) if flatten else y

    def squeeze_excite(self, x: Value, squeezed: int, activation: str, gate: str) -> Value:
        """Scale every channel by a gate computed from the mean of all channels."""
        y = self.conv(self.global_pool(x), squeezed, 1, norm=False, activation=activation)
        y = self.conv(y, x.channels, 1, norm=False, activation=gate)
        return self.op("Mul", [x, y], x.shape)

    def resize(self, x: Value, factor: int = 2, mode: str = "nearest") -> Value:
        """Enlarge height and width by a whole factor, `nearest` or `linear`."""
        n, c, h, w = x.shape
        scales = self.constant(np.array([1, 1, factor, factor], np.float32), f"resize.by_{factor}")
        nearest = {"nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
        options = nearest if mode == "nearest" else {"coordinate_transformation_mode": "half_pixel"}
        return self.op("Resize", [x, "", scales], (n, c, h * factor, w * factor), mode=mode, **options)

    def concat(self, values: Sequence[Value], axis: int = 1) -> Value:
        """Join tensors along one axis."""
        shape = list(values[0].shape)
        shape[axis] = sum(v.shape[axis] for v in values)
        return self.op("Concat", values, shape, axis=axis)

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        """Reshape; the batch is copied from the input, so that it can be changed later."""
        if x.shape[0] != shape[0]:
            raise ValueError(f"reshape must keep the batch {x.shape[0]}, not {shape[0]}")
        target = np.array([0, *shape[1:]], np.int64)
        name = "shape_" + "_".join(str(d) for d in shape[1:])
        return self.op("Reshape", [x, self.constant(target, name)], shape)

    def transpose(self, x: Value, order: Sequence[int]) -> Value:
        """Permute the axes."""
        return self.op("Transpose", [x], [x.shape[i] for i in order], perm=list(order))
