"""`torch.compile(backend="tilewright")`: torch's results, and torch where a graph cannot be taken, with the reason."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from typing import Any

import pytest

from tests.common import needs

if find_spec("torch") is None or find_spec("onnxscript") is None:
    needs.skip(needs.TORCH, "PyTorch or onnxscript is not installed", module=True)

import torch
from torch import nn

from tests.common.torch_networks import Inverted, Residual
from tilewright.errors import UsageError
from tilewright.torch.torch_compile import backend, graphs


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()


def compiled(function: Any, **options: Any) -> Any:
    return torch.compile(function, backend=backend, options=options)


def small() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), Residual(8, 16, 2), Inverted(16, 16, 1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
    ).eval()  # fmt: skip


def near(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and torch.allclose(a, b, rtol=1e-4, atol=1e-5)


def test_network_of_several_shapes() -> None:
    module, before = small(), len(graphs())
    fast = compiled(module)
    with torch.inference_mode():
        for batch in (1, 3, 1):
            x = torch.randn(batch, 3, 32, 32)
            assert near(fast(x), module(x))
    found = graphs()[before:]
    assert len(found) >= 2 and not any(report.reason for report in found)
    assert all(report.macs > 0 for report in found)


def test_sizes_that_torch_leaves_open() -> None:
    """Sizes come as numbers beside the tensors, and are part of what is computed."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return x.view(x.shape[0] * 2, -1) * x.shape[1]

    fast, before = torch.compile(function, backend=backend, dynamic=True), len(graphs())
    with torch.inference_mode():
        for shape in ((1, 8), (2, 6), (3, 10)):
            x = torch.randn(*shape)
            assert near(fast(x), function(x))
    assert not any(report.reason for report in graphs()[before:])


def test_graph_break_and_several_results() -> None:
    def function(x: torch.Tensor) -> Any:
        y = torch.relu(x) + 1
        torch._dynamo.graph_break()
        return y.softmax(-1), {"sum": y.sum(), "shape": y.shape}

    x = torch.randn(4, 5)
    with torch.no_grad():
        (a, b), (c, d) = compiled(function)(x), function(x)
    assert near(a, c) and near(b["sum"], d["sum"]) and b["shape"] == d["shape"]


def test_changed_weights_count() -> None:
    module = nn.Linear(6, 4).eval()
    fast, x = compiled(module), torch.randn(2, 6)
    with torch.no_grad():
        assert near(fast(x), module(x))
        module.weight.mul_(2)
        assert near(fast(x), module(x))
        module.weight.copy_(torch.randn(4, 6))
        assert near(fast(x), module(x))


def in_place(x: torch.Tensor) -> torch.Tensor:
    return x.add_(1) * 2


def random(x: torch.Tensor) -> torch.Tensor:
    return nn.functional.dropout(x, 0.5, True) + 1


@pytest.mark.parametrize(
    ("function", "reason"), [(in_place, "changes a tensor in place"), (random, "draws random numbers")]
)
def test_left_to_torch(function: Any, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    x = torch.randn(3, 4)
    with torch.no_grad(), caplog.at_level(logging.WARNING, "tilewright.torch.torch_compile"):
        torch.manual_seed(1)
        expected, changed = function(y := x.clone()), y
        torch.manual_seed(1)
        assert torch.equal(compiled(function)(z := x.clone()), expected) and torch.equal(z, changed)
    assert reason in caplog.text and reason in graphs()[-1].reason


def test_gradients_are_those_of_torch() -> None:
    module = nn.Linear(6, 1)
    fast, x = compiled(module), torch.randn(2, 6)
    fast(x).sum().backward()
    assert module.weight.grad is not None and near(module.weight.grad[0], x.sum(0))
    assert "torch.inference_mode()" in graphs()[-1].reason


def test_strict() -> None:
    with torch.no_grad(), pytest.raises(Exception, match="changes a tensor in place") as caught:
        compiled(in_place, strict=True)(torch.randn(3, 4))
    cause: BaseException | None = caught.value
    while cause is not None and not isinstance(cause, UsageError):
        cause = cause.__cause__ or cause.__context__
    assert isinstance(cause, UsageError)


@pytest.mark.skipif(
    find_spec("torchao") is None or find_spec("executorch") is None, reason="torchao or executorch is not installed"
)
def test_quantised_by_pt2e_on_the_npu() -> None:
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    images = torch.randn(8, 3, 32, 32)
    exported = torch.export.export(small(), (images[:1],)).module()
    quantiser = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    prepared = prepare_pt2e(exported, quantiser)
    for image in images:
        prepared(image[None])
    module = convert_pt2e(prepared)
    fast = compiled(module, config="small")
    with torch.no_grad():
        got, expected = fast(images[:1]), module(images[:1])
    report = graphs()[-1]
    assert not report.reason and report.npu_macs == report.macs > 0
    assert torch.allclose(got, expected, atol=0.05 * float(expected.abs().max()))


def test_found_by_name() -> None:
    if "tilewright" not in torch._dynamo.list_backends():
        pytest.skip("the project was installed before it had the entry point")
    with torch.no_grad():
        assert near(torch.compile(torch.sin, backend="tilewright")(torch.ones(3)), torch.sin(torch.ones(3)))
