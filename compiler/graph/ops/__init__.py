"""The quantised ops: one class per op with its attributes, their checks, and its computation. One file per family.

Every other part of the compiler uses these classes: importers and passes make instances, the CPU kernels
(`tilewright.compiler.cpu.ops`) and the layers of the NPU (`tilewright.compiler.npu.ops`) are registered by class.
"""

from __future__ import annotations

from tilewright.compiler.discover import import_modules
from tilewright.compiler.graph.ops.quantized_op import QUANTIZED_OPS, QuantizedOp

import_modules(__path__, __name__)

__all__ = ["QUANTIZED_OPS", "QuantizedOp"]
