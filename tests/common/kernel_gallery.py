"""The gallery of kernels, and its cycles beside those of the compiler: `python -m tests.common.kernel_gallery`."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

import tilewright as tw
from tests.common.onnx_models import model_of
from tests.common.paths import ROOT
from tilewright import kernel as tk
from tilewright.isa.config import NpuConfig
from tilewright.runtime.cost import program_cycles

MACHINES = ("base", "small", "tiny")
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


def residual() -> onnx.ModelProto:
    """A product with its input added."""
    made = one_layer("Conv", PLANES, values(64, 64, 1, 1))
    last = made.graph.node.pop()
    made.graph.node.extend(
        [
            helper.make_node("QuantizeLinear", ["y0", "s", "z"], ["p"]),
            helper.make_node("DequantizeLinear", ["p", "s", "z"], ["f"]),
            helper.make_node("Add", ["f", "x0"], ["sum"]),
            helper.make_node("QuantizeLinear", ["sum", "s", "z"], list(last.output)),
        ]
    )
    return made


def attention() -> onnx.ModelProto:
    """A head of attention, whose values come transposed."""
    make, nodes = helper.make_node, []
    for name in ("q", "k", "v"):
        nodes.append(make("DequantizeLinear", [name, "s", "z"], [f"{name}.f"]))
    nodes += [make("Transpose", [f"{name}.f"], [f"{name}.t"], perm=[1, 0]) for name in ("k", "v")]
    steps = [
        ("MatMul", ["q.f", "k.t"], "a", "s"),
        ("Softmax", ["a.q.f"], "b", "p"),
        ("MatMul", ["b.q.f", "v.t"], "y", "s"),
    ]
    for op, inputs, result, scale in steps:
        nodes.append(make(op, inputs, [result]))
        nodes.append(make("QuantizeLinear", [result, scale, "z"], [f"{result}.q"]))
        nodes.append(make("DequantizeLinear", [f"{result}.q", scale, "z"], [f"{result}.q.f"]))
    constants: dict[str, Any] = {"s": np.float32(0.0625), "z": np.int8(0), "p": np.float32(1 / 127)}
    shapes = {"q": (64, 32), "k": (64, 32), "v": (32, 64)}
    inputs = {name: (TensorProto.INT8, list(shape)) for name, shape in shapes.items()}
    return model_of(nodes[:-1], inputs, {"y.q": (TensorProto.INT8, None)}, constants)


def normalised() -> onnx.ModelProto:
    """RMSNorm and a product."""
    norm = {"axis": -1, "domain": "com.microsoft"}
    gamma = np.full(64, 100, np.int8)
    return layers((128, 64), ("SimplifiedLayerNormalization", gamma, norm), ("MatMul", H.T.copy(), {}))


UP, DOWN = values(256, 64), values(64, 256)
G = random.integers(-8, 8, (256, 512), np.int8)
H = values(64, 64)
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
    "residual_add": (PLANES, {"w": values(64, 64)}, {"rows": [1, 2, 4, 7]}, residual),
    "attention": ((64, 32), {}, {"rows": [4, 8, 16, 32]}, attention),
    "rms_norm": ((128, 64), {"w": H, "gamma": np.ones(64)}, {"rows": [4, 8, 32]}, normalised),
    "gemv_4_bits": (
        (1, 512), {"w": G}, {"outputs": [4, 8], "inputs": [16, 32, 128]},
        lambda: one_layer("MatMul", (1, 512), G.T.copy()),
    ),
    "fused_mlp": (
        (128, 64), {"up": UP, "down": DOWN, "table": np.arange(-128, 128)}, {"rows": [16, 43], "hidden": [4, 8]},
        perceptron,
    ),
    "ds_cnn_block": (
        (1, 64, 25, 5), {"depthwise": D[:, 1:4, 1:4], "pointwise": values(64, 64)}, {"rows": [3, 5, 9]}, ds_cnn
    ),
}  # fmt: skip


def race(name: str, config: str) -> tuple[tk.Built, dict[str, Any], int]:
    """The fastest choice of a kernel on a machine with what it needs, and the compiler's cycles for the same layers."""
    shape, constants, sizes, model = RACES[name]
    machine = NpuConfig.load(config)
    if name == "gemv_4_bits":
        machine = packing(machine)
    if name in ("attention", "rms_norm"):
        machine = machine.with_(row_unit=1, lut_tables=8)
    choices: dict[str, Any] = {size: tk.Choices(*values) for size, values in sizes.items()}
    others = [(64, 32), (32, 64)] if name == "attention" else []
    built, chosen = kernel_of(name).tune(shape, *others, config=machine, **constants, **choices)
    return built, chosen, program_cycles(tw.compile_program(model(), machine, cache=False, tuning="off"))


def main() -> None:
    """Prints cycles and the compiler's share for all kernels that the compiler has layers for."""
    print(
        f"{'kernel':24}" + "".join(f"{name:>10} of {'compiler':10}" for name in MACHINES) + "chosen on " + MACHINES[0]
    )
    for name in RACES:
        races = [race(name, config) for config in MACHINES]
        cells = "".join(f"{built.cycles:>10,} {compiled / built.cycles:>10.3f}   " for built, _, compiled in races)
        print(f"{name:24}{cells}{races[0][1]}", flush=True)


if __name__ == "__main__":
    main()
