"""The gallery of kernels: equal to their references on several machines, and about as fast as the compiler."""

import importlib.util
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright as tw
from tests.common.onnx_models import model_of
from tests.common.paths import ROOT
from tilewright import kernel as tk
from tilewright.isa.config import NpuConfig
from tilewright.runtime.cost import program_cycles

GALLERY = ROOT / "examples" / "kernels"
random = np.random.default_rng(11)


def load(name: str) -> ModuleType:
    """A file of the gallery."""
    spec = importlib.util.spec_from_file_location(f"gallery_{name}", GALLERY / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def kernel_of(name: str) -> tk.Kernel:
    """The kernel of a file of the gallery."""
    (found,) = [value for value in vars(load(name)).values() if isinstance(value, tk.Kernel)]
    return found


def values(*shape: int) -> np.ndarray:
    """Random int8."""
    return random.integers(-128, 128, shape, np.int8)


def packing(machine: NpuConfig) -> NpuConfig:
    """A machine that unpacks weights of 4 bits, for which a tile is two beats of the bus or more."""
    bits = min(machine.axi_data_bits, 4 * machine.block_in * machine.block_out)
    return machine.with_(packed_weights=1, axi_data_bits=bits)


def biases(channels: int) -> np.ndarray:
    """Random biases."""
    return random.integers(-5000, 5000, channels, np.int32)


#: Shapes and constants of a small case, by the file of the kernel.
CASES: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "matrix_product": ((70, 40), {"w": values(72, 40), "bias": biases(72), "rows": 24, "outputs": 2}),
    "convolution_3x3": (
        (1, 20, 13, 10), {"w": values(40, 20, 3, 3), "bias": biases(40), "zero_point": 5, "rows": 4, "outputs": 2},
    ),
    "depthwise_5x5": ((1, 40, 14, 15), {"w": values(40, 5, 5), "bias": biases(40), "zero_point": -3, "rows": 4}),
    "residual_add": ((1, 24, 9, 7), {"w": values(24, 24), "bias": biases(24), "rows": 4}),
    "fused_mlp": (
        (40, 24),
        {"up": values(64, 24), "down": values(24, 64), "table": np.arange(-128, 128) // 2, "rows": 16, "hidden": 2},
    ),
    "max_pooling": ((1, 24, 9, 8), {"rows": 2}),
    "separable_pooling": ((1, 24, 9, 8), {"rows": 4}),
    "transposed_convolution": ((1, 20, 7, 6), {"w": values(20, 24, 4, 4), "bias": biases(24), "rows": 3}),
    "ds_cnn_block": ((1, 24, 11, 6), {"depthwise": values(24, 3, 3), "pointwise": values(20, 24), "rows": 4}),
    "softmax_head": ((20, 24), {"w": values(35, 24), "bias": biases(35), "rows": 8}),
    "attention": ((20, 24), {"rows": 8}),
    "rms_norm": ((20, 24), {"w": values(20, 24), "gamma": random.uniform(0.5, 1.5, 24), "rows": 8}),
    "gemv_4_bits": ((1, 72), {"w": random.integers(-8, 8, (40, 72), np.int8), "outputs": 2, "inputs": 2}),
    "custom_op": (
        (1, 24, 11, 9), {"w": values(2, 20, 24, 3, 3), "dilations": (1, 2), "zero_points": (3, -7), "rows": 4},
    ),
    "dilated_groups": ((1, 48, 9, 9), {"w": values(3, 24, 16, 3, 3), "rows": 2}),
}  # fmt: skip


def test_all_kernels_have_a_case() -> None:
    assert {path.stem for path in GALLERY.glob("*.py")} == CASES.keys() | {"layers_of_networks"}


@pytest.mark.parametrize("path", sorted(GALLERY.glob("*.py")), ids=lambda path: path.stem)
def test_kernels_are_short(path: Any) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 40


@pytest.mark.medium
@pytest.mark.parametrize("config", ["base", "small", "tiny", "large", "wide", "nano"])
@pytest.mark.parametrize("name", CASES)
def test_kernels_equal_their_references(name: str, config: str) -> None:
    shape, constants = CASES[name]
    machine = NpuConfig.load(config)
    if name in ("softmax_head", "rms_norm", "attention"):
        machine = machine.with_(row_unit=1, lut_tables=8)
    if name == "gemv_4_bits":
        machine = packing(machine)
    if name == "dilated_groups":  # a group is a block
        channels = machine.block_in
        shape, constants = (1, 3 * channels, 9, 9), constants | {"w": values(3, 24, channels, 3, 3)}
    others = [(32, 24), (64, 32)] if name == "attention" else []
    kernel_of(name).check(shape, *others, config=machine, **constants, runs=1)


@pytest.mark.cosim
@pytest.mark.parametrize("name", ["fused_mlp", "depthwise_5x5"])
def test_kernels_on_the_rtl(name: str) -> None:
    shape, constants = CASES[name]
    built = kernel_of(name).check(shape, config="tiny", **constants, runs=1, devices=("rtl",))
    assert built.counters is not None and built.counters.cycles == built.cycles


def layers(shape: tuple[int, ...], *nodes: tuple[str, np.ndarray | None, dict[str, Any]]) -> onnx.ModelProto:
    """A model of quantised layers, one behind the other: op, weights and attributes of each."""
    constants: dict[str, Any] = {"s": np.float32(0.0625), "z": np.int8(0), "ws": np.float32(0.0078125)}
    made, at = [], "q0"
    for number, (op, weights, attributes) in enumerate(nodes):
        made.append(helper.make_node("DequantizeLinear", [at, "s", "z"], [f"x{number}"]))
        inputs = [f"x{number}"]
        if weights is not None:
            constants[f"w{number}"] = weights
            made.append(helper.make_node("DequantizeLinear", [f"w{number}", "ws", "z"], [f"wd{number}"]))
            inputs.append(f"wd{number}")
        made.append(helper.make_node(op, inputs, [f"y{number}"], **attributes))
        at = f"q{number + 1}"
        made.append(helper.make_node("QuantizeLinear", [f"y{number}", "s", "z"], [at]))
    return model_of(made, {"q0": (TensorProto.INT8, list(shape))}, {at: (TensorProto.INT8, None)}, constants)


def one_layer(op: str, shape: tuple[int, ...], weights: np.ndarray | None = None, **attributes: Any) -> onnx.ModelProto:
    """A model of one quantised node."""
    return layers(shape, (op, weights, attributes))


def perceptron() -> onnx.ModelProto:
    """Two products with a table between them."""
    return layers((128, 64), ("MatMul", UP.T.copy(), {}), ("Sigmoid", None, {}), ("MatMul", DOWN.T.copy(), {}))


def ds_cnn() -> onnx.ModelProto:
    """Depthwise 3x3 and 1x1, each behind a Relu."""
    first = D[:, None, 1:4, 1:4].copy()
    return layers(
        (1, 64, 25, 5), ("Conv", first, {"pads": [1] * 4, "group": 64}), ("Relu", None, {}),
        ("Conv", values(64, 64, 1, 1), {}), ("Relu", None, {}),
    )  # fmt: skip


UP, DOWN = values(256, 64), values(64, 256)
G = random.integers(-8, 8, (256, 512), np.int8)
W, C, D, T = values(256, 256), values(64, 64, 3, 3), values(64, 5, 5), values(64, 64, 4, 4)
PLANES = (1, 64, 28, 28)
#: Shape, constants, sizes to choose from on each machine, and the model of the compiler, by the file of the kernel.
RACES: dict[str, tuple[tuple[int, ...], dict[str, Any], dict[str, list[int]], Callable[[], onnx.ModelProto]]] = {
    "matrix_product": (
        (256, 256), {"w": W}, {"rows": [32], "outputs": [1, 2]}, lambda: one_layer("MatMul", (256, 256), W.T.copy())
    ),
    "convolution_3x3": (
        PLANES, {"w": C}, {"rows": [1, 2, 4], "outputs": [1]},
        lambda: one_layer("Conv", PLANES, C, pads=[1, 1, 1, 1]),
    ),
    "depthwise_5x5": (
        PLANES, {"w": D}, {"rows": [2, 7, 14]},
        lambda: one_layer("Conv", PLANES, D[:, None], pads=[2] * 4, strides=[2, 2], group=64),
    ),
    "max_pooling": (
        PLANES, {}, {"rows": [2, 4]},
        lambda: one_layer("MaxPool", PLANES, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
    ),
    "separable_pooling": (
        (1, 64, 20, 20), {}, {"rows": [5, 10, 20]},
        lambda: one_layer("MaxPool", (1, 64, 20, 20), kernel_shape=[5, 5], pads=[2] * 4),
    ),
    "transposed_convolution": (
        (1, 64, 14, 14), {"w": T}, {"rows": [1, 2, 4]},
        lambda: one_layer("ConvTranspose", (1, 64, 14, 14), T, pads=[1] * 4, strides=[2, 2]),
    ),
    "gemv_4_bits": (
        (1, 512), {"w": G}, {"outputs": [4, 8], "inputs": [16, 32]}, lambda: one_layer("MatMul", (1, 512), G.T.copy())
    ),
    "fused_mlp": (
        (128, 64), {"up": UP, "down": DOWN, "table": np.arange(-128, 128)}, {"rows": [16, 43], "hidden": [4, 8]},
        perceptron,
    ),
    "ds_cnn_block": (
        (1, 64, 25, 5), {"depthwise": D[:, 1:4, 1:4], "pointwise": values(64, 64)}, {"rows": [3, 5, 9]}, ds_cnn
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("config", ["base", "small", "tiny"])
@pytest.mark.parametrize("name", RACES)
def test_kernels_are_about_as_fast_as_the_compiler(name: str, config: str) -> None:
    shape, constants, sizes, model = RACES[name]
    machine = packing(NpuConfig.load(config)) if name == "gemv_4_bits" else config
    compiled = program_cycles(tw.compile_program(model(), machine, cache=False, tuning="off"))
    choices: dict[str, Any] = {size: tk.Choices(*values) for size, values in sizes.items()}
    built, _ = kernel_of(name).tune(shape, config=machine, **constants, **choices)
    assert compiled >= 0.98 * built.cycles
