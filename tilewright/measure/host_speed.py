"""The model of this machine's speed beside its kernels: how far estimates are off, and numbers that fit better.

`tilewright bench --host [--write]`. Measured are kernels of `bench --cpu` and CPU steps of programs, conversions at the
border of the NPU among them, each as the time of the thread, the least of many runs.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tilewright import zoo
from tilewright.api.compilation import compile_program
from tilewright.api.native import NativeModel
from tilewright.compiler.cpu import Target
from tilewright.compiler.cpu.cost import HOST_MODELS, THIS, HostModel
from tilewright.isa.program import CpuStep
from tilewright.isa.program_parts import WORK_KINDS
from tilewright.measure.cpu_cases import CASES
from tilewright.measure.host_models import calibrated
from tilewright.runtime.devices import Device
from tilewright.runtime.executor import Executor
from tilewright.runtime.inputs import random_inputs

_GROUPS = ("fused", "reduction", "movement", "matmul", "conv", "int8")
_NETWORKS: dict[str, dict[str, Any]] = {
    "transformer": {"layers": 2},
    "squeeze_excite": {"alpha": 0.5, "size": 96},
    "segmentation": {},
    "detector": {"size": 160},
}
_SECONDS = 0.15  # of measuring each
_PRIOR = 0.3  # how firmly numbers that few cases depend on stay: as if so many cases said what they are


@dataclass(frozen=True)
class Measured:
    """A kernel or CPU step: its operations by kind and bytes, and seconds of a run."""

    name: str
    work: Mapping[str, float]
    nbytes: int
    seconds: float


def measure(
    models: Sequence[Path] = (),
    *,
    config: str = "base",
    shapes: Mapping[str, Sequence[int]] | None = None,
    progress: Callable[..., None] = lambda *_: None,
) -> dict[str, Any]:
    """Measures, and fits a model of this machine.

    Args:
        models: whose CPU steps are measured; without any the kernels of `bench --cpu` and networks of the zoo.
        config: that programs are compiled for.
        shapes: of inputs that the models leave open.

    Returns:
        `cases` (seconds, estimates of the model in use and of the fitted one), `ratio`, `fitted_ratio` (median, 10th
        and 90th percentile of estimate / measured), and `model`, the fitted one.
    """
    found = list(_models(models, config, shapes, progress) if models else _usual(config, progress))
    used = calibrated() or HOST_MODELS[THIS]
    fitted = fit(found, used)
    rows: list[dict[str, Any]] = [
        {"name": m.name, "seconds": m.seconds, "estimate": used.step_seconds(m.work, m.nbytes),
         "fitted_estimate": fitted.step_seconds(m.work, m.nbytes)}
        for m in found
    ]  # fmt: skip
    return {
        "cpu": Target.host().cpu,
        "source": used.source,
        "cases": rows,
        "ratio": _spread([r["estimate"] / r["seconds"] for r in rows]),
        "fitted_ratio": _spread([r["fitted_estimate"] / r["seconds"] for r in rows]),
        "model": asdict(fitted),
    }


def fit(measured: Sequence[Measured], start: HostModel) -> HostModel:
    """Fits a host model: ratios to measured times nearest to 1, too long as bad as too short. Coefficients that the
    cases say little of stay near those of `start`."""
    kinds = [*WORK_KINDS, "byte", "call"]
    before = np.array([*(start.cycles[k] for k in WORK_KINDS), start.byte_cycles, start.call_cycles])
    seconds = np.array([m.seconds for m in measured])[:, None]
    counts = np.array([[*(m.work.get(k, 0.0) for k in WORK_KINDS), m.nbytes, 1.0] for m in measured])
    a = counts * before / (start.mhz * 1e6) / seconds  # of factors beside `before`
    x = np.ones(len(kinds))
    for _ in range(30):
        weights = 1 / np.sqrt(a @ x)  # (r - 1) / sqrt(r) is as far from 0 for r as for 1 / r
        scaled = a * weights[:, None]
        for _, k in itertools.product(range(60), range(len(x))):  # coordinate descent with bounds
            rest = weights - scaled @ x + scaled[:, k] * x[k]
            x[k] = max((scaled[:, k] @ rest + _PRIOR) / (scaled[:, k] @ scaled[:, k] + _PRIOR), 0.05)
    cycles = {k: float(f"{v:.3g}") for k, v in zip(kinds, before * x)}
    byte, call = cycles.pop("byte"), cycles.pop("call")
    source = "measured here"
    return replace(start, cycles=cycles, byte_cycles=byte, call_cycles=call, source=source)


def fitted_model(result: Mapping[str, Any]) -> HostModel:
    """The fitted model of what `measure` returned."""
    return HostModel(**result["model"])


def _spread(ratios: Sequence[float]) -> dict[str, float]:
    low, high = (float(np.quantile(ratios, q)) for q in (0.1, 0.9))
    return {"median": statistics.median(ratios), "p10": low, "p90": high}


def _usual(config: str, progress: Callable[..., None]) -> Iterator[Measured]:
    cases = [case for case in CASES if case.group in _GROUPS]
    for index, case in enumerate(cases):
        progress(f"measuring {case.name}", index, len(cases) + len(_NETWORKS))
        native = NativeModel(case.model())
        costs = native.segment.costs
        work = {kind: sum(getattr(c.work, kind) for c in costs) for kind in WORK_KINDS}
        yield Measured(case.name, work, sum(c.nbytes for c in costs), _least(native.run))
    for index, (name, parameters) in enumerate(_NETWORKS.items(), len(cases)):
        progress(f"measuring {name}", index, len(cases) + len(_NETWORKS))
        yield from _steps(name, compile_program(zoo.build_quantized(name, **parameters), config))


def _models(
    models: Sequence[Path], config: str, shapes: Mapping[str, Sequence[int]] | None, progress: Callable[..., None]
) -> Iterator[Measured]:
    for index, path in enumerate(models):
        progress(f"measuring {path.name}", index, len(models))
        yield from _steps(path.stem, compile_program(path, config, shapes))


def _steps(name: str, program: Any) -> Iterator[Measured]:
    """The CPU steps of a program."""
    with Device("functional", config=program.config) as runner:
        runner.run(program, random_inputs(program))
        executor = runner.load(program)
        assert isinstance(executor, Executor)
        for number, step in enumerate(program.steps):
            kernels = [k for k in program.host_work if k.step == number]
            if isinstance(step, CpuStep) and kernels:
                work = {kind: sum(k.work.get(kind, 0.0) for k in kernels) for kind in WORK_KINDS}
                ops = ", ".join(dict.fromkeys(op for k in kernels for op in k.op.split(" + ")))
                nbytes = sum(k.nbytes for k in kernels)
                yield Measured(f"{name} {number}: {ops}", work, nbytes, _least(executor.kernels(step)))


def _least(run: Callable[[], object]) -> float:
    """Seconds of the thread for one run, the least of many."""
    run()
    times: list[float] = []
    stop = time.perf_counter() + _SECONDS
    while len(times) < 5 or (time.perf_counter() < stop and len(times) < 2000):
        start = time.thread_time()
        run()
        times.append(time.thread_time() - start)
    return min(times)
