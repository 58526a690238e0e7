"""Fixtures of the quantiser's tests: a float model is optimised once in a session, and in the process of the tests."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import onnx
import pytest

from tilewright.quantize import verify
from tilewright.quantize.prepare import prepare
from tilewright.quantize.verifying import verify_here

_prepare = sys.modules[prepare.__module__]  # the package has a function of this name
_optimise = _prepare.optimise
_optimised: dict[bytes, bytes] = {}


def _run_here(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
    """`python -c SCRIPT ARGUMENT...` without a process, which takes a second to import onnxruntime."""
    printed, status = io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setattr(sys, "argv", ["-c", *command[3:]])
        try:
            exec(command[2], {"__name__": "__main__"})
        except SystemExit as ended:
            status = int(ended.code or 0)
    return subprocess.CompletedProcess(command, status, printed.getvalue())


def _once(model: onnx.ModelProto) -> onnx.ModelProto:
    key = model.SerializeToString(deterministic=True)
    if key not in _optimised:
        _optimised[key] = _optimise(model).SerializeToString()
    return onnx.load_from_string(_optimised[key])


@pytest.fixture(autouse=True)
def verified_here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All tests but those of `verify` itself: without a process, which takes a second to import the compiler."""
    if request.path.name != "test_verify.py":
        monkeypatch.setattr(verify, "verify", verify_here)


@pytest.fixture(autouse=True)
def optimised_here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All tests but those of `prepare` itself, which has a process for what onnxruntime may do."""
    if request.path.name != "test_prepare.py":
        monkeypatch.setattr(_prepare, "subprocess", SimpleNamespace(run=_run_here, PIPE=subprocess.PIPE))
        monkeypatch.setattr(_prepare, "optimise", _once)
