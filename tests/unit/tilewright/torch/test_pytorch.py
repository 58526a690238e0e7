"""Torch modules through export, quantiser and compiler, compared with torch and, byte by byte, with onnxruntime."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from tests.common import needs

if find_spec("torch") is None or find_spec("onnxscript") is None:
    needs.skip(needs.TORCH, "PyTorch or onnxscript is not installed", module=True)

import torch
from torch import nn

import tilewright as tw
from tests.common import onnx_models, torch_networks
from tilewright import kernel as tk
from tilewright.quantization import quantize_model
from tilewright.torch.pytorch import export, from_torch


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, function: Any, *parts: nn.Module) -> None:
        super().__init__()
        self.parts, self.function = nn.ModuleList(parts), function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x, *self.parts)


def normed(channels: int) -> nn.BatchNorm2d:
    norm = nn.BatchNorm2d(channels)
    norm.running_mean, norm.running_var = torch.randn(channels), torch.rand(channels) + 0.5
    return norm


MODULES: dict[str, tuple[Any, tuple[int, ...]]] = {
    "batch_norm": (lambda: nn.Sequential(nn.Conv2d(3, 8, 3), normed(8), nn.ReLU6()), (2, 3, 9, 9)),
    "activations": (
        lambda: nn.Sequential(nn.Hardswish(), nn.SiLU(), nn.GELU(), nn.ELU(), nn.Mish(), nn.Softplus(), nn.LeakyReLU()),
        (2, 40),
    ),
    "layer_norm": (lambda: nn.LayerNorm([6, 16]), (3, 6, 16)),
    "group_norm": (lambda: nn.GroupNorm(2, 8), (2, 8, 5, 5)),
    "attention": (lambda: Call(lambda x, a: a(x, x, x)[0], nn.MultiheadAttention(24, 3, batch_first=True)), (2, 7, 24)),
    "encoder": (lambda: nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True), (2, 5, 16)),
    "lstm": (lambda: Call(lambda x, r: r(x)[0], nn.LSTM(6, 10, 2, batch_first=True, bidirectional=True)), (2, 5, 6)),
    "gru": (lambda: Call(lambda x, r: r(x)[1], nn.GRU(6, 10)), (5, 2, 6)),
    "upsample": (lambda: nn.Sequential(nn.Upsample(None, 2), nn.Upsample((9, 7), None, "bilinear")), (1, 4, 5, 4)),
    "transposed": (lambda: nn.ConvTranspose2d(6, 4, 3, 2, 1, output_padding=1, groups=2), (1, 6, 5, 5)),
    "adaptive_pools": (lambda: nn.Sequential(nn.AdaptiveMaxPool2d((4, 4)), nn.AdaptiveAvgPool2d((2, 1))), (1, 4, 8, 8)),
    "einsum": (lambda: Call(lambda x: torch.einsum("bhqd,bhkd->bhqk", x, x.cumsum(2))), (2, 3, 4, 5)),
    "shapes": (lambda: Call(lambda x: torch.cat([x.flip(1), x.roll(1, 2)], 1).unfold(2, 4, 2).mT), (2, 3, 10)),
    "choices": (lambda: Call(lambda x: torch.where(x > 0, x.topk(4)[0].sum(-1, True), x.logsumexp(-1, True))), (3, 9)),
    "pixels": (lambda: nn.Sequential(nn.PixelShuffle(2), nn.PixelUnshuffle(4), nn.ReflectionPad2d(1)), (1, 8, 4, 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_float_modules(name: str) -> None:
    torch.manual_seed(0)
    make, shape = MODULES[name]
    module, x = make().eval(), torch.randn(shape)
    program = from_torch(module, (x,), quantize=False, cpu_only=True)
    (found,) = tw.Device("functional").run(program, x.numpy()).values()
    with torch.no_grad():
        np.testing.assert_allclose(found, module(x).numpy(), rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("name", torch_networks.NETWORKS)
def test_networks(name: str) -> None:
    """Float: top-1 of torch. Quantised: bytes of onnxruntime, and nearly always the top-1 of torch."""
    module = torch_networks.build(name)
    images = torch.randn(24, 3, 32, 32)
    with torch.no_grad():
        want = module(images).numpy()
    model = export(module, (images[:1],))
    (name,) = (i.name for i in model.graph.input)
    run = lambda program, i: tw.Device("functional").run(program, {name: images[i : i + 1].numpy()})["output"][0]
    program = tw.compile(model)
    found = np.stack([run(program, i) for i in range(len(images))])
    np.testing.assert_allclose(found, want, rtol=1e-3, atol=1e-4)
    assert np.array_equal(found.argmax(1), want.argmax(1))

    quantised = quantize_model(model, images.numpy())
    program = tw.compile(quantised)
    assert program.npu_macs > 0.7 * program.macs
    session = onnx_models.session(quantised)
    top = []
    for i in range(len(images)):
        scores = run(program, i)
        assert scores.tobytes() == session.run(None, {name: images[i : i + 1].numpy()})[0][0].tobytes()
        top.append(scores.argmax())
    assert (np.array(top) == want.argmax(1)).mean() > 0.7  # weights are random, so scores are close together


def test_from_torch_quantises() -> None:
    """Tensors, tuples and dicts are the same calibration; the result runs on the NPU."""
    module = torch_networks.build("mobilenet")
    images = torch.randn(4, 3, 32, 32)
    programs = [
        from_torch(module, (images[:1],), calibration=calibration, input_names=["image"])
        for calibration in (images, [(x[None],) for x in images], [{"image": x[None]} for x in images])
    ]
    assert len({p.content_hash() for p in programs}) == 1  # type: ignore[union-attr]
    assert programs[0].npu_macs > 0.9 * programs[0].macs  # type: ignore[union-attr]


def test_dynamic_batch() -> None:
    module = torch_networks.build("resnet")
    images = torch.randn(3, 3, 32, 32)
    shapes = ({0: torch.export.Dim("batch", min=1, max=8)},)
    model = from_torch(module, (images[:2],), quantize=False, dynamic_shapes=shapes, input_names=["image"])
    device = tw.Device("functional")
    for count in (1, 3):
        found = device.run(model, {"image": images[:count].numpy()})["output"]
        with torch.no_grad():
            np.testing.assert_allclose(found, module(images[:count]).numpy(), rtol=1e-3, atol=1e-4)


def test_mistakes() -> None:
    x = torch.randn(1, 3, 32, 32)
    module = torch_networks.build("mobilenet")
    with pytest.raises(tw.UsageError, match="needs calibration"):
        from_torch(module, (x,))
    with pytest.raises(tw.UsageError, match="no effect"):
        from_torch(module, (x,), calibration=x, quantize=False)
    with pytest.raises(tw.UsageError, match="must be a tensor"):
        from_torch(module, (x,), calibration=3)
    with pytest.raises(tw.UsageError, match="the model takes float32"):
        from_torch(module, (x,), calibration=x[:, :, :16])
    with pytest.raises(tw.UsageError, match=r"call module\.eval"):
        export(torch_networks.build("mobilenet").train(), (x,))
    with pytest.raises(tw.UsageError, match="torch cannot export the module") as found:
        export(Call(lambda x: x if x.sum() > 0 else -x).eval(), (x,))
    assert "\n" not in str(found.value)


def test_exported_program_with_open_sizes() -> None:
    """An exported program carries its open sizes."""
    module = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 4)).eval()
    batch = ({0: torch.export.Dim("batch")},)
    program = tw.from_torch(
        torch.export.export(module, (torch.randn(2, 3, 8, 8),), dynamic_shapes=batch), quantize=False
    )
    assert isinstance(program, tw.DynamicModel)
    with tw.Device("functional") as device:
        for count in (1, 4):
            x = torch.randn(count, 3, 8, 8)
            found = device.run(program, {program.inputs[0].name: x.numpy()})["output"]
            np.testing.assert_allclose(found, module(x).detach().numpy(), rtol=1e-5, atol=1e-5)


@torch.library.custom_op("tilewright_tests::shrink", mutates_args=())
def shrink(x: torch.Tensor, by: float, often: int = 1) -> torch.Tensor:
    return torch.sign(x) * torch.clamp(torch.abs(x) - by * often, min=0)


@shrink.register_fake
def _shrink(x: torch.Tensor, by: float, often: int = 1) -> torch.Tensor:
    return torch.empty_like(x)


@tk.kernel
def looked_up(k: tk.Chip, x: tk.Tensor, *, table: np.ndarray) -> tk.Tensor:
    y = k.tensor(x.shape)
    k.apply(k.load(x.at()), k.table(table), into=y.at())
    return y


@looked_up.runs("tilewright_tests::shrink")
def _table(node: tk.NodeFacts) -> dict[str, Any]:
    x, y = node.tensors[0], node.output
    real = (np.arange(-128, 128) - x.zero_point) * x.scale
    small = np.sign(real) * np.maximum(np.abs(real) - node.attributes["by"] * node.attributes["often"], 0)
    return {"table": np.clip(np.rint(small / y.scale) + y.zero_point, -128, 127).astype(np.int8)}


def test_kernels_run_custom_operators() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        steps = torch.fake_quantize_per_tensor_affine(x, 0.5, 2, -128, 127)
        return torch.fake_quantize_per_tensor_affine(shrink(steps, 3.0), 0.25, 7, -128, 127)

    module, x = Call(forward).eval(), 20 * torch.randn(1, 12, 3, 3)
    program = from_torch(module, (x,), config="tiny", kernels=[looked_up])
    assert "kernel looked_up" in [row.op for row in program.layers]
    (found,) = tw.Device("functional").run(program, {"x": x.numpy()}).values()
    np.testing.assert_array_equal(found, module(x).numpy())
    with pytest.raises(tw.TilewrightError, match=r"tilewright_tests::shrink 'node_shrink' is of domain .*by a kernel"):
        from_torch(module, (x,), config="tiny")
