"""What `tilewright quantize` makes of a float network: does the file load, how far are its outputs, what runs where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw
from isa.program import Program
from tests.models.networks import Network
from tilewright.checking.onnxruntime_reference import reference_of
from tilewright.cli import cli

CALIBRATION, HELD_BACK = 16, 4  # samples; those held back are numbers of their own


def quantised(network: Network, path: Path) -> dict[str, Any]:
    """Quantises the file with the command's default settings.

    Returns:
        `sqnr`, in dB, of the worst output on the samples held back; `npu_fraction`, `equal` and `differs` of the result
        against its reference; or `failure`.
    """
    result = path.with_name(f"int8-{path.name}")
    samples = path.with_name("samples")
    samples.mkdir()
    for number in range(CALIBRATION):
        np.savez(samples / f"{number:03}.npz", **network.sample(number))  # type: ignore[arg-type]
    first = network.sample(0)
    shapes = [f"--shape={n}={','.join(map(str, v.shape))}" for n, v in first.items() if v.ndim]
    arguments = ["quantize", str(path), "--calibration", str(samples), "-o", str(result), *shapes]
    try:
        cli.main(arguments, prog_name="tilewright", standalone_mode=False)
        return _measured(network, path, result)
    except (tw.TilewrightError, OSError) as error:
        return {"failure": str(error).replace(f"{path.parent}/", "")}
    except Exception as error:
        return {"failure": f"crashed: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}


def _measured(network: Network, path: Path, result: Path) -> dict[str, Any]:
    floats, integers = reference_of(path), reference_of(result)
    pairs: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
    for number in range(1000, 1000 + HELD_BACK):
        sample = network.sample(number)
        outputs = zip(floats.run(sample).values(), integers.run(sample).values(), strict=True)
        for place, (wanted, got) in enumerate(outputs):
            if wanted.dtype.kind == "f":
                pairs.setdefault(place, []).append((wanted, got))
    sample = network.sample(1000)
    shapes = {name: value.shape for name, value in sample.items()}
    model = tw.compile(result, shapes=shapes, cache=False)
    with tw.Device("functional") as device:
        device.run(model, sample)
        parts = [model] if isinstance(model, Program) else model.ran
        report = tw.check(result, sample, shapes=shapes, device=device, program=model)
    macs = sum(part.macs for part in parts)
    return {
        "sqnr": min((_sqnr(found) for found in pairs.values()), default=float("nan")),
        "npu_fraction": sum(part.npu_macs for part in parts) / macs if macs else 0.0,
        "equal": report.ok,
        "differs": "equal" if report.ok else f"{report.mismatches} of {report.elements} elements differ",
    }


def _sqnr(pairs: list[tuple[np.ndarray, np.ndarray]]) -> float:
    """Energy of the float outputs over that of the errors, in dB."""
    energy = sum(float((a.astype(np.float64) ** 2).sum()) for a, _ in pairs)
    noise = sum(float(((a.astype(np.float64) - b) ** 2).sum()) for a, b in pairs)
    return float(10 * np.log10(energy / noise)) if noise and energy else 200.0
