"""Networks through onnxruntime with the execution provider: all work of the NPU is taken, the bytes are the CPU's."""

from pathlib import Path
from typing import Any

import onnx
import pytest

from tests.network.provider_networks import REFERENCE, row
from tilewright.zoo.catalogue import build_quantized, entry

#: Of each kind of network one that compiles fast.
TINY: dict[str, dict[str, Any]] = {
    "resnet8": {"size": 8},
    "autoencoder": {"features": 64, "hidden": 32},
    "transformer": {"size": 16, "patch": 8, "width": 24, "heads": 3, "layers": 1, "classes": 20},
    "segmentation": {"size": 16, "width": 4, "depth": 1},
    "ds_cnn": {},
}


@pytest.mark.network
@pytest.mark.parametrize("name", TINY)
def test_tiny_zoo(name: str) -> None:
    found = row(name, build_quantized(name, **TINY[name]))
    assert found.as_cpu and found.as_device and found.share == 1 and found.taken == found.nodes


@pytest.mark.network
@pytest.mark.long
@pytest.mark.parametrize("name", ["resnet8", "autoencoder", "transformer", "segmentation"])
def test_small_zoo(name: str) -> None:
    found = row(name, build_quantized(name, **entry(name).small))
    assert found.as_cpu and found.as_device and found.share == 1 and found.taken == found.nodes


@pytest.mark.network
@pytest.mark.long
@pytest.mark.parametrize("name", [REFERENCE[1]])
def test_reference(models_dir: Path, name: str) -> None:
    found = row(name, onnx.load(models_dir / f"{name}.onnx"))
    assert found.as_cpu and found.as_device and found.share == 1 and found.taken == found.nodes
