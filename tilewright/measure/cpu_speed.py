"""Speed of the CPU kernels beside onnxruntime and numpy, one thread each, in one process and one run.

`tilewright bench --cpu [--only TEXT | --model FILE] [--threads N] [--json FILE]`. The contestants of a case run in
turns, so that a busy machine slows all of them, and the time is that of the thread (of the wall clock with several
threads). The ratios are of the minima and of the medians, ours to theirs: below 1 is faster than onnxruntime.
onnxruntime writes into memory bound beforehand, as the kernels do. The results are compared as well.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from threadpoolctl import threadpool_limits

from tilewright.api.compilation import compile_program
from tilewright.api.native import NativeModel
from tilewright.checking.onnxruntime_reference import load_model
from tilewright.common import temporary
from tilewright.common.installation import require
from tilewright.compiler.cpu import Target
from tilewright.compiler.cpu.object import cache
from tilewright.errors import UsageError
from tilewright.measure.cpu_cases import CASES, Case

_SECONDS = 0.5  # of measuring per case and contestant
_SHARED_SECONDS = 2.0  # the same with several threads
_MIN_ROUNDS, _MAX_ROUNDS = 7, 400
_INTEGER_LIMIT = 10
MEMORY_CASES = ("ResNet-18 224", "MobileNetV2 224")


def select(only: Sequence[str]) -> list[Case]:
    """The cases whose name or group contains one of the texts; all without any."""
    found = [c for c in CASES if not only or any(t.lower() in f"{c.group}: {c.name}".lower() for t in only)]
    if not found:
        raise UsageError(
            f"no case matches {', '.join(only)}; groups: {', '.join(dict.fromkeys(c.group for c in CASES))}"
        )
    return found


def measure(
    only: Sequence[str] = (),
    *,
    memory: bool = True,
    threads: int = 1,
    model: Path | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    progress: Callable[..., None] = lambda *_: None,
) -> dict[str, Any]:
    """Times every selected case, or a model.

    Args:
        only: texts that select cases by name or group.
        model: an ONNX file to be timed in place of the cases.
        shapes: of inputs that it leaves open.
        memory: also measure peak memory of networks, in processes of their own.
        threads: of ours and of onnxruntime.

    Returns:
        `machine`, `cases` (seconds, ratios, largest difference, compile time, memory) and `memory`.
    """
    onnxruntime = require("onnxruntime")

    cases = select(only) if model is None else [Case(name=model.stem, group="model", model=lambda: load_model(model))]
    rows = []
    with _one_numpy_thread():
        for index, case in enumerate(cases):
            progress(f"measuring {case.name}", index, len(cases))
            rows.append(_measure(case, threads, shapes))
    peaks = []
    for case in cases if memory else ():
        if case.name in MEMORY_CASES and Path("/proc/self/status").exists():
            progress(f"memory of {case.name}", len(cases), len(cases))
            peaks.append(_peak_memory(case))
    target = Target.host()
    return {
        "cpu": target.cpu,
        "vector_bits": target.vector_bits,
        "threads": threads,
        "onnxruntime": onnxruntime.__version__,
        "numpy": np.__version__,
        "cases": rows,
        "memory": peaks,
    }


@contextlib.contextmanager
def _one_numpy_thread() -> Iterator[None]:
    with threadpool_limits(1):
        yield


def inputs_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Seeded inputs of a model without open shapes, see `seeded`."""
    kinds = {v.name: v.type.tensor_type for v in model.graph.input}
    return seeded(
        {
            name: ([d.dim_value for d in t.shape.dim], onnx.helper.tensor_dtype_to_np_dtype(t.elem_type))
            for name, t in kinds.items()
        }
    )


def seeded(kinds: Mapping[str, tuple[Sequence[int], np.dtype[Any]]]) -> dict[str, np.ndarray]:
    """Arrays of these shapes and types: normal floats, truths, small integers, 8-bit ones over their whole range."""
    rng = np.random.default_rng(0)
    found = {}
    for name, (shape, dtype) in kinds.items():
        if dtype.kind == "f":
            found[name] = rng.standard_normal(shape, np.float32).astype(dtype)
        else:
            limits = np.iinfo(dtype) if dtype.itemsize == 1 and dtype.kind != "b" else None
            low, high = (limits.min, limits.max + 1) if limits else (0, 2 if dtype.kind == "b" else _INTEGER_LIMIT)
            found[name] = rng.integers(low, high, shape).astype(dtype)
    return found


def bound_session(
    model: onnx.ModelProto, inputs: dict[str, np.ndarray], threads: int
) -> tuple[Callable[[], object], Callable[[], list[np.ndarray]]]:
    """onnxruntime with inputs and outputs in place: (run, outputs).

    Raises:
        UsageError: it cannot run the model, or not so.
    """
    onnxruntime = require("onnxruntime")

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        results = session.run(None, inputs)
        names = [o.name for o in session.get_outputs()]
        binding = session.io_binding()
        for name, value in inputs.items():
            binding.bind_cpu_input(name, value)
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros_like(v)) for v in results]
        for name, value in zip(names, values):
            binding.bind_ortvalue_output(name, value)
        session.run_with_iobinding(binding)
    except Exception as error:  # it raises exceptions of many types
        raise UsageError(f"onnxruntime cannot run the model: {str(error).strip().splitlines()[0]}") from None
    return lambda: session.run_with_iobinding(binding), lambda: [v.numpy() for v in values]


def _measure(case: Case, threads: int, shapes: Mapping[str, Sequence[int]] | None) -> dict[str, Any]:
    model = case.model()
    with _empty_kernel_cache():
        native = NativeModel(model, shapes, threads=threads)
    inputs = seeded({name: (value.shape, value.dtype) for name, value in native.inputs.items()})
    for name, value in inputs.items():
        native.inputs[name][...] = value
    theirs, results = bound_session(model, inputs, threads)
    calls: dict[str, Callable[[], object]] = {"ours": native.run, "onnxruntime": theirs}
    if case.numpy is not None:
        arrays, numpy_form = list(inputs.values()), case.numpy
        calls["numpy"] = lambda: numpy_form(*arrays)
    # With several threads many calls find a processor taken by others: it takes more of them to see the kernels alone.
    times = interleaved(calls, _SECONDS if threads == 1 else _SHARED_SECONDS, one_thread=threads == 1)
    difference = max(largest_difference(a, b) for a, b in zip(native.outputs.values(), results()))
    best = {who: min(t) for who, t in times.items()}
    middle = {who: statistics.median(t) for who, t in times.items()}
    ratio = best["ours"] / best["onnxruntime"]
    return {
        "name": case.name,
        "group": case.group,
        "rounds": len(times["ours"]),
        "seconds": best,
        "median_seconds": middle,
        "ratio": ratio,
        "median_ratio": middle["ours"] / middle["onnxruntime"],
        "numpy_ratio": best["ours"] / best["numpy"] if "numpy" in best else None,
        "limit": case.limit,
        "within": case.limit is None or ratio <= case.limit,
        "difference": difference,
        "compile_seconds": native.compile_seconds,
        "arena_bytes": native.segment.memory.arena,
        "separate_bytes": native.segment.memory.separate,
        "live_bytes": native.segment.memory.live,
    }


def interleaved(
    calls: dict[str, Callable[[], object]], seconds: float = _SECONDS, one_thread: bool = True
) -> dict[str, list[float]]:
    """Seconds of every call, in rounds of one of each: of this thread, or with `one_thread` False of the wall clock."""
    clock = time.thread_time if one_thread else time.perf_counter
    times: dict[str, list[float]] = {who: [] for who in calls}
    started = clock()
    for call in calls.values():
        call()
    once = max(clock() - started, 1e-6)
    for _ in range(min(max(int(seconds * len(calls) / once), _MIN_ROUNDS), _MAX_ROUNDS)):
        for who, call in calls.items():
            start = clock()
            call()
            times[who].append(clock() - start)
    return times


def largest_difference(a: np.ndarray, b: np.ndarray) -> float:
    """Largest difference over the largest magnitude."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    return float(np.max(np.abs(x - y), initial=0.0) / max(np.max(np.abs(y), initial=0.0), 1e-30))


@contextlib.contextmanager
def _empty_kernel_cache() -> Iterator[None]:
    """Makes the kernel cache empty in its block, so that compile times are those of a first compilation."""
    before = os.environ.get("TILEWRIGHT_CACHE")
    cache.objects.forget()
    with temporary.Folder(prefix="tilewright-bench-") as folder:
        os.environ["TILEWRIGHT_CACHE"] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ["TILEWRIGHT_CACHE"]
            else:
                os.environ["TILEWRIGHT_CACHE"] = before


_OURS = """
import numpy as np, sys
import tilewright as tw
program = tw.load(sys.argv[1])
inputs = dict(np.load(sys.argv[2]))
with tw.Device("functional", config=program.config) as device:
    for _ in range(3):
        device.run(program, inputs)
"""
_THEIRS = """
import numpy as np, sys
import onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
inputs = dict(np.load(sys.argv[2]))
for _ in range(3):
    session.run(None, inputs)
"""
# The kernel's high-water mark of this program; getrusage's still has that of the process that started it.
_PEAK = """
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""


def _peak_memory(case: Case) -> dict[str, Any]:
    """Peak resident bytes of a process that loads and runs the compiled program, and of one with onnxruntime."""
    model = case.model()
    program = compile_program(model, cache=False)
    with temporary.Folder(prefix="tilewright-bench-") as folder:
        paths = {n: str(Path(folder) / n) for n in ("model.onnx", "program.twp", "inputs.npz")}
        onnx.save(model, paths["model.onnx"])
        program.save(paths["program.twp"])
        np.savez(paths["inputs.npz"], **inputs_of(model))  # type: ignore[arg-type]
        ours = _peak_of(_OURS, paths["program.twp"], paths["inputs.npz"])
        theirs = _peak_of(_THEIRS, paths["model.onnx"], paths["inputs.npz"])
    return {"name": case.name, "bytes": ours, "onnxruntime_bytes": theirs, "ratio": ours / theirs}


def _peak_of(script: str, *arguments: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", script + _PEAK, *arguments], capture_output=True, text=True, check=True
    )
    return int(done.stdout) * 1024
