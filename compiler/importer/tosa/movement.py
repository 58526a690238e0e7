"""Operations that move elements, and those that look them up."""

from __future__ import annotations

import numpy as np

from tilewright.compiler.graph.ops.concat import QConcat
from tilewright.compiler.graph.tensor import EIGHT_BIT
from tilewright.compiler.importer.tosa.builder import FILE, PLANES, TO_FILE, TosaBuilder, handles
from tilewright.compiler.importer.tosa.records import TosaOp


@handles("reshape")
def reshape(b: TosaBuilder, op: TosaOp) -> None:
    sizes = b.ints(1, "new_shape") if len(op.operands) > 1 or "new_shape" in op.attrs else list(b.target().shape)
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = int(np.prod(b.shape(0))) // max(-int(np.prod(sizes)), 1)
    if int(np.prod(sizes)) != int(np.prod(b.shape(0))) or tuple(sizes) != b.target().shape:
        raise b.damaged(f"{b.type(0)} as {sizes}; the text has {b.target()}")
    b.finish(b.reshaped(b.value(0), b.target().shape))


@handles("transpose")
def transpose(b: TosaBuilder, op: TosaOp) -> None:
    perms = b.ints(1, "perms", len(b.shape(0)))
    if sorted(perms) != list(range(len(perms))):
        raise b.damaged(f"perms {perms}")
    b.finish(b.moved("Transpose", [b.value(0)], {"perm": perms}))


@handles("concat")
def concat(b: TosaBuilder, op: TosaOp) -> None:
    """Imports CONCAT: 8-bit tensors as one quantised op, which takes them with whatever zero point."""
    rank = len(b.shape(0))
    axis, count = b.axis(rank), len(op.operands)
    form = b.layout(*range(count)) if rank == 4 else FILE
    names = [b.value(k, form) for k in range(count)]
    at = TO_FILE.index(axis) if form == PLANES and rank == 4 else axis
    at = (0, 2, 3, 1)[axis] if form == PLANES else axis
    shape = list(b.graph.tensor(names[0]).shape)
    shape[at] = sum(b.graph.tensor(n).shape[at] for n in names)
    constant = any(b.graph.tensor(n).data is not None for n in names)
    if b.target().dtype in EIGHT_BIT and not constant and count > 1:
        b.zeros[op.results[0]] = b.wanted.get(op.results[0], b.zero(op.operands[0]))
        made = QConcat(axis=at, tables=(None,) * count)
        b.finish(b.quantized(made, names, shape, b.target().dtype, b.zeros[op.results[0]]), form)
        return
    b.finish(b.moved("Concat", names, {"axis": at}), form)


@handles("slice")
def cut(b: TosaBuilder, op: TosaOp) -> None:
    rank = len(b.shape(0))
    start, size = b.ints(1, "start", rank), b.ints(2, "size", rank)
    size = [whole - s if n == -1 else n for s, n, whole in zip(start, size, b.shape(0))]  # of sizes left open
    if any(s < 0 or n < 1 or s + n > whole for s, n, whole in zip(start, size, b.shape(0))):
        raise b.damaged(f"start {start}, size {size} of {b.type(0)}")
    ends = [s + n for s, n in zip(start, size)]
    given = [b.constant(v, np.int64) for v in (start, ends, list(range(rank)), [1] * rank)]
    b.finish(b.moved("Slice", [b.value(0), *given]))


@handles("pad")
def pad(b: TosaBuilder, op: TosaOp) -> None:
    rank = len(b.shape(0))
    amounts = b.ints(1, "padding", 2 * rank)
    if min(amounts, default=0) < 0:
        raise b.damaged(f"padding {amounts}; 0 and above are accepted")
    value = b.const(2, "pad_const").reshape(()) if len(op.operands) > 2 else np.zeros((), b.type(0).dtype)
    pads = [*amounts[0::2], *amounts[1::2]]
    b.finish(b.moved("Pad", [b.value(0), b.constant(pads, np.int64), b.constant(value, b.type(0).dtype)]))


@handles("tile")
def tile(b: TosaBuilder, op: TosaOp) -> None:
    times = b.ints(1, "multiples", len(b.shape(0)))
    b.finish(b.moved("Tile", [b.value(0), b.constant(times, np.int64)]))


@handles("reverse")
def reverse(b: TosaBuilder, op: TosaOp) -> None:
    axis = b.axis(len(b.shape(0)))
    given = [b.constant([v], np.int64) for v in (-1, -(1 << 31), axis, -1)]
    b.finish(b.moved("Slice", [b.value(0), *given]))


@handles("gather")
def gather(b: TosaBuilder, op: TosaOp) -> None:
    """Imports GATHER: rows of values [N,K,C] by indices [N,W]."""
    (n, _, c), (_, w) = b.shape(0), b.shape(1)
    index = b.wide(b.value(1))
    if n == 1:
        rows = b.moved("Gather", [b.value(0), b.reshaped(index, (w,))], {"axis": 1})
        b.finish(rows)
        return
    spread = b.onnx("Expand", [b.reshaped(index, (n, w, 1)), b.constant([n, w, c], np.int64)])
    b.finish(b.moved("GatherElements", [b.value(0), spread], {"axis": 1}))


@handles("scatter")
def scatter(b: TosaBuilder, op: TosaOp) -> None:
    """Imports SCATTER: rows of input [N,W,C] into values [N,K,C] at indices [N,W]."""
    n, w, c = b.shape(2)
    spread = b.onnx("Expand", [b.reshaped(b.wide(b.value(1)), (n, w, 1)), b.constant([n, w, c], np.int64)])
    b.finish(b.moved("ScatterElements", [b.value(0), spread, b.value(2)], {"axis": 1}))
