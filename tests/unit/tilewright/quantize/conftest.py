"""What tests of the quantiser share: a float model is optimised once in a session."""

from __future__ import annotations

import sys

import onnx
import pytest

from tilewright.quantize.prepare import prepare

_prepare = sys.modules[prepare.__module__]  # the package has a function of this name
_optimise = _prepare.optimise
_optimised: dict[tuple[str, bytes], bytes] = {}


def _once(model: onnx.ModelProto) -> onnx.ModelProto:
    """As `optimise`, which starts a process that imports onnxruntime; the script is part of the key."""
    key = _prepare._OPTIMISE, model.SerializeToString(deterministic=True)
    if key not in _optimised:
        _optimised[key] = _optimise(model).SerializeToString()
    return onnx.load_from_string(_optimised[key])


@pytest.fixture(autouse=True)
def optimised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most tests quantise one of a few models."""
    monkeypatch.setattr(_prepare, "optimise", _once)
