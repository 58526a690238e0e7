"""The suite through onnxruntime: as it is, and with the execution provider taking all it can."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx.backend.base import Backend

from tests.onnx_suite.exclusions import EXCLUDED
from tests.onnx_suite.suite import Result, Tests, load_from, run
from tilewright.onnxruntime.library import reports
from tilewright.onnxruntime.session import onnxruntime_session

TAKEN = "a program ran"
_made: list[bool] = []  # of the sessions of a test: whether a part of the model was taken


class _Prepared:
    """A session as the suite calls it."""

    def __init__(self, session: onnxruntime.InferenceSession) -> None:
        self.session = session

    def run(self, inputs: list[Any]) -> list[Any]:
        names = [i.name for i in self.session.get_inputs()]
        feeds = {n: np.asarray(v) if isinstance(v, np.generic) else v for n, v in zip(names, inputs) if v is not None}
        return list(self.session.run(None, feeds))


def _options() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return options


class _Plain(Backend):
    """onnxruntime by itself."""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "CPU"

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> Any:
        text = model.SerializeToString()
        return _Prepared(onnxruntime.InferenceSession(text, _options(), providers=["CPUExecutionProvider"]))


class _Provided(_Plain):
    """onnxruntime with the provider, which takes whatever can be compiled."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> Any:
        before = reports()
        session = onnxruntime_session(model, session_options=_options(), claim="all")
        found = reports()
        _made.append(found != before and bool(found[-1]["programs"]))
        return _Prepared(session)


def load() -> tuple[Tests, Tests]:
    """All CPU tests of the suite: with the provider, and without."""
    onnxruntime.set_default_logger_severity(4)
    return load_from(_Provided), load_from(_Plain)


def run_provided(tests: tuple[Tests, Tests], name: str) -> Result:
    """Runs one test with the provider. One that does not pass is run without it as well: what onnxruntime itself cannot
    do, or the compiler is known not to, is excluded. A pass has the reason `TAKEN` if part of it ran as a program."""
    with np.errstate(all="ignore"):
        _made.clear()
        result = run(tests[0], name)
        if result.status == "pass":
            return replace(result, reason=TAKEN if any(_made) else "")
        without = run(tests[1], name)
    if without.status != "pass":
        return replace(result, status="excluded", reason=f"without the provider: {without.reason}")
    if name in EXCLUDED:
        return replace(result, status="excluded", reason=EXCLUDED[name])
    return result
