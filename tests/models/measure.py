"""Measures one network: whether it imports, whether its outputs are equal, what runs on the NPU, how long it takes."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw
from tests.models.networks import Network, Sample
from tests.models.quantised import quantised
from tilewright.checking.onnxruntime_reference import reference_of
from tilewright.checking.report import CheckReport
from tilewright.isa.program import Program

RUNS = 5  # timed, alternating with the reference; more of fast networks
_SECONDS = 0.5  # of runs, for a least time that does not hang on what else the machine does
_MOST_RUNS = 200


@dataclass
class Row:
    """Measurements of one network.

    Attributes:
        network, numbers: see `Network`.
        macs: of the network.
        npu_fraction: part of the MACs that the NPU does.
        equal: outputs, and where the file is quantised every quantised tensor, are those of the reference.
        differs: how they compare, one line.
        seconds, reference_seconds: of one run on the functional simulator with its CPU kernels, and in the reference on
            one thread; the least of several runs.
        compile_seconds: without the program cache.
        failure: why there is nothing of the above; "" if there is.
        quantised: what `tilewright quantize` made of a float network; empty if it was not asked.
    """

    network: str
    numbers: str
    macs: int = 0
    npu_fraction: float = 0.0
    equal: bool = False
    differs: str = ""
    seconds: float = 0.0
    reference_seconds: float = 0.0
    compile_seconds: float = 0.0
    failure: str = ""
    quantised: dict[str, Any] | None = None

    @property
    def ok(self) -> bool:
        """Whether the network runs and gives what the reference gives."""
        return self.equal and not self.failure


def measure(network: Network, runs: int = RUNS, quantise: bool = False, as_it_is: bool = True) -> Row:
    """Compiles, checks and times a network whose package is there. Nothing is raised for a network that fails.

    Args:
        runs: timed.
        quantise: quantise a float network, too.
        as_it_is: measure the network itself.
    """
    row = Row(network.name, network.numbers)
    content = network.content()
    assert content is not None
    with tempfile.TemporaryDirectory(prefix="tilewright-models-") as folder:
        path = Path(folder) / f"{network.name}{network.suffix}"
        path.write_bytes(content)
        try:
            if as_it_is:
                _measure(row, path, network.sample(0), runs)
        except tw.TilewrightError as error:
            row.failure = str(error).replace(f"{folder}/", "")
        if quantise and network.numbers == "float":
            row.quantised = quantised(network, path)
    return row


def _measure(row: Row, path: Path, sample: Sample, runs: int) -> None:
    shapes = {name: value.shape for name, value in sample.items()}
    model = tw.compile(path, shapes=shapes, cache=False)
    with tw.Device("functional") as device:
        start = time.perf_counter()
        model_run = device.run_detailed(model, sample)
        del model_run
        parts = [model] if isinstance(model, Program) else model.ran
        row.compile_seconds = sum(part.compile_seconds for part in parts)
        if not isinstance(model, Program):
            row.compile_seconds = time.perf_counter() - start
        row.macs = sum(part.macs for part in parts)
        row.npu_fraction = sum(part.npu_macs for part in parts) / row.macs if row.macs else 0.0
        keep = "all" if row.numbers == "int8" and isinstance(model, Program) else "outputs"
        report = tw.check(path, sample, shapes=shapes, keep=keep, device=device, program=model)
        row.equal, row.differs = report.ok, _differs(report)
        row.seconds, row.reference_seconds = _times(path, lambda: device.run(model, sample), sample, runs)


def _differs(report: CheckReport) -> str:
    if not report.ok:
        return f"{report.mismatches} of {report.elements} elements differ"
    off = max((r.max_abs_difference for r in report.rows), default=0.0)
    return "equal bytes" if not off and not report.end_to_end["elements"] else "equal within rounding"


def _times(path: Path, ours: Callable[[], object], sample: Mapping[str, np.ndarray], runs: int) -> tuple[float, float]:
    """Least seconds of both in alternating runs, after one run that warms them up: what else a machine does makes runs
    longer only.

    Args:
        runs: timed, at least.
    """
    reference = reference_of(path)
    found: tuple[list[float], list[float]] = ([], [])
    calls: tuple[Callable[[], object], ...] = (ours, lambda: reference.run(sample))
    began = time.perf_counter()
    for number in range(max(runs, _MOST_RUNS) + 1):
        if number > runs and time.perf_counter() - began > _SECONDS:
            break
        for call, times in zip(calls, found):
            start = time.perf_counter()
            call()
            if number:
                times.append(time.perf_counter() - start)
    return min(found[0]), min(found[1])
