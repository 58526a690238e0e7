"""Speed of compiler and functional simulator on ResNet-18, beside onnxruntime's int8 on one thread.

`python -m tilewright.bench [--json FILE]`. The model is `resnet18_qdq.onnx` in the folder $TILEWRIGHT_MODELS if that is
set, else the zoo's. Runs of both alternate, so that a busy machine slows both; medians are reported.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
from rich.table import Table

from isa.config import NpuConfig

MODEL_FILE = "resnet18_qdq.onnx"


def bench_model(model: str | Path | None = None) -> tuple[str, onnx.ModelProto]:
    """The model to measure and what to call it."""
    from tilewright.reference import load_model

    folder = os.environ.get("TILEWRIGHT_MODELS")
    if model is None and folder and (Path(folder) / MODEL_FILE).is_file():
        model = Path(folder) / MODEL_FILE
    if model is not None:
        return Path(model).stem, load_model(model)
    from tilewright import zoo

    return "zoo resnet18", zoo.build_quantized("resnet18")


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measure(
    model: str | Path | None = None,
    *,
    config: str | Path | NpuConfig = "base",
    runs: int = 5,
    progress: Callable[..., None] = lambda *_: None,
) -> dict[str, Any]:
    """Compiles once, runs `runs` times, alternating with onnxruntime.

    Returns:
        Seconds, GMAC/s and `ratio`: seconds on the simulator over seconds on onnxruntime.
    """
    import tilewright as tw
    from tilewright.reference import Reference

    name, proto = bench_model(model)
    progress(f"compiling {name}")
    program = tw.compile(proto, config)
    inputs = tw.random_inputs(program)
    reference = Reference(proto)
    with tw.Device("functional") as device:
        expected = reference.run(inputs)  # also warms both up
        outputs = device.run(program, inputs)
        simulated, native = [], []
        for index in range(runs):
            progress(f"running {name}", index, runs)
            simulated.append(_timed(lambda: device.run(program, inputs)))
            native.append(_timed(lambda: reference.run(inputs)))
    seconds, theirs = statistics.median(simulated), statistics.median(native)
    return {
        "model": name,
        "config": program.config.name,
        "macs": program.macs,
        "npu_mac_fraction": program.npu_macs / program.macs if program.macs else 0.0,
        "compile_seconds": program.compile_seconds,
        "runs": runs,
        "run_seconds": seconds,
        "gmacs_per_second": program.macs / seconds / 1e9,
        "reference": reference.name,
        "reference_seconds": theirs,
        "reference_gmacs_per_second": program.macs / theirs / 1e9,
        "ratio": seconds / theirs,
        "equal": all(outputs[n].tobytes() == expected[n].tobytes() for n in outputs),
    }


def table(result: dict[str, Any]) -> Table:
    """For people."""
    shown = Table(title=f"{result['model']} for {result['config']}, medians of {result['runs']} runs")
    for heading in ("what", "seconds", "GMAC/s"):
        shown.add_column(heading, justify="left" if heading == "what" else "right")
    shown.add_row("compile", f"{result['compile_seconds']:.2f}", "")
    shown.add_row("functional simulator", f"{result['run_seconds']:.4f}", f"{result['gmacs_per_second']:.2f}")
    shown.add_row(
        f"{result['reference']}, 1 thread",
        f"{result['reference_seconds']:.4f}",
        f"{result['reference_gmacs_per_second']:.2f}",
    )
    shown.add_row("simulator / onnxruntime", f"{result['ratio']:.2f}x", "")
    return shown


if __name__ == "__main__":
    import sys

    from tilewright.cli import cli

    cli.main(["bench", *sys.argv[1:]], prog_name="tilewright")
