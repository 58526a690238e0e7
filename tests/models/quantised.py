"""Measures `tilewright quantize` on a float network: whether the file loads, the error of its outputs, what runs where,
and its cost."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw
from tests.models import usage
from tests.models.networks import Network
from tilewright.checking.onnxruntime_reference import reference_of
from tilewright.quantize.classes import CLEAR

FIRST = 2000
"""Number of the first sample to judge by: those to calibrate with are 0, 1, 2, ..."""


def quantised(network: Network, path: Path) -> dict[str, Any]:
    """Quantises the file by the command with its default settings, and judges the result on samples that the command
    has never seen.

    Returns:
        calibration, held_back: how many samples.
        seconds, cpu_seconds: of the command.
        memory, float_memory: bytes at their peak, of the command and of a process that runs the float network once in
            onnxruntime; 0 if not known.
        check_memory, all_memory: of the process that the command starts to compile and run the result, and of all
            processes at one time.
        sqnr: in dB, of the worst output.
        npu_fraction: of the result's multiply-accumulates; None if they are not known before it runs.
        texts, same_texts: how many samples say a text, and in how many it is that of the float network.
        unsure_texts: in how many more it differs only where the float network is not sure; see `sure`.
        turns: how often the NPU is started in a run.
        equal, differs: how the result compares in onnxruntime and Tilewright.
        plain_sqnr, plain_cpu_seconds, plain_memory: of onnxruntime's plain quantiser; None where it fails, or has no
            such models.
        Or `failure`.
    """
    result, found = path.with_name(f"int8-{path.name}"), path.with_name("quantize.json")
    samples = path.with_name("samples")
    samples.mkdir()
    for number in range(network.calibration):
        np.savez(samples / f"{number:03}.npz", **network.sample(number))  # type: ignore[arg-type]
    first = network.sample(0)
    shapes = [f"--shape={n}={','.join(map(str, v.shape))}" for n, v in first.items() if v.ndim and not network.tflite]
    command = [sys.executable, "-m", "tilewright", "quantize", str(path), "--calibration", str(samples), *shapes]
    used = usage.use_of([*command, "-o", str(result), "--json", str(found)])
    if used.code:
        said = (used.said.strip().splitlines() or ["without a word"])[-1].replace(f"{path.parent}/", "")
        return {"failure": said.removeprefix("tilewright: error: ") if used.code in (1, 2) else f"crashed: {said}"}
    alone = 0 if network.tflite else usage.peak_of_float_run(path, samples / "000.npz")
    said = json.loads(found.read_text(encoding="utf-8"))["verified"]
    measured = {
        "calibration": network.calibration,
        "held_back": network.held_back,
        "seconds": used.seconds,
        "cpu_seconds": used.cpu_seconds,
        "memory": used.peak,
        "check_memory": used.children,
        "all_memory": used.together,
        "float_memory": alone,
        "npu_fraction": said["npu_macs"] / said["macs"] if said["macs"] else None,
        "turns": said["turns"],
        "equal": said["check"]["equal"],
        "differs": "equal" if said["check"]["equal"] else f"{said['check']['mismatches']} elements differ",
    }
    measured |= _plain(network, path, samples)
    try:
        return measured | _judged(network, path, result)
    except tw.TilewrightError as error:
        return {"failure": f"the result does not run: {error}"}


def _plain(network: Network, path: Path, samples: Path) -> dict[str, Any]:
    """Figures of what the plain quantiser makes of the same samples."""
    result = path.with_name(f"plain-{path.name}")
    if not network.tflite:
        used = usage.use_of([sys.executable, "-m", "tests.models.plain", str(path), str(samples), str(result)])
        with contextlib.suppress(tw.TilewrightError):  # a result that onnxruntime does not load
            if not used.code:
                return {
                    "plain_sqnr": _judged(network, path, result)["sqnr"],
                    "plain_cpu_seconds": used.cpu_seconds,
                    "plain_memory": used.peak,
                }
    return dict.fromkeys(["plain_sqnr", "plain_cpu_seconds", "plain_memory"])


def _judged(network: Network, path: Path, result: Path) -> dict[str, Any]:
    """Outputs of both networks on the samples from `FIRST` on, each in its own runtime."""
    floats, integers = reference_of(path), reference_of(result)
    energy: dict[int, np.ndarray] = {}  # of the signal and of the error, by the output's place
    same = unsure = 0
    for number in range(FIRST, FIRST + network.held_back):
        sample = network.sample(number)
        wanted, got = (list(one.run(sample).values()) for one in (floats, integers))
        for place, (a, b) in enumerate(zip(wanted, got, strict=True)):
            if a.dtype.kind == "f":
                both = np.array([np.square(x, dtype=np.float64).sum() for x in (a, a.astype(np.float64) - b)])
                energy[place] = energy.get(place, np.zeros(2)) + both
        if network.text:
            alike = read_text(wanted[0]) == read_text(got[0])
            other = wanted[0].argmax(axis=-1) != got[0].argmax(axis=-1)
            same, unsure = same + alike, unsure + (not alike and not (other & sure(wanted[0])).any())
    found = [200.0 if not error else float(10 * np.log10(signal / error)) for signal, error in energy.values()]
    return {
        "sqnr": min(found, default=float("nan")),
        "texts": network.held_back if network.text else 0,
        "same_texts": same,
        "unsure_texts": unsure,
    }


def read_text(scores: np.ndarray) -> list[int]:
    """The letters, as numbers, of a network trained by CTC: the best class of each position, repetitions and class 0,
    which is none, left out.

    Args:
        scores: classes along the last axis.
    """
    best = scores.reshape(-1, scores.shape[-1]).argmax(axis=1)
    changed = np.concatenate([[True], best[1:] != best[:-1]])
    return [int(x) for x in best[changed] if x]


def sure(scores: np.ndarray) -> np.ndarray:
    """True where the best class is at least twice as probable as the next, bool[...] without the last axis.

    Args:
        scores: probabilities, or what a Softmax makes such of, along the last axis.
    """
    second, first = np.moveaxis(np.partition(scores.astype(np.float64), -2, axis=-1)[..., -2:], -1, 0)
    probabilities = scores.min() >= 0 and np.allclose(scores.sum(axis=-1), 1, atol=1e-3)
    return np.asarray(first >= CLEAR * second if probabilities else first - second >= np.log(CLEAR))
