"""Speed of compiler and functional simulator on ResNet-18, beside onnxruntime's int8 on one thread; compile time of a
detector.

`tilewright bench`. The model is `resnet18_qdq.onnx` in the folder $TILEWRIGHT_MODELS if that is
set, else the zoo's. onnxruntime is measured twice: on the same model by the exact integer kernels that the checks
compare with, and on the zoo's network of the same shape with uint8 activations, its fastest int8 form; `ratio` is to
the faster one. All runs alternate, so that a busy machine slows all of them; medians are reported.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from tilewright import zoo
from tilewright.api.compilation import compile_program
from tilewright.checking.onnxruntime_reference import Reference, load_model
from tilewright.common import temporary
from tilewright.compiler.cpu.object.cache import objects
from tilewright.isa.config import NpuConfig
from tilewright.measure.cpu_speed import largest_difference
from tilewright.runtime.devices import Device
from tilewright.runtime.inputs import random_inputs

MODEL_FILE = "resnet18_qdq.onnx"


def speed_model(model: str | Path | None = None) -> tuple[str, onnx.ModelProto, onnx.ModelProto | None]:
    """Name of the model, the model, and its form with uint8 activations (None for a model of one's own)."""
    if model is not None:
        return Path(model).stem, load_model(model), None
    fastest = zoo.build_quantized("resnet18", activation="uint8")
    folder = os.environ.get("TILEWRIGHT_MODELS")
    if folder and (Path(folder) / MODEL_FILE).is_file():
        return Path(MODEL_FILE).stem, load_model(Path(folder) / MODEL_FILE), fastest
    return "zoo resnet18", zoo.build_quantized("resnet18"), fastest


def compile_time(
    network: str, config: str | Path | NpuConfig = "base", progress: Callable[..., None] = lambda *_: None
) -> dict[str, Any]:
    """Seconds and CPU seconds (with those of child processes) that a network of the zoo takes to compile where nothing
    of it was compiled before: no kernels are found in the cache."""
    progress(f"getting {network}")
    proto = zoo.build_quantized(network, calibration=2)
    progress(f"compiling {network}")
    before = os.environ.get("TILEWRIGHT_CACHE")
    with temporary.Folder() as empty:
        os.environ["TILEWRIGHT_CACHE"] = empty
        objects.forget()
        used = cpu_seconds()
        try:
            program = compile_program(proto, config, cache=False, tuning="off")
        finally:
            del os.environ["TILEWRIGHT_CACHE"]
            if before is not None:
                os.environ["TILEWRIGHT_CACHE"] = before
    return {
        f"{network}_macs": program.macs,
        f"{network}_compile_seconds": program.compile_seconds,
        f"{network}_compile_cpu_seconds": cpu_seconds() - used,
    }


def cpu_seconds() -> float:
    """CPU seconds of this process so far, and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measure(
    model: str | Path | None = None,
    *,
    config: str | Path | NpuConfig = "base",
    shapes: Mapping[str, Sequence[int]] | None = None,
    runs: int = 5,
    progress: Callable[..., None] = lambda *_: None,
) -> dict[str, Any]:
    """Compiles once, runs `runs` times, alternating with onnxruntime.

    Args:
        model: an ONNX file in place of ResNet-18.
        shapes: of its inputs, where it leaves sizes open.

    Returns:
        Seconds, GMAC/s, whether the bytes are equal and else the largest `difference`, and `ratio`: seconds on the
        simulator over those of the fastest onnxruntime run.
    """
    progress("getting the model")
    name, proto, other = speed_model(model)
    progress(f"compiling {name}")
    program = compile_program(proto, config, shapes, cache=False)
    inputs = random_inputs(program)
    exact = Reference(proto)
    with Device("functional") as device:
        expected = exact.run(inputs)  # this first round also warms everything up
        outputs = device.run(program, inputs)
        calls: dict[str, Callable[[], object]] = {
            "simulator": lambda: device.run(program, inputs),
            "exact": lambda: exact.run(inputs),
        }
        if other is not None:
            fastest = Reference(other)
            given = dict(zip((i.name for i in other.graph.input), inputs.values()))
            fastest.run(given)
            calls["uint8"] = lambda: fastest.run(given)
        times: dict[str, list[float]] = {key: [] for key in calls}
        for index in range(runs):
            progress(f"running {name}", index, runs)
            for key, call in calls.items():
                times[key].append(_timed(call))
    detector = compile_time("detector", config, progress) if model is None else {}
    median = {key: statistics.median(found) for key, found in times.items()}
    seconds = median["simulator"]
    return {
        "model": name,
        "config": program.config.name,
        "macs": program.macs,
        "npu_mac_fraction": program.npu_macs / program.macs if program.macs else 0.0,
        "compile_seconds": program.compile_seconds,
        **detector,
        "runs": runs,
        "run_seconds": seconds,
        "gmacs_per_second": program.macs / seconds / 1e9,
        "reference": exact.name,
        "reference_seconds": median["exact"],
        "reference_uint8_seconds": median.get("uint8"),
        "ratio": seconds / min(x for key, x in median.items() if key != "simulator"),
        "equal": all(outputs[n].tobytes() == expected[n].tobytes() for n in outputs),
        "difference": max(largest_difference(outputs[n], expected[n]) for n in outputs),
    }
