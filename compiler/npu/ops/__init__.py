"""The quantised ops that the NPU runs: a file per family, each of which registers its classes with `npu_op`."""

from __future__ import annotations

from tilewright.compiler.discover import import_modules
from tilewright.compiler.npu.ops.npu_op import (
    NPU_OPS,
    NpuOp,
    is_elementwise,
    is_light,
    lower,
    npu_op,
    npu_op_of,
    unsupported_reason,
)

import_modules(__path__, __name__)

__all__ = ["NPU_OPS", "NpuOp", "is_elementwise", "is_light", "lower", "npu_op", "npu_op_of", "unsupported_reason"]
