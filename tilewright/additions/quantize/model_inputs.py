"""The inputs of a model: names, types and sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from tilewright.errors import UsageError


@dataclass(frozen=True)
class Input:
    """An input of a model: its type, and its sizes with None for an open one."""

    dtype: np.dtype
    sizes: tuple[int | None, ...]

    def takes(self, shape: Sequence[int]) -> bool:
        return len(shape) == len(self.sizes) and all(want in (None, got) for want, got in zip(self.sizes, shape))

    def __str__(self) -> str:
        return f"{self.dtype.name}[{', '.join('any' if n is None else str(n) for n in self.sizes)}]"


def inputs_of(model: onnx.ModelProto) -> dict[str, Input]:
    """The inputs that a run needs.

    Raises:
        UsageError: one is no tensor, or has no shape.
    """
    constants = {x.name for x in model.graph.initializer}
    inputs = {}
    for x in model.graph.input:
        if x.name not in constants:
            kind = x.type.tensor_type
            if not kind.elem_type:
                raise UsageError(
                    f"input {x.name!r} is {x.type.WhichOneof('value') or 'of no type'}; tensors are accepted"
                )
            if not kind.HasField("shape"):
                raise UsageError(
                    f"input {x.name!r} has no shape in the model, not even a rank: give its sizes with "
                    f"--shape {x.name}=SIZE,SIZE,..."
                )
            dims = kind.shape.dim
            sizes = tuple(d.dim_value if d.HasField("dim_value") and d.dim_value > 0 else None for d in dims)
            inputs[x.name] = Input(np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type)), sizes)
    return inputs
