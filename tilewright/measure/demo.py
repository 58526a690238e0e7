"""The networks of `tilewright demo`, against onnxruntime: trained digits over their whole test set, ResNet-18 once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from tilewright import zoo
from tilewright.api.compilation import compile_program
from tilewright.checking.onnxruntime_reference import Reference
from tilewright.isa.program import Program
from tilewright.runtime.devices import Device

#: Trained by examples/digits/train.py.
DIGITS = Path(zoo.__file__).parent / "digits"


@dataclass(frozen=True)
class Digits:
    """Results of the digits network on the images that were held back from its training.

    Attributes:
        images: their number.
        correct: how many have the right digit, by the arithmetic.
        equal: images for which the NPU's output has the bytes of onnxruntime's.
    """

    images: int
    correct: dict[str, int]
    equal: int


@dataclass(frozen=True)
class Once:
    """One run of a network.

    Attributes:
        macs: multiply-accumulates.
        compile_seconds, run_seconds: on the clock.
        outputs: elements of the output.
        mismatches: elements whose bytes are not those of onnxruntime.
    """

    macs: int
    compile_seconds: float
    run_seconds: float
    outputs: int
    mismatches: int


def reference(model: onnx.ModelProto) -> Callable[[np.ndarray], np.ndarray]:
    """The output of onnxruntime as a function of the input named `input`. Raises `MissingPackageError`."""
    session = Reference(model).session(model)

    def run(images: np.ndarray) -> np.ndarray:
        return np.asarray(session.run(None, {"input": images})[0])

    return run


def digits(step: Callable[[float], object] = lambda fraction: None) -> Digits:
    """Runs the digits network in floats and in 8 bits by onnxruntime, and in 8 bits on the NPU `base`.

    Args:
        step: told the fraction that is done.
    """
    floats, integers = (reference(onnx.load(DIGITS / f"digits_{kind}.onnx")) for kind in ("float", "int8"))
    with np.load(DIGITS / "digits_test.npz") as data:
        images = data["images"].astype(np.float32) / np.float32(16)
        labels = data["labels"].astype(np.int64)
    program = compile_program(DIGITS / "digits_int8.onnx", config="base")
    correct, equal = dict.fromkeys(("float, onnxruntime", "int8, onnxruntime", "int8, NPU"), 0), 0
    with Device("functional") as device:
        for number, (image, label) in enumerate(zip(images, labels, strict=True)):
            image = image[None]
            scores = [floats(image), integers(image), device.run(program, {"input": image})["output"]]
            for name, found in zip(correct, scores, strict=True):
                correct[name] += int(found.argmax() == label)
            equal += int(scores[1].tobytes() == scores[2].tobytes())
            step((number + 1) / len(images))
    return Digits(len(images), correct, equal)


def resnet18(tell: Callable[[str], object] = lambda text: None) -> Once:
    """Builds, quantises, compiles and runs ResNet-18 at 224 x 224 once on the NPU `base`.

    Args:
        tell: told what is being done.
    """
    tell("ResNet-18: building and quantising (kept for the next time)")
    model = zoo.build_quantized("resnet18", size=224, calibration=2)
    inputs = zoo.random_inputs(model, 1, seed=1)[0]
    tell("ResNet-18: compiling")
    start = time.perf_counter()
    program: Program = compile_program(model, config="base")
    compile_seconds = time.perf_counter() - start
    tell("ResNet-18: running")
    with Device("functional") as device:
        start = time.perf_counter()
        got = device.run(program, inputs)["output"]
        run_seconds = time.perf_counter() - start
    expected = reference(model)(inputs["input"])
    mismatches = int(np.sum(got.view(np.uint32) != expected.view(np.uint32)))
    return Once(zoo.count_macs(model), compile_seconds, run_seconds, expected.size, mismatches)
