"""A network shaped like MoveNet (single pose, Lightning) as TFLite: MobileNetV2, a feature pyramid of bilinear Resizes
and sums, and four heads; weights are random."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.common.tflite_models import Model, Op, T

#: Channels of the first layers, expansion, repeats and stride of each stage.
STAGES = ((16, 1, 1, 1), (24, 6, 2, 2), (32, 6, 2, 2), (64, 6, 2, 2), (96, 6, 2, 1))
#: Values of each head: a person's middle, joints, joints from the middle, fractions of a pixel.
HEADS = {"center": 1, "joints": 17, "vectors": 34, "fractions": 34}
_SCALE = 0.03
_RELU6 = 3


class _Network:
    """Operators one after the other; names of tensors are numbers."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.tensors: list[T] = []
        self.ops: list[Op] = []

    def tensor(self, shape: Sequence[int], dtype: str = "int8", scale: float | None = None, zero: int = 0) -> T:
        self.tensors.append(T(f"t{len(self.tensors)}", tuple(shape), dtype, scale, zero))
        return self.tensors[-1]

    def constant(self, data: np.ndarray, dtype: str, scale: object = None, axis: int = 0) -> str:
        zero = [0] * len(scale) if isinstance(scale, list) else 0
        self.tensors.append(T(f"c{len(self.tensors)}", data.shape, dtype, scale, zero, axis, data))
        return self.tensors[-1].name

    def scales(self, low: float = 0.8, high: float = 1.25) -> float:
        """A scale of its own for every tensor, so that nothing is the same by accident."""
        return float(np.float32(_SCALE * self.rng.uniform(low, high)))

    def conv(self, x: T, channels: int, kernel: int = 1, stride: int = 1, act: int = 0, depthwise: bool = False) -> T:
        n, h, w, c = x.shape
        channels = c if depthwise else channels
        shape = (1, kernel, kernel, c) if depthwise else (channels, kernel, kernel, c)
        fan = kernel * kernel * (1 if depthwise else c)
        own = np.float32(self.rng.uniform(0.7, 1.4, channels) / (70 * np.sqrt(fan)))
        weights = self.constant(self.rng.integers(-127, 128, shape), "int8", own.tolist(), 3 if depthwise else 0)
        biases = (np.float32(x.scale) * own).tolist()
        bias = self.constant(self.rng.integers(-3000, 3000, channels), "int32", biases)
        size = (-(-h // stride), -(-w // stride))
        y = self.tensor((n, *size, channels), scale=6 / 255 if act else self.scales(), zero=-128 if act else 4)
        fields = {"Padding": 0, "StrideW": stride, "StrideH": stride, "FusedActivationFunction": act}
        fields |= {"DilationWFactor": 1, "DilationHFactor": 1} | ({"DepthMultiplier": 1} if depthwise else {})
        kind = ("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions") if depthwise else ("CONV_2D", "Conv2DOptions")
        self.ops.append(Op(kind[0], [x.name, weights, bias], [y.name], (kind[1], fields), 3))
        return y

    def separable(self, x: T, channels: int, act: int = _RELU6) -> T:
        return self.conv(self.conv(x, 0, 3, depthwise=True), channels, act=act)

    def add(self, x: T, y: T) -> T:
        z = self.tensor(x.shape, scale=self.scales(1.0, 1.5), zero=-3)
        self.ops.append(Op("ADD", [x.name, y.name], [z.name], ("AddOptions", {"PotScaleInt16": False}), 2))
        return z

    def twice(self, x: T) -> T:
        """Bilinear, with half-pixel centres."""
        n, h, w, c = x.shape
        y = self.tensor((n, 2 * h, 2 * w, c), scale=x.scale, zero=x.zero)
        size = self.constant(np.array([2 * h, 2 * w]), "int32")
        self.ops.append(Op("RESIZE_BILINEAR", [x.name, size], [y.name],
                           ("ResizeBilinearOptions", {"HalfPixelCenters": True}), 3))  # fmt: skip
        return y

    def logistic(self, x: T) -> T:
        y = self.tensor(x.shape, scale=1 / 256, zero=-128)
        self.ops.append(Op("LOGISTIC", [x.name], [y.name], None, 2))
        return y

    def place_of_largest(self, x: T) -> T:
        """The index of the largest of all elements, int32 [1]."""
        size = int(np.prod(x.shape))
        flat, found = self.tensor((1, size), scale=x.scale, zero=x.zero), self.tensor((1,), "int32")
        shape = self.constant(np.array([1, size]), "int32")
        self.ops.append(Op("RESHAPE", [x.name, shape], [flat.name], ("ReshapeOptions", {"NewShape": [1, size]})))
        axis = self.constant(np.array([1]), "int32")
        self.ops.append(Op("ARG_MAX", [flat.name, axis], [found.name], ("ArgMaxOptions", {"OutputType": 2}), 2))
        return found


def movenet(size: int = 96, joined: int = 24, hidden: int = 96, seed: int = 0) -> bytes:
    """The file. Input: uint8 [1, size, size, 3]. Outputs: four int8 tensors [1, size / 4, size / 4, values] and the
    place of the largest middle.

    Args:
        size: a multiple of 32.
        joined: channels of the pyramid.
        hidden: channels within a head.
    """
    n = _Network(seed)
    picture = n.tensor((1, size, size, 3), "uint8", 1 / 127.5, 127)
    x = n.tensor(picture.shape, scale=1 / 127.5, zero=-1)
    n.ops.append(Op("QUANTIZE", [picture.name], [x.name], None, 1))
    x = n.conv(x, 32, 3, 2, _RELU6)
    stages = []
    for channels, expansion, repeats, first in STAGES:
        for repeat in range(repeats):
            stride = first if repeat == 0 else 1
            inner = n.conv(x, expansion * x.shape[3], act=_RELU6) if expansion > 1 else x
            y = n.conv(n.conv(inner, 0, 3, stride, _RELU6, depthwise=True), channels)
            x = n.add(y, x) if y.shape == x.shape else y
        stages.append(x)
    y = n.conv(stages[4], joined)
    for finer in (stages[2], stages[1]):
        y = n.separable(n.add(n.twice(y), n.conv(finer, joined)), joined)
    heads = [n.conv(n.separable(y, hidden), values) for values in HEADS.values()]
    heads[0], heads[1] = n.logistic(heads[0]), n.logistic(heads[1])
    found = n.place_of_largest(heads[0])
    return Model(n.tensors, n.ops, [picture.name], [t.name for t in (*heads, found)]).build()
