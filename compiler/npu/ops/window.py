"""Windows of convolutions and pools as (rows, columns), and the machine's limits for them."""

from __future__ import annotations

from tilewright.compiler.graph.ops.quantized_op import Windowed
from tilewright.compiler.limits import MAX_KERNEL, MAX_NPU_PAD, MAX_NPU_STEP
from tilewright.compiler.npu.ops.npu_op import TypedNode


def rows_columns(values: tuple[int, ...], absent: int = 1) -> tuple[int, int]:
    """Returns values per spatial axis as (rows, columns). A single axis is columns, with `absent` for the rows."""
    return (values[0], values[1]) if len(values) == 2 else (absent, values[0])


def begin_pads(op: Windowed) -> tuple[int, int]:
    """Returns the padding in front of the input as (rows, columns)."""
    return rows_columns(op.pads[: len(op.kernel)], 0)


def window_unsupported(node: TypedNode[Windowed]) -> str | None:
    """Returns the reason why the machine cannot run a window, None if it can."""
    op, rank = node.op, len(node.op.kernel)
    if rank not in (1, 2):
        return f"{rank} spatial axes; the NPU has 1 or 2"
    if max(op.kernel) > MAX_KERNEL:
        return f"kernel {list(op.kernel)} is larger than {MAX_KERNEL}"
    if max(op.strides) > MAX_NPU_STEP or max(op.dilations) > MAX_NPU_STEP:
        return f"stride or dilation above {MAX_NPU_STEP}"
    if min(op.pads) < 0 or max(op.pads) > MAX_NPU_PAD:
        return f"pads {list(op.pads)} outside 0..{MAX_NPU_PAD}"
    return None
