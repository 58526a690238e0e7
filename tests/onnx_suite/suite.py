"""The tests of the suite and how one is run. Comparison, tolerances, type and shape checks are the suite's own."""

from __future__ import annotations

import os
import tempfile
import time
import unittest
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend
from onnx.backend.test import BackendTest

from tilewright.compiler.errors import StagingError
from tilewright.onnx_backend import TilewrightBackend, TilewrightRep

KINDS = {
    "node": "OnnxBackendNodeModelTest",
    "simple": "OnnxBackendSimpleModelTest",
    "pytorch-converted": "OnnxBackendPyTorchConvertedModelTest",
    "pytorch-operator": "OnnxBackendPyTorchOperatorModelTest",
    "real": "OnnxBackendRealModelTest",
}

Tests = Mapping[str, tuple[str, type[unittest.TestCase]]]
"""Kind and test case by name."""

STATUSES = ("pass", "excluded", "dynamic", "fail", "error")
GOOD = ("pass", "excluded", "dynamic")


@dataclass(frozen=True)
class Result:
    """The result of one test.

    Attributes:
        status: one of `STATUSES`: a wrong answer is "fail", a model that was not compiled or not run "error", one that
            cannot be a single program where that is asked for "dynamic".
        reason: one line, empty for a pass.
    """

    kind: str
    name: str
    status: str
    reason: str
    seconds: float


class _OnNpu(TilewrightBackend):
    """The suite knows the devices CPU and CUDA only: here "CPU" is the compiler with its NPU partition."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> TilewrightRep:
        return super().prepare(model, "NPU", **kwargs)


class _AheadRep:
    """A model that becomes one program before it runs, once the suite's values of what decides shapes are known."""

    def __init__(self, backend: type[TilewrightBackend], model: onnx.ModelProto, device: str) -> None:
        self.backend, self.model, self.device = backend, model, device

    def run(self, inputs: list[Any]) -> tuple[Any, ...]:
        names = [i.name for i in self.model.graph.input]
        initialised = {t.name for t in self.model.graph.initializer}
        feeds = dict(zip([n for n in names if n not in initialised], inputs))
        constants: dict[str, Any] = {}
        tensors = {name: value.shape for name, value in feeds.items() if isinstance(value, np.ndarray)}
        while True:
            try:
                shapes = {name: shape for name, shape in tensors.items() if name not in constants}
                rep = self.backend.prepare(self.model, self.device, constants=constants, shapes=shapes, ahead=True)
                break
            except StagingError as error:
                more = self._sources(error.tensors) & feeds.keys() - constants.keys()
                if not more:
                    raise
                constants |= {name: feeds[name] for name in more}
        return rep.run([value for name, value in feeds.items() if name not in constants])

    def _sources(self, tensors: Iterable[str]) -> set[str]:
        """Names of `tensors`, and of all tensors they are computed from."""
        makers = {name: node for node in self.model.graph.node for name in node.output}
        found, stack = set(), list(tensors)
        while stack:
            name = stack.pop()
            if name not in found:
                found.add(name)
                stack += makers[name].input if name in makers else []
        return found


def _ahead(backend: type[TilewrightBackend]) -> type[TilewrightBackend]:
    class Ahead(backend):  # type: ignore[valid-type,misc]
        @classmethod
        def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> Any:
            return _AheadRep(backend, model, device)

    return Ahead


def load(npu: bool = False, constant_inputs: bool = False) -> Tests:
    """All CPU tests of the suite.

    Args:
        npu: quantised parts on the NPU.
        constant_inputs: inputs that decide shapes are given at compile time, and nothing is compiled while it runs.
    """
    backend = _OnNpu if npu else TilewrightBackend
    return load_from(_ahead(backend) if constant_inputs else backend)


def load_from(backend: type[Backend]) -> Tests:
    """All CPU tests of the suite, with a backend of one's own."""
    # The suite keeps inputs of the light networks; not in the user's home, and not of an earlier version.
    os.environ["ONNX_MODELS"] = os.path.join(tempfile.gettempdir(), f"onnx-suite-{onnx.__version__}-{os.getuid()}")
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        cases = BackendTest(backend, __name__).test_cases
    return {
        name: (kind, cases[cls])
        for kind, cls in KINDS.items()
        for name in dir(cases[cls])
        if name.startswith("test_") and name.endswith("_cpu")
    }


def run(tests: Tests, name: str) -> Result:
    """Runs one test in this process."""
    kind, case = tests[name]
    result = unittest.TestResult()
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        case(name).run(result)
    seconds = time.perf_counter() - started
    for status, found in (("fail", result.failures), ("error", result.errors), ("error", result.skipped)):
        if found:
            reason = _reason(found[0][1])
            dynamic = reason.startswith(
                ("tilewright.compiler.errors.StagingError", "tilewright.compiler.errors.OpenShapeError")
            )
            return Result(kind, name, "dynamic" if dynamic else status, reason, seconds)
    return Result(kind, name, "pass", "", seconds)


def _reason(text: str) -> str:
    """The message of a traceback on one line."""
    lines = [line.rstrip() for line in text.strip().splitlines()]
    start = max((k for k, line in enumerate(lines) if line and line[0].isalpha() and ":" in line), default=0)
    first = next((k for k in range(start, -1, -1) if lines[k].startswith("  ")), -1) + 1
    return " ".join(" ".join(lines[first:]).split())[:300]


def table(results: Iterable[Result]) -> str:
    """Counts by kind."""
    counts = Counter((r.kind, r.status) for r in results)
    lines = [f"{'kind':18} {'tests':>6} " + " ".join(f"{s:>8}" for s in STATUSES)]
    for kind in [*KINDS, "all"]:
        row = [sum(n for (k, s), n in counts.items() if kind in (k, "all") and s == status) for status in STATUSES]
        if sum(row):
            lines.append(f"{kind:18} {sum(row):6} " + " ".join(f"{n:8}" for n in row))
    return "\n".join(lines)
