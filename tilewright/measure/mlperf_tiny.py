"""The four networks of MLPerf Tiny (closed division, int8 TFLite): cycles, memory, bytes, and equality with LiteRT.

Also with 16-bit activations and the same weights (`tilewright.quantize.tflite_sixteen`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tilewright import registry
from tilewright.api.compilation import compile_program
from tilewright.checking.litert_reference import LiteRtReference
from tilewright.compiler.importer.tflite.schema import read
from tilewright.errors import UsageError
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import TensorInfo
from tilewright.runtime.devices import Device
from tilewright.runtime.inputs import random_inputs

NETWORKS = (
    ("keyword spotting", "kws_dscnn_int8.tflite"),
    ("image classification", "resnet8_int8.tflite"),
    ("visual wake words", "vww_mobilenet_int8.tflite"),
    ("anomaly detection", "ad_autoencoder_int8.tflite"),
)
INPUTS = {"kws_dscnn_int8.tflite": "kws_inputs.npz"}
_RANDOM_INPUTS = 3


def folder(given: str | Path | None = None) -> Path:
    """The folder with the networks: `given`, or mlperf_tiny/ in $TILEWRIGHT_MODELS. Raises `UsageError`."""
    named = os.environ.get("TILEWRIGHT_MODELS")
    if given is None and not named:
        raise UsageError("where are the networks? give --models DIR or set TILEWRIGHT_MODELS")
    base = Path(given if given is not None else str(named))
    for path in (base, base / "mlperf_tiny"):
        if (path / NETWORKS[0][1]).is_file():
            return path
    raise UsageError(f"no {NETWORKS[0][1]} in {base}")


def measure(
    models: Path,
    config: str | Path | NpuConfig = "base",
    mhz: float = 500.0,
    progress: Callable[..., None] = lambda *_: None,
    activation: str = "int8",
) -> list[dict[str, Any]]:
    """One entry per network that is in the folder, with activations of int8 or int16."""
    found = []
    for index, (what, file) in enumerate(NETWORKS):
        if (models / file).is_file():
            progress(f"measuring {what}", index, len(NETWORKS))
            found.append({"network": what, "file": file, **_measure(models, file, config, mhz, activation)})
    return found


def _measure(models: Path, file: str, config: str | Path | NpuConfig, mhz: float, activation: str) -> dict[str, Any]:
    narrow = (models / file).read_bytes()
    model = narrow if activation == "int8" else registry.service("widen activations")(narrow)
    program = compile_program(model, config, tuning="off")
    reference = LiteRtReference(model)
    name, out = program.inputs[0].name, program.outputs[0].name
    labels: np.ndarray | None = None
    samples = [random_inputs(program, seed)[name] for seed in range(_RANDOM_INPUTS)]
    if file in INPUTS and (models / INPUTS[file]).is_file():
        with np.load(models / INPUTS[file]) as data:
            labels = data["labels"]
            samples = [_as_input(narrow, program.inputs[0], x) for x in data["inputs"]]
    start = time.perf_counter()
    with Device("functional") as device:
        got = [device.run(program, {name: x})[out].reshape(-1) for x in samples]
    seconds = (time.perf_counter() - start) / len(samples)
    expected = [reference.run({name: x})[out].reshape(-1) for x in samples]
    with Device("cycle") as device:
        device.run(program, {name: samples[0]})
        counters = device.counters
    assert counters is not None
    cycles = counters.cycles or 0  # none where nothing runs on the NPU
    entry: dict[str, Any] = {
        "config": program.config.name, "activation": activation, "macs": program.macs, "cycles": cycles, "mhz": mhz,
        "latency_us": cycles / mhz, "constant_bytes": len(program.constants),
        "arena_bytes": program.arena_bytes, "host_bytes": program.host_bytes, "bytes_read": counters.bytes_read,
        "bytes_written": counters.bytes_written, "inputs": len(samples), "inputs_are_real": labels is not None,
        "output_bytes": sum(e.size for e in expected),
        "output_mismatches": sum(int(np.sum(a != b)) for a, b in zip(got, expected)),
        "top1_equal": sum(int(np.argmax(a) == np.argmax(b)) for a, b in zip(got, expected)),
        "accuracy": None, "reference_accuracy": None, "functional_seconds": seconds, "reference": reference.name,
    }  # fmt: skip
    if labels is not None:
        for key, results in (("accuracy", got), ("reference_accuracy", expected)):
            entry[key] = float(np.mean([int(np.argmax(y)) == int(label) for y, label in zip(results, labels)]))
    return entry


def _as_input(narrow: bytes, target: TensorInfo, sample: np.ndarray) -> np.ndarray:
    """A sample of the int8 network's input as that of the network to measure."""
    sample = sample.reshape(target.shape)
    if target.dtype != "int16":
        return sample
    file = read(narrow)
    quant = file.tensors[file.inputs[0]].quant
    assert quant is not None and isinstance(target.scale, float)
    real = (sample.astype(np.float64) - int(quant.zero_point)) * float(quant.scale)
    return np.asarray(np.rint(real / target.scale).clip(-32768, 32767), np.int16)
