"""From a float model to a quantised one: int8 weights and activations in QDQ form.

>>> from tilewright.quantize import quantize
>>> result = quantize("float.onnx", "photos/")
>>> onnx.save(result.model, "int8.onnx")
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from tilewright.quantize import ranges
from tilewright.quantize.layers import Network, tensors_to_observe
from tilewright.quantize.prepare import Shapes, prepare, read
from tilewright.quantize.recipe import Progress, Recipe
from tilewright.quantize.samples import Data, inputs_of, samples_of, split
from tilewright.quantize.verify import Verified, verify
from tilewright.quantize.writing import write


@dataclass(frozen=True)
class Quantized:
    """A quantised model, and how it came about.

    Attributes:
        model: in QDQ form.
        recipe: what decided it; its `model` is the prepared float model.
        verified: what running it showed; None if that was not asked for.
    """

    model: onnx.ModelProto
    recipe: Recipe
    verified: Verified | None


def quantize(
    model: str | Path | onnx.ModelProto,
    data: Data,
    *,
    shapes: Shapes | None = None,
    images: Any = None,
    held_back: int | None = None,
    activation: str = "int8",
    per_channel: bool = True,
    check: bool = True,
    progress: Progress | None = None,
) -> Quantized:
    """Quantises a float ONNX model.

    Args:
        model: file or ModelProto (left unchanged).
        data: calibration data; see `samples.samples_of`.
        shapes: sizes of inputs that the model leaves open.
        images: `image_samples.ImageOptions`, for folders of images.
        held_back: samples to measure on, not used to calibrate; see `samples.split`.
        activation: "int8" or "uint8".
        per_channel: one scale per output channel of the weights.
        check: run the result in onnxruntime and in our compiler.
        progress: called with what is being done and the fraction done.

    Raises:
        UsageError: the model or the data cannot be used; one line that says what to do.
    """
    prepared = prepare(read(model), shapes)
    samples = samples_of(data, inputs_of(prepared), images)
    calibration, held = split(samples, held_back)

    recipe = Recipe(prepared, activation=activation, per_channel=per_channel)
    recipe.ranges = ranges.min_max(prepared, calibration, tensors_to_observe(Network(prepared)), progress)

    written = write(recipe)
    verified = verify(written, held[0]) if check else None
    return Quantized(written, recipe, verified)
