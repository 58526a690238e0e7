"""Kernels in the place of layers: the same bytes, also where tensors stay in ACT; mistakes are told."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import helper

import tilewright as tw
from tests.common.onnx_models import model_of
from tests.common.paths import ROOT
from tests.common.quantized_chain import input_of, quantized_chain
from tilewright import kernel as tk
from tilewright.cli import cli
from tilewright.compiler.errors import CompileError
from tilewright.kernel.files import load_kernels

FILE = ROOT / "examples" / "kernels" / "layers_of_networks.py"


@tk.kernel
def window(k: tk.Chip, x: tk.Tensor, *, layer: tk.LayerFacts) -> tk.Tensor:
    weights = k.window(layer.weights, stride=layer.stride, pad=layer.pad)
    params, y = k.params(layer.bias, layer.scale), k.tensor(layer.output)
    for block in range(y.blocks):
        for part in tk.chunks(y.rows, 3):
            tile = k.load(x.at(weights.rows(part), weights.columns(range(y.columns)), block), pad=layer.fill)
            sums = k.depthwise(tile, weights.at(block))
            k.requantise(sums, params, **layer.post, into=y.at(part, blocks=block))
            del sums
    return y


@window.replaces
def _depthwise(layer: tk.LayerFacts) -> dict[str, Any] | None:
    return {"layer": layer} if layer.kind == "depthwise" else None


@tk.kernel
def products(k: tk.Chip, x: tk.Tensor, *, layer: tk.LayerFacts) -> tk.Tensor:
    y, weights = k.tensor(layer.output), k.weights(layer.weights)
    for image in range(x.images):
        sums = k.matmul(k.load(x.at(image=image)), weights)
        k.store(k.requantise(sums, k.params(layer.bias, layer.scale), **layer.post), y.at(image=image))
    return y


@products.replaces
def _matrix(layer: tk.LayerFacts) -> dict[str, Any] | None:
    return {"layer": layer} if layer.kind == "conv" and layer.output[0] > 1 else None


def residual_network() -> onnx.ModelProto:
    """Convolution, depthwise, 1x1 with an Add of the first's result, Relu, product by a matrix."""
    random = np.random.default_rng(3)
    weights = {"a": (12, 8, 3, 3), "b": (12, 1, 3, 3), "c": (12, 12, 1, 1)}
    constants: dict[str, Any] = {
        "s": np.float32(0.0625),
        "z": np.int8(3),
        "ws": np.float32(0.0078125),
        "wz": np.int8(0),
    }
    constants |= {f"{name}w": random.integers(-90, 90, shape, np.int8) for name, shape in weights.items()}
    constants["dw"] = random.integers(-90, 90, (10, 7), np.int8)
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"])]

    def quantised(name: str) -> str:
        nodes.append(helper.make_node("QuantizeLinear", [name, "s", "z"], [f"{name}q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}q", "s", "z"], [f"{name}d"]))
        return f"{name}d"

    def layer(name: str, source: str, op: str = "Conv", **attributes: Any) -> str:
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}w", "ws", "wz"], [f"{name}v"]))
        nodes.append(helper.make_node(op, [source, f"{name}v"], [name], name, **attributes))
        return quantised(name)

    nodes.append(helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xd"]))
    first = layer("a", "xd", pads=[1, 1, 1, 1])
    third = layer("c", layer("b", first, pads=[1, 1, 1, 1], group=12))
    nodes.append(helper.make_node("Add", [third, first], ["e"], "e"))
    last = layer("d", quantised("e"), "MatMul")
    nodes.append(helper.make_node("Identity", [last], ["y"]))
    return model_of(
        nodes, {"x": (onnx.TensorProto.FLOAT, [1, 8, 9, 10])}, {"y": (onnx.TensorProto.FLOAT, None)}, constants
    )


@pytest.mark.slow
@pytest.mark.parametrize("keep", ["outputs", "all"])
@pytest.mark.parametrize("config", ["base", "tiny", "wide"])
def test_kernels_make_the_same_bytes(config: str, keep: str) -> None:
    kernels = [*load_kernels(FILE), window, products]
    for model, feeds in (
        (residual_network(), {"x": np.random.default_rng(1).standard_normal((1, 8, 9, 10)).astype(np.float32)}),
        (quantized_chain(3, 16, 12), input_of(16, 12)),
    ):
        usual = tw.compile_program(model, config, keep=keep, cache=False, tuning="off")
        own = tw.compile_program(model, config, keep=keep, kernels=kernels, tuning="off")
        by = {layer.op for layer in own.layers if layer.where == "npu"}
        assert any(op.startswith("kernel ") for op in by)
        wanted = tw.Device("functional").run(usual, feeds)
        for device in ("functional", "cycle"):
            found = tw.Device(device).run(own, feeds)
            for name, value in wanted.items():
                np.testing.assert_array_equal(found[name], value, err_msg=f"{name} on {device}, {by}")


def test_another_shape_is_refused_at_its_line() -> None:
    @tk.kernel
    def wrong(k: tk.Chip, x: tk.Tensor) -> tk.Tensor:
        return k.tensor((1, 16, 5, 5))

    wrong.replaces(lambda layer: {})
    with pytest.raises(CompileError, match=r"kernel wrong in place of 'conv0': test_network\.py:\d+: .*16, 12, 12\]"):
        tw.compile(quantized_chain(1, 16, 12), kernels=[wrong])


def test_a_kernel_that_never_fits_is_refused() -> None:
    @tk.kernel
    def large(k: tk.Chip, x: tk.Tensor) -> tk.Tensor:
        y = k.tensor(x.shape)
        k.tile(100, 100, 100)
        return y

    large.replaces(lambda layer: {})
    with pytest.raises(CompileError, match=r"kernel large in place of 'conv0': test_network\.py:\d+: a tile of 1000"):
        tw.compile(quantized_chain(1, 16, 12), kernels=[large])


def test_kernels_must_be_kernels() -> None:
    with pytest.raises(tw.UsageError, match=r"kernels must be made by tilewright\.kernel\.kernel"):
        tw.compile(quantized_chain(1), kernels=[print])
    with pytest.raises(tk.KernelError, match=r"plain takes no layers and no nodes: write @plain\.replaces or \.runs"):
        tw.compile(quantized_chain(1), kernels=[tk.Kernel(plain)])


def plain(k: tk.Chip, x: tk.Tensor) -> tk.Tensor:
    """A kernel that takes no layers."""
    return k.tensor(x.shape)


@pytest.mark.medium
def test_the_command_takes_a_file(tmp_path: Path) -> None:
    model, program = tmp_path / "chain.onnx", tmp_path / "chain.twp"
    onnx.save(quantized_chain(2, 8, 8), model)
    found = CliRunner().invoke(cli, ["compile", str(model), "-o", str(program), "--kernels", str(FILE)])
    assert found.exit_code == 0, found.output
    assert [row.op for row in tw.load(program).layers if row.where == "npu"] == ["kernel convolution"] * 2


def test_files_without_kernels_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "none.py"
    for text, message in (("x = 1", "has no kernel with"), ("1 / 0", "cannot be run: ZeroDivisionError")):
        file.write_text(text)
        with pytest.raises(tw.UsageError, match=message):
            load_kernels(file)
    with pytest.raises(tw.UsageError, match="no such file of kernels"):
        load_kernels(tmp_path / "other.py")
