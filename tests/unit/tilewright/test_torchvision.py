"""torchvision's architectures through `torch.compile`, and quantised by PT2E through `from_torch`."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from tests.common import needs

if any(find_spec(package) is None for package in ("torch", "onnxscript", "torchao", "executorch", "torchvision")):
    needs.skip(needs.TORCH, "PyTorch, torchvision, torchao or executorch is not installed", module=True)

import torch
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

import tilewright as tw
from tests.common.vision_networks import seeded
from tilewright.isa.program import Program
from tilewright.torch.pytorch import export
from tilewright.torch.torch_compile import backend, graphs

SIZE = 64


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()


def images(count: int) -> torch.Tensor:
    return torch.randn(count, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(1))


def quantised(name: str) -> Any:
    """Quantises a network of torchvision as docs/pytorch.md does it."""
    exported = torch.export.export(seeded(name), (images(1),)).module()
    quantiser = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    prepared = prepare_pt2e(exported, quantiser)
    for image in images(4):
        prepared(image[None])
    return convert_pt2e(prepared)


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "shufflenet_v2_x0_5", "squeezenet1_1"])
def test_floats(name: str) -> None:
    """The network runs in one graph, with torch's results."""
    module, image, before = seeded(name), images(1), len(graphs())
    with torch.inference_mode():
        expected = module(image)
        found = torch.compile(module, backend=backend)(image)
    (report,) = graphs()[before:]
    assert not report.reason and report.macs > 4_000_000
    assert float((found - expected).abs().max()) <= 1e-5 * float(expected.abs().max())


@pytest.mark.parametrize("name", ["mobilenet_v2", "resnet18"])
def test_quantised(name: str) -> None:
    """An exported program as it is: every product on the NPU, onnxruntime's bytes, and the same by `torch.compile`."""
    module, image = quantised(name), images(1)
    exported = torch.export.export(module, (image,))
    program = tw.from_torch(exported)
    assert isinstance(program, Program) and program.npu_macs == program.macs > 25_000_000
    inputs = {program.inputs[0].name: image.numpy()}
    with tw.Device("functional") as device:
        scores = device.run(program, inputs)["output"]
    assert tw.check(export(exported).SerializeToString(), inputs, keep="all").ok
    with torch.inference_mode():
        again = torch.compile(module, backend=backend)(image)
        near = module(image)
    np.testing.assert_array_equal(again.numpy(), scores)
    assert graphs()[-1].npu_macs == program.macs
    assert float((again - near).abs().max()) < 0.05 * float(near.abs().max())
