"""Lowers QKernel: the kernel of a user makes the layer."""

from __future__ import annotations

from tilewright.compiler.graph.graph import Node
from tilewright.compiler.graph.ops.kernel import QKernel, kernel_shape
from tilewright.compiler.graph.tensor import EIGHT_BIT, Tensor
from tilewright.compiler.npu.blocks.operands import Operands
from tilewright.compiler.npu.layers.layer import Layer
from tilewright.compiler.npu.ops.npu_op import NpuOp, TypedNode, npu_op
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import Layout


@npu_op(QKernel)
class KernelOp(NpuOp[QKernel]):
    """A node of a domain of the user's own, by a kernel of the user's."""

    condition = "a kernel given with `kernels` runs it"
    layout = Layout.CHANNELS_FIRST

    def layout_of(self, rank: int) -> Layout:
        return Layout.CHANNELS_FIRST if rank == 4 else Layout.CHANNELS_LAST

    def activation_error(self, t: Tensor) -> str | None:
        if t.dtype not in EIGHT_BIT:
            return f"{t.name} is {t.dtype}, not int8 or uint8"
        return None if kernel_shape(t.shape) else f"{t.name} is {list(t.shape)}, not [N, C, H, W] or [rows, channels]"

    def unsupported(self, node: TypedNode[QKernel], config: NpuConfig) -> str | None:
        return None

    def lower(self, node: TypedNode[QKernel], operands: Operands, tail: list[Node]) -> list[Layer]:
        ranks = [len(operands.graph.tensor(name).shape) for name in node.node.inputs]
        views = [operands.view(name, self.layout_of(rank)) for name, rank in zip(node.node.inputs, ranks, strict=True)]
        return [node.op.kernel.layer_of(node.op, views, operands.output(node.y.name))]
