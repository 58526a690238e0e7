"""Quantised ops with parameters that tie against onnxruntime and LiteRT.

    python -m verification.fuzz.ties --count 200000
    python -m verification.fuzz.ties --tflite --dtype int8 --seed 17 --cases 4

A case that differs prints the command that replays it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from pathlib import Path

from verification.fuzz.ties.run import Batch, Result, run

KINDS = (
    ("onnx", "int8"), ("tflite", "int8"), ("onnx", "uint8"), ("tflite", "uint8"), ("onnx", "int8"), ("tflite", "int16"),
    ("onnx", "uint8"), ("tflite", "int8"), ("onnx", "int16"), ("onnx", "uint16"),
)  # fmt: skip

#: Operators between two lines of progress.
PROGRESS = 1000


def batches(seed: int, cases: int) -> itertools.chain[Batch]:
    """Yields a batch of each kind for each seed, without end."""
    return itertools.chain.from_iterable(
        (Batch(f, d, n * len(KINDS) + k, tuple(range(cases))) for k, (f, d) in enumerate(KINDS))
        for n in itertools.count(seed)
    )


def _run_all(options: argparse.Namespace, result: Result) -> None:
    """Runs batches until `options.count` operators were compared; prints faults, and the count now and then."""
    faults, shown = 0, 0
    for batch in batches(options.seed, options.size):
        if result.operators >= options.count:
            return
        if (options.onnx and batch.format != "onnx") or (options.tflite and batch.format != "tflite"):
            continue
        if options.dtype in (None, batch.dtype):
            run(batch, result)
        for fault in result.faults[faults:]:
            print(f"FAILED: {fault}", flush=True)
        faults = len(result.faults)
        if result.operators >= shown + PROGRESS:
            shown = result.operators
            print(f"{shown} operators, next seed {batch.seed // len(KINDS) + 1}", flush=True)


def main(arguments: list[str]) -> int:
    """Runs the command line; returns the number of faults, at most 100."""
    parser = argparse.ArgumentParser(prog="python -m verification.fuzz.ties", description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=2000, help="operators in all, at least")
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    parser.add_argument("--size", type=int, default=48, help="cases in a file")
    parser.add_argument("--onnx", action="store_true", help="ONNX alone")
    parser.add_argument("--tflite", action="store_true", help="TFLite alone")
    parser.add_argument("--dtype", help="activations of one type")
    parser.add_argument("--cases", help="numbers of the cases of one batch, which is --seed")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args(arguments)
    result = Result()
    start = time.process_time()
    if options.cases:
        numbers = tuple(int(n) for n in options.cases.split(","))
        run(Batch("tflite" if options.tflite else "onnx", options.dtype or "int8", options.seed, numbers), result)
    else:
        try:
            _run_all(options, result)
        except KeyboardInterrupt:
            print("stopped; so far:")
    for fault in result.faults if options.cases else ():
        print(fault)
    seconds = time.process_time() - start
    skipped = f"; refused by the reference: {dict(result.skipped)}" if result.skipped else ""
    skipped += f"; documented borders: {dict(result.documented)}" if result.documented else ""
    print(
        f"{result.operators} operators, {result.elements} elements, {len(result.faults)} cases differ, "
        f"{result.borders} elements at documented borders{skipped}; {seconds:.0f} CPU s"
    )
    if options.json:
        figures = {"operators": result.operators, "elements": result.elements, "faults": result.faults,
                   "borders": result.borders, "skipped": dict(result.skipped),
                   "documented": dict(result.documented)}  # fmt: skip
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    return min(len(result.faults), 100)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
