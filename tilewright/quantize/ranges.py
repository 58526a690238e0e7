"""Ranges of the tensors inside a model, over samples of its inputs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from tilewright.quantize.observe import observe
from tilewright.quantize.recipe import Progress, Range, Samples


def min_max(
    model: onnx.ModelProto, samples: Samples, tensors: Sequence[str], progress: Progress | None = None
) -> dict[str, Range]:
    """Least and greatest value of each tensor. Tensors without elements or finite values have the range 0..0."""
    found: dict[str, Range] = {}

    def take(name: str, value: np.ndarray) -> None:
        finite = value[np.isfinite(value)] if value.size and not np.isfinite(value).all() else value
        seen = Range(float(finite.min()), float(finite.max())) if finite.size else Range(0.0, 0.0)
        found[name] = found[name].union(seen) if name in found else seen

    observe(model, samples, tensors, take, progress)
    return found
