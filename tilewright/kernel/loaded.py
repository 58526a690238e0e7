"""Weights that are activations: a matrix in DRAM, rows of which are the weights of an output each."""

from __future__ import annotations

from tilewright.compiler.npu.emit.context import Context
from tilewright.compiler.npu.layers.sliding_window import SlidingWindow
from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import Memory
from tilewright.kernel.constants import Weights
from tilewright.kernel.errors import KernelError
from tilewright.kernel.places import Tensor


class LoadedWeights(Weights):
    """A matrix [outputs, inputs] in DRAM as the weights of a product, such as the keys of an attention.

    In blocks of lanes, as many rows of a channel block as the array has outputs are a tile of WGT.

    Args:
        config: the machine.
        tensor: the matrix.

    Raises:
        KernelError: it is no matrix, or its rows do not fill blocks.
    """

    def __init__(self, config: NpuConfig, tensor: Tensor) -> None:
        unit = max(config.block_in, config.block_out)
        if not tensor.is_matrix or tensor.rows % unit:
            raise KernelError(f"{tensor!r} must be a matrix whose rows are a multiple of {unit} to be weights")
        self.config, self.tensor, self.shape = config, tensor, (tensor.rows, tensor.channels, 1, 1)
        self.window = SlidingWindow((1, 1))
        self.outputs, self.inputs = range(tensor.rows // config.block_in), range(tensor.blocks)

    def __repr__(self) -> str:
        return f"the weights of {self.tensor!r}"

    def _loaded(self, context: Context) -> int:
        tensor, config = self.tensor, self.config
        rows, piece = self.array_rows, len(self.inputs)
        first, end = rows.start * config.block_out, rows.stop * config.block_out
        if not tensor.written[0, self.inputs.start : self.inputs.stop, first:end].all():
            raise KernelError(f"{self!r} are read where nobody stored them")
        if context.on_chip(tensor.view):
            raise KernelError(f"{self!r} are in ACT, from which WGT cannot be loaded")
        key = ("loaded", tensor.view.buffer, tensor.version, self.outputs, self.inputs)
        at = context.weights.find(key)
        if at is None:
            at = context.weights.take(self.tiles, key)
            place = context.place(tensor.memory, 0, self.inputs.start, first, 0)
            context.emitter.load(
                place, Memory.WGT, at, 1, y=(piece, 1, tensor.memory.sc), z=(len(rows), piece, config.tile_bytes)
            )
        return at
