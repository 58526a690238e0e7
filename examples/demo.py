"""The tour of `make demo`: trained digits over their whole test set, then ResNet-18 once, both against onnxruntime.

Exit status 1 if a single output byte differs.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent / "digits"))
import evaluate as digits

from tilewright import zoo


def resnet18(console: Console) -> bool:
    """Compile and run the zoo's ResNet-18 on the functional simulator; True if all output bytes are onnxruntime's."""
    import tilewright as tw

    with console.status("ResNet-18: building and quantising (kept for the next time)"):
        model = zoo.build_quantized("resnet18", size=224, calibration=2)
    inputs = zoo.random_inputs(model, 1, seed=1)[0]
    with console.status("ResNet-18: compiling"), tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "resnet18.onnx"
        onnx.save(model, str(path))
        start = time.perf_counter()
        program = tw.compile(str(path), config="base")
        compile_seconds = time.perf_counter() - start
    with console.status("ResNet-18: running"):
        device = tw.Device("functional")
        start = time.perf_counter()
        got = device.run(program, inputs)["output"]
        run_seconds = time.perf_counter() - start
    expected = digits.reference(model)(inputs["input"])
    mismatches = int(np.sum(got.view(np.uint32) != expected.view(np.uint32)))

    macs = zoo.count_macs(model)
    table = Table(title="ResNet-18 at 224 x 224, int8, one image")
    for heading in ("GMAC", "compile s", "run s", "GMAC/s", "outputs", "mismatches"):
        table.add_column(heading, justify="right")
    table.add_row(
        f"{macs / 1e9:.2f}",
        f"{compile_seconds:.2f}",
        f"{run_seconds:.2f}",
        f"{macs / run_seconds / 1e9:.2f}",
        str(expected.size),
        str(mismatches),
    )
    console.print(table)
    return mismatches == 0


def main() -> int:
    console = Console()
    equal = digits.evaluate(console)
    console.print()
    equal = resnet18(console) and equal
    console.print("[green]Every byte equals onnxruntime's." if equal else "[red]Some bytes differ from onnxruntime's.")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
