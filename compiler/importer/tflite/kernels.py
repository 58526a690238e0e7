"""The kernels of LiteRT whose bytes those of a file are: the default ones or the reference ones."""

from __future__ import annotations

import numpy as np

from tilewright.compiler.graph.tensor import EIGHT_BIT
from tilewright.compiler.importer.tflite.handlers import MOVES
from tilewright.compiler.importer.tflite.schema import FileModel, FileOp

#: Operators besides `MOVES` whose results are some of their operands, by all kernels alike.
_SELECTS = ("CONCATENATION", "MAX_POOL_2D", "MAXIMUM", "MINIMUM")


def by_reference_kernels(model: FileModel) -> bool:
    """Whether there are 16-bit activations, and no operator computes 8-bit ones; moves and QUANTIZE of others than
    bytes do not."""
    made = [*model.inputs, *(i for op in model.ops for i in op.outputs)]
    wide = any(model.tensors[i].dtype == np.int16 and model.tensors[i].quant is not None for i in made)
    return wide and not any(_computes_bytes(model, op) for op in model.ops)


def _computes_bytes(model: FileModel, op: FileOp) -> bool:
    is_bytes = lambda i: i >= 0 and model.tensors[i].dtype in EIGHT_BIT and model.tensors[i].quant is not None
    if op.name in MOVES or op.name in _SELECTS or (op.name == "QUANTIZE" and not is_bytes(op.inputs[0])):
        return False
    return any(map(is_bytes, op.outputs))
