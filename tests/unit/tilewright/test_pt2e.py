"""Modules quantised by torch's own tools: PT2E by torchao with XNNPACKQuantizer, and FX graph mode."""

from __future__ import annotations

import io
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from tests.common import needs

if any(find_spec(package) is None for package in ("torch", "onnxscript", "torchao", "executorch")):
    needs.skip(needs.TORCH, "PyTorch, onnxscript, torchao or executorch is not installed", module=True)

import torch
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config
from torch import nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

import tilewright as tw
from tests.common.torch_networks import Inverted, Residual
from tilewright.isa.program import Program
from tilewright.torch.pytorch import export, from_torch


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.body = nn.Sequential(Residual(16, 32, 2), Inverted(32, 32, 1))
        self.head = nn.Linear(32, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.first(image)).mean((2, 3)))


def seeded() -> Network:
    torch.manual_seed(0)
    return Network().eval()


def converted(per_channel: bool) -> Any:
    """The recipe of docs/pytorch.md."""
    images = torch.randn(16, 3, 32, 32)
    exported = torch.export.export(seeded(), (images[:1],)).module()
    quantiser = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=per_channel))
    prepared = prepare_pt2e(exported, quantiser)
    for image in images:
        prepared(image[None])
    return convert_pt2e(prepared)


@pytest.mark.parametrize("per_channel", [True, False])
def test_pt2e(per_channel: bool) -> None:
    """Every MAC on the NPU, every quantised tensor equal to onnxruntime's, scores within a step of torch's quantised
    module: torch sums the mean in floats, in an order of its own, and a sum next to a tie may round the other way."""
    module, image = converted(per_channel), torch.randn(1, 3, 32, 32)
    program = from_torch(module, (image,))
    assert isinstance(program, Program) and program.npu_macs == program.macs
    with tw.Device("functional") as device:
        found = device.run(program, {"image": image.numpy()})["output"]
    step = float(np.diff(np.unique(found)).min())
    np.testing.assert_allclose(found, module(image).numpy(), rtol=0, atol=1.01 * step)
    exported = torch.export.export(module, (image,))  # the same, by what torch has exported
    again = from_torch(exported)
    assert isinstance(again, Program) and again.instructions == program.instructions
    model = export(module, (image,))
    assert tw.check(model.SerializeToString(), {"image": image.numpy()}, keep="all").ok


def test_what_pt2e_forbids_is_not_advised() -> None:
    module, image = converted(True), torch.randn(1, 3, 32, 32)
    with pytest.raises(NotImplementedError):
        module.eval()
    with pytest.raises(tw.UsageError, match="quantised already"):
        from_torch(module, (image,), calibration=image)
    training = torch.export.export(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)), (torch.zeros(1, 4),)).module()
    with pytest.raises(tw.UsageError, match=r"exported in training mode.*move_exported_model_to_eval"):
        export(training, (torch.zeros(1, 4),))
    exported = torch.export.export(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)), (torch.zeros(1, 4),))
    with pytest.raises(tw.UsageError, match="exported in training mode"):
        from_torch(exported)
    with pytest.raises(tw.UsageError, match="dynamic_shapes= has no effect"):
        export(torch.export.export(nn.Linear(4, 4), (torch.zeros(1, 4),)), dynamic_shapes={})
    with pytest.raises(tw.UsageError, match="needs example_inputs"):
        from_torch(nn.Linear(4, 4).eval())
    with pytest.raises(tw.UsageError, match=r"is expected, not str"):
        from_torch("model.pt2")
    with pytest.raises(tw.UsageError, match=r"training mode.*call module\.eval\(\)$"):
        export(nn.Sequential(nn.Linear(4, 4)), (torch.zeros(1, 4),))


@pytest.mark.filterwarnings("ignore")
def test_fx_graph_mode() -> None:
    """The older way, by the TorchScript exporter, which knows its quantised operators."""
    from torch.ao.quantization import get_default_qconfig_mapping
    from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

    image = torch.randn(1, 3, 32, 32)
    prepared = prepare_fx(seeded(), get_default_qconfig_mapping("qnnpack"), (image,))
    for _ in range(8):
        prepared(torch.randn(1, 3, 32, 32))
    file = io.BytesIO()
    torch.onnx.export(convert_fx(prepared), (image,), file, dynamo=False, input_names=["image"])
    program = tw.compile(file.getvalue(), "base")
    assert isinstance(program, Program) and program.npu_macs == program.macs
    assert tw.check(file.getvalue(), {"image": image.numpy()}, keep="all").ok
