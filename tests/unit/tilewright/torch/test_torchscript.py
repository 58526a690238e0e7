"""`from_torch` of TorchScript: traced, scripted and saved modules run like torch does."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tests.common import needs

if find_spec("torch") is None or find_spec("onnxscript") is None:
    needs.skip(needs.TORCH, "PyTorch or onnxscript is not installed", module=True)

import torch

import tilewright as tw

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*deprecated")


class Small(torch.nn.Module):
    """A convolution, a branch on a constant, a pool and a product."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.last = torch.nn.Linear(8, 5)
        self.double: bool = True

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.conv(image)))
        if self.double:
            x = x + x
        return self.last(x.mean([2, 3]))


@pytest.fixture(scope="module")
def case() -> tuple[torch.nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    return Small().eval(), torch.randn(1, 3, 8, 8)


@pytest.mark.parametrize("form", ["trace", "script", "file"])
def test_torchscript_runs_like_torch(form: str, case: tuple[torch.nn.Module, torch.Tensor], tmp_path: Path) -> None:
    module, image = case
    made = torch.jit.script(module) if form == "script" else torch.jit.trace(module, (image,))
    if form == "file":
        torch.jit.save(made, str(tmp_path / "net.pt"))
    program = tw.from_torch(tmp_path / "net.pt" if form == "file" else made, (image,), quantize=False)
    assert isinstance(program, tw.Program)
    assert [t.name for t in program.inputs] == ["image"]
    got = tw.Device("functional").run(program, {"image": image.numpy()})["output"]
    np.testing.assert_allclose(got, module(image).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_torchscript_is_quantised(case: tuple[torch.nn.Module, torch.Tensor]) -> None:
    module, image = case
    program = tw.from_torch(torch.jit.trace(module, (image,)), (image,), calibration=[(image,)] * 4)
    assert isinstance(program, tw.Program)
    got = tw.Device("functional").run(program, {"image": image.numpy()})["output"]
    assert np.abs(got - module(image).detach().numpy()).max() < 0.1


def test_a_module_in_training_mode_is_refused(case: tuple[torch.nn.Module, torch.Tensor]) -> None:
    _, image = case
    made = torch.jit.script(Small())
    with pytest.raises(tw.UsageError, match="training mode"):
        tw.from_torch(made, (image,), quantize=False)
    with pytest.raises(tw.UsageError, match="needs example_inputs"):
        tw.from_torch(made.eval(), quantize=False)


def test_a_file_without_torchscript_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.pt"
    torch.save({"weights": torch.zeros(2)}, path)
    with pytest.raises(tw.UsageError, match="has no TorchScript"):
        tw.from_torch(path, (torch.zeros(1),), quantize=False)
