"""Classifies a picture with a trained ImageNet MobileNetV2 (TFLite, int8) on the simulators.

`python examples/classify.py IMAGE [--backend functional|cycle|rtl] [--model FILE]`; `--backend` may be repeated. The
model and `labels.txt` beside it are those of imagenet/ in $TILEWRIGHT_MODELS unless another is named.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import tilewright as tw
from tilewright.common.errors import TilewrightError
from tilewright.runtime.images import ImageOptions, image_input

MODEL = "imagenet/mobilenet_v2_1.0_224_ptq.tflite"


def model_file(given: Path | None) -> Path:
    """The model: `given`, or the one in $TILEWRIGHT_MODELS or `../shared/models` beside the checkout."""
    if given is not None:
        return given
    named = os.environ.get("TILEWRIGHT_MODELS")
    base = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "models"
    if not (base / MODEL).is_file():
        raise SystemExit(f"classify: no {base / MODEL}; give --model FILE or set TILEWRIGHT_MODELS")
    return base / MODEL


def labels_of(model: Path, count: int) -> list[str]:
    """The lines of labels.txt beside the model, else numbers."""
    path = model.parent / "labels.txt"
    lines = path.read_text().splitlines() if path.is_file() else []
    return lines if len(lines) == count else [str(i) for i in range(count)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("image", type=Path)
    parser.add_argument("--backend", action="append", choices=["functional", "cycle", "rtl"], default=None)
    parser.add_argument("--model", type=Path, default=None)
    parser.add_argument("--config", default="base")
    parser.add_argument("--top", type=int, default=5)
    arguments = parser.parse_args()
    console = Console(highlight=False)
    try:
        path = model_file(arguments.model)
        program = tw.compile(path, arguments.config)
        info, out = program.inputs[0], program.outputs[0]
        x = image_input(arguments.image, program, info, ImageOptions())
        first: np.ndarray | None = None
        same = True
        for backend in arguments.backend or ["functional"]:
            with tw.Device(backend) as device:
                device.load(program)  # the RTL simulation is built once, in minutes
                start = time.perf_counter()
                scores = device.run(program, {info.name: x})[out.name].reshape(-1)
                seconds = time.perf_counter() - start
                counters = device.counters
            cycles = "" if counters is None or counters.cycles is None else f", {counters.cycles:,} cycles"
            console.print(f"{backend}: {seconds:.2f} s{cycles}")
            same = same and (first is None or np.array_equal(scores, first))
            first = scores if first is None else first
    except TilewrightError as error:
        print(f"classify: {error}", file=sys.stderr)
        return 2
    assert first is not None
    scale = float(out.scale) if isinstance(out.scale, float | int) else 1.0
    zero = int(out.zero_point) if isinstance(out.zero_point, int) else 0
    values = (first.astype(np.float64) - zero) * scale
    names = labels_of(path, values.size)
    table = Table(title=arguments.image.name, title_justify="left")
    table.add_column("label")
    table.add_column("score", justify="right")
    for index in np.argsort(-values, kind="stable")[: arguments.top]:
        table.add_row(names[index], f"{values[index]:.3f}")
    console.print(table)
    if not same:
        print("classify: the backends differ", file=sys.stderr)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
