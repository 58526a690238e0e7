"""Accuracy of the digits network on its held-back images: float, int8 by onnxruntime, int8 by the NPU.

python examples/digits/evaluate.py                # functional simulator, one image a run
python examples/digits/evaluate.py --batch 36     # compiled for 36 images a run
python examples/digits/evaluate.py --reference    # onnxruntime only
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import network
import numpy as np
import onnx
import onnxruntime
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tilewright import zoo

Run = Callable[[np.ndarray], np.ndarray]


def reference(model: str | onnx.ModelProto) -> Run:
    """onnxruntime on the CPU, its integer kernels for int8 models, as a function of the input named `input`."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    # Without this, QDQ models with int8 activations silently run as float.
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    source = model if isinstance(model, str) else model.SerializeToString()
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return lambda images: session.run(None, {"input": images})[0]


def npu(path: str, device: str = "functional", config: str = "base") -> Run:
    """The model compiled for the NPU and run on a device, as a function of the input named `input`."""
    import tilewright as tw

    program = tw.compile(path, config=config)
    target = tw.Device(device)
    return lambda images: target.run(program, {"input": images})["output"]


def progress_bar(console: Console) -> Progress:
    """One line per job: what, bar, count, time."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console)


def scores(run: Run, images: np.ndarray, batch: int, step: Callable[[int], object] = lambda count: None) -> np.ndarray:
    """Scores of all images, `batch` a run; the last run is filled up with blank images. `step` is told each count."""
    parts = []
    for start in range(0, len(images), batch):
        chunk = images[start : start + batch]
        blank = np.zeros((batch - len(chunk), *chunk.shape[1:]), chunk.dtype)
        parts.append(run(np.concatenate([chunk, blank]))[: len(chunk)])
        step(len(chunk))
    return np.concatenate(parts)


def equal_rows(a: np.ndarray, b: np.ndarray) -> int:
    """Number of images with the same bytes in both sets of scores."""
    return int(np.sum([x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=True)]))


def evaluate(console: Console, *, device: str | None = "functional", config: str = "base", batch: int = 1) -> bool:
    """Print the accuracy table; True if the NPU's scores are onnxruntime's to the byte. No device: onnxruntime only."""
    images, labels = network.load_test_set()
    float_model = zoo.with_batch(onnx.load(network.FLOAT_MODEL), batch)
    int8_model = zoo.with_batch(onnx.load(network.INT8_MODEL), batch)
    runs: dict[str, Run] = {"float, onnxruntime": reference(float_model), "int8, onnxruntime": reference(int8_model)}
    # The committed file as it is; another batch needs a file of its own.
    folder: AbstractContextManager[str] = nullcontext("") if batch == 1 else tempfile.TemporaryDirectory()
    with folder as place:
        if device is not None:
            path = str(network.INT8_MODEL)
            if batch != 1:
                path = str(Path(place) / network.INT8_MODEL.name)
                onnx.save(int8_model, path)
            runs[f"int8, NPU ({device})"] = npu(path, device, config)
        results = {}
        with progress_bar(console) as progress:
            for name, run in runs.items():
                task = progress.add_task(name, total=len(images))
                results[name] = scores(run, images, batch, lambda count, task=task: progress.advance(task, count))

    expected = results["int8, onnxruntime"]
    table = Table(title=f"Handwritten digits: {len(images)} held-back images")
    table.add_column("arithmetic")
    table.add_column("accuracy", justify="right")
    table.add_column("bytes equal to int8 onnxruntime", justify="right")
    for name, result in results.items():
        accuracy = np.mean(result.argmax(axis=1) == labels)
        table.add_row(name, f"{accuracy:.2%}", f"{equal_rows(result, expected)} of {len(images)}")
    console.print(table)
    last = next(reversed(results.values()))  # the NPU's, if it ran
    return equal_rows(last, expected) == len(images)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--batch", type=int, default=1, help="images per run (default 1)")
    parser.add_argument("--device", default="functional", help="where the NPU's program runs (default functional)")
    parser.add_argument("--config", default="base", help="NPU configuration (default base)")
    parser.add_argument("--reference", action="store_true", help="onnxruntime only")
    options = parser.parse_args()
    if options.batch < 1:
        parser.error(f"--batch must be at least 1, not {options.batch}")
    device = None if options.reference else options.device
    return 0 if evaluate(Console(), device=device, config=options.config, batch=options.batch) else 1


if __name__ == "__main__":
    sys.exit(main())
