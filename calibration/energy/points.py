"""Machines and programs that the truth is measured on, fitted and held back. Programs take some thousand cycles
each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import onnx

from tilewright.isa.config import PRESETS, NpuConfig
from tilewright.isa.timing import MemoryTiming
from tilewright.zoo.builder import Builder, Value
from tilewright.zoo.quantization import quantize
from tilewright.zoo.transformer import attention

_TINY, _SMALL, _BASE = PRESETS["tiny"], PRESETS["small"], PRESETS["base"]
#: The smallest machine, with a queue for VECTOR and more bursts in flight than the preset has.
_NANO = PRESETS["nano"].with_(vector_queue=1, read_outstanding=4, write_outstanding=2)
#: Machines, small ones first, each with whether it is held back from the fit. Held-back machines and programs were made
#: after the terms of the model had been chosen, so that the choice did not depend on their errors.
MACHINES: tuple[tuple[NpuConfig, bool], ...] = (
    (_TINY, False),
    (_NANO, False),
    (PRESETS["pynq"], False),
    (_TINY.with_(name="long", block_in=8, depthwise=0, vector_passes=4), False),
    (_TINY.with_(name="norms", vector_passes=1, row_unit=1, queue_depth=32), False),
    (_TINY.with_(name="tall", block_out=16, vector_passes=2, axi_data_bits=64, queue_depth=8), True),
    (_TINY.with_(name="flat", block_in=16, acc_rows=1024), False),
    (_SMALL, False),
    (_SMALL.with_(name="plain", depthwise=0, axi_data_bits=32, act_banks=8, queue_depth=8), False),
    (_SMALL.with_(name="eight norms", vector_passes=1, row_unit=1, semaphores=31), False),
    (_SMALL.with_(name="half", block_out=16, vector_passes=4, axi_data_bits=128), False),
    (_SMALL.with_(name="rows", block_in=16, block_out=8, vector_passes=2), False),
    (_BASE.with_(name="square", row_unit=0, vector_passes=4), False),
    (_BASE, True),
)  # fmt: skip


@dataclass(frozen=True)
class Point:
    """A program of the truth: layers after an input of a shape (NCHW), and the timing of external memory. `rows`: it
    uses the row unit."""

    name: str
    held_back: bool
    shape: tuple[int, ...]
    layers: Callable[[Builder, Value], Value]
    timing: MemoryTiming = field(default_factory=MemoryTiming)
    rows: bool = False

    def suits(self, config: NpuConfig) -> bool:
        """Returns whether the machine has the units that the program is for."""
        return not self.rows or bool(config.row_unit)

    def model(self) -> onnx.ModelProto:
        """Builds the network, quantised to int8."""
        b = Builder(self.name.replace(" ", "_"), seed=1)
        return quantize(b.finish(self.layers(b, b.input(self.shape))))


def _block(b: Builder, x: Value) -> Value:
    y = b.conv(b.conv(x, 16, 3, activation="relu"), 16, 3, gain=0.5)
    return b.add(x, y, "relu")


def _narrow(b: Builder, x: Value) -> Value:
    return b.add(x, b.conv(b.conv(x, 24, 3, activation="relu"), 8, 3, gain=0.5))


def _inverted(b: Builder, x: Value) -> Value:
    y = b.depthwise(b.conv(x, 48, 1, activation="relu6"), 3, activation="relu6")
    return b.add(b.conv(y, 16, 1, gain=0.5), x)


def _chain(b: Builder, x: Value) -> Value:
    return b.conv(b.conv(b.conv(x, 32, 1, activation="relu"), 24, 1), 8, 1, activation="relu")


def _separable(b: Builder, x: Value) -> Value:
    y = b.conv(b.depthwise(x, 3, activation="relu"), 16, 1, activation="relu")
    return b.conv(b.depthwise(y, 3, stride=2, activation="relu"), 8, 1)


def _keyword(b: Builder, x: Value) -> Value:
    y = b.conv(x, 16, (5, 4), stride=2, activation="relu")
    for _ in range(2):
        y = b.conv(b.depthwise(y, 3, activation="relu"), 16, 1, activation="relu")
    return b.dense(b.global_pool(y, flatten=True), 12)


def _perceptron(b: Builder, x: Value) -> Value:
    for features in (64, 24, 64, 200):
        x = b.dense(x, features, activation="relu")
    return x


def _stem(b: Builder, x: Value) -> Value:
    return b.max_pool(b.conv(x, 8, 3, stride=2, activation="relu"), 2, 2)


def _softmax(b: Builder, x: Value) -> Value:
    y = b.dense(x, 40)
    return b.dense(b.op("Softmax", [y], y.shape, axis=-1), 16)


def _norms(b: Builder, x: Value) -> Value:
    return b.dense(b.layer_norm(b.dense(x, 48)), 16)


def _bottleneck(b: Builder, x: Value) -> Value:
    y = b.conv(b.conv(x, 8, 1, activation="relu"), 8, 3, activation="relu")
    return b.add(b.conv(y, 20, 1, gain=0.5), x, "relu")


def _gated(b: Builder, x: Value) -> Value:
    y = b.depthwise(b.conv(x, 24, 1, activation="hard_swish"), 5, stride=2, activation="hard_swish")
    return b.conv(b.squeeze_excite(y, 8, "relu", "hard_sigmoid"), 12, 1)


def _two_ways(b: Builder, x: Value) -> Value:
    y = b.concat([b.conv(x, 12, 1, activation="relu"), b.conv(x, 12, 3, activation="relu")])
    return b.max_pool(b.conv(y, 12, 1), 3, 2, 1)


def _pyramid(b: Builder, x: Value) -> Value:
    y = b.resize(b.conv(b.max_pool(x, 2, 2), 12, 3, activation="relu"))
    return b.conv(b.add(y, b.conv(x, 12, 1)), 6, 3)


def _autoencoder(b: Builder, x: Value) -> Value:
    for features in (48, 8, 48, 150):
        x = b.dense(x, features, activation="relu")
    return x


def _rows(b: Builder, x: Value) -> Value:
    y = b.dense(b.layer_norm(b.dense(x, 64)), 20)
    return b.dense(b.op("Softmax", [y], y.shape, axis=-1), 32)


def _transformer(b: Builder, x: Value) -> Value:
    x = b.add(x, attention(b, b.layer_norm(x), 2))
    return b.add(x, b.dense(b.dense(b.layer_norm(x), 48, activation="gelu"), 24))


def _residual(b: Builder, x: Value) -> Value:
    y = b.conv(b.conv(x, 20, 3, stride=2, activation="relu"), 20, 3, gain=0.5)
    return b.dense(b.global_pool(b.add(y, b.conv(x, 20, 1, stride=2), "relu"), flatten=True), 16)


def _mobile(b: Builder, x: Value) -> Value:
    y = b.conv(x, 12, 3, stride=2, activation="relu6")
    y = b.conv(b.depthwise(y, 3, activation="relu6"), 20, 1, activation="relu6")
    return b.conv(b.depthwise(y, 5, stride=2, activation="relu6"), 28, 1)


def _fire(b: Builder, x: Value) -> Value:
    y = b.conv(b.max_pool(b.conv(x, 8, 1, activation="relu"), 2, 2), 6, 1, activation="relu")
    y = b.concat([b.conv(y, 14, 1, activation="relu"), b.conv(y, 14, 3, activation="relu")])
    return b.conv(y, 10, 1, activation="relu")


def _decoder(b: Builder, x: Value) -> Value:
    y = b.conv(b.resize(b.conv(x, 10, 1, activation="relu")), 8, 3, activation="relu")
    return b.conv(y, 4, 1, activation="sigmoid")


def _mixer(b: Builder, x: Value) -> Value:
    for features in (90, 36, 36, 12):
        x = b.dense(x, features, activation="hard_swish")
    return x


def _encoder(b: Builder, x: Value) -> Value:
    y = b.dense(b.layer_norm(b.dense(x, 40, activation="relu")), 28)
    return b.dense(b.op("Softmax", [y], y.shape, axis=-1), 20)


_SLOW = MemoryTiming(read_latency=200, write_latency=100, read_interval=4, write_interval=4)
POINTS: tuple[Point, ...] = (
    Point("conv3", False, (1, 16, 6, 6), lambda b, x: b.conv(x, 16, 3, activation="relu")),
    Point("conv1", False, (1, 40, 6, 6), lambda b, x: b.conv(x, 24, 1, activation="relu")),
    Point("depthwise", False, (1, 32, 8, 8), lambda b, x: b.depthwise(x, 3, activation="relu6")),
    Point("dense", False, (1, 200), lambda b, x: b.dense(x, 80)),
    Point("add", False, (1, 16, 9, 9), lambda b, x: b.add(x, b.conv(x, 16, 1), "relu")),
    Point("pool", False, (1, 16, 9, 9), lambda b, x: b.max_pool(b.conv(x, 16, 1), 3, 1, 1)),
    Point("table", False, (1, 16, 8, 8), lambda b, x: b.conv(x, 16, 1, activation="hard_swish")),
    # What stays on the chip: rows that are worked on and not stored.
    Point("chain", False, (1, 8, 6, 6), _chain),
    Point("separable", False, (1, 8, 8, 8), _separable),
    Point("slow", False, (1, 128), lambda b, x: b.dense(x, 32), _SLOW),
    Point("softmax", False, (1, 24, 16), _softmax, rows=True),
    Point("norms", False, (1, 24, 16), _norms, rows=True),
    Point("block", False, (1, 16, 5, 5), _block),
    Point("inverted", False, (1, 16, 6, 6), _inverted),
    Point("keyword", False, (1, 1, 21, 8), _keyword),
    Point("perceptron", False, (1, 100), _perceptron),
    Point("stem", False, (1, 3, 24, 24), _stem),
    Point("slow block", False, (1, 8, 5, 5), _narrow, MemoryTiming(read_latency=100, read_interval=2)),
    Point("bottleneck", False, (1, 20, 7, 7), _bottleneck),
    Point("gated", False, (1, 10, 9, 9), _gated),
    Point("two ways", False, (1, 6, 10, 10), _two_ways),
    Point("pyramid", False, (1, 6, 10, 10), _pyramid),
    Point("autoencoder", False, (1, 150), _autoencoder, MemoryTiming(read_latency=60)),
    Point("slow gated", False, (1, 10, 7, 7), _gated, _SLOW),
    Point("norm and softmax", False, (1, 18, 24), _rows, rows=True),
    Point("transformer", False, (1, 16, 24), _transformer, rows=True),
    Point("residual", True, (1, 10, 10, 10), _residual),
    Point("mobile", True, (1, 3, 20, 20), _mobile),
    Point("fire", True, (1, 10, 14, 14), _fire),
    Point("decoder", True, (1, 18, 5, 5), _decoder),
    Point("mixer", True, (1, 60), _mixer),
    Point("slow residual", True, (1, 10, 8, 8), _residual, MemoryTiming(read_latency=150, read_interval=3)),
    Point("encoder", True, (1, 14, 20), _encoder, rows=True),
)  # fmt: skip
