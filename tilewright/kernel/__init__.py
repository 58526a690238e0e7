"""Kernels by hand: functions over tensors in DRAM and tiles on the chip, for the exact machine.

>>> from tilewright import kernel as tk
>>> @tk.kernel
... def relu(k, x, *, rows=8):
...     y = k.tensor(x.shape)
...     table = k.table([max(0, v) for v in range(-128, 128)])
...     for part in tk.chunks(x.rows, rows):
...         k.apply(k.load(x.at(rows=part)), table, into=y.at(rows=part))
...     return y

The guide is `docs/guide/kernels.md`; `Chip` has the operations.
"""

from tilewright.compiler.graph.ops.kernel import NodeFacts, NodeValue
from tilewright.kernel.built import Built
from tilewright.kernel.chip import Chip
from tilewright.kernel.constants import Addend, Params, Table, Weights, WindowWeights
from tilewright.kernel.errors import KernelError
from tilewright.kernel.kernels import Choices, Kernel, ahead, chunks, kernel
from tilewright.kernel.network import LayerFacts
from tilewright.kernel.norms import Norm
from tilewright.kernel.places import Part, Tensor, Tile
from tilewright.kernel.rows import Exponentials
from tilewright.kernel.sums import Sums
from tilewright.kernel.wide import WideParams, bytes_of, int16_of

__all__ = [
    "Addend",
    "Built",
    "Chip",
    "Choices",
    "Exponentials",
    "Kernel",
    "KernelError",
    "LayerFacts",
    "NodeFacts",
    "NodeValue",
    "Norm",
    "Params",
    "Part",
    "Sums",
    "Table",
    "Tensor",
    "Tile",
    "Weights",
    "WideParams",
    "WindowWeights",
    "ahead",
    "bytes_of",
    "chunks",
    "int16_of",
    "kernel",
]
