"""Shapes as constants, and operators that repeat, reorder or look up elements without changing them."""

from __future__ import annotations

import numpy as np

from tilewright.compiler.importer.tflite.builder import FILE, PLANES, TfliteBuilder
from tilewright.compiler.importer.tflite.handlers import PLAIN, handles, moves
from tilewright.compiler.importer.tflite.movement import axis_of, move, same_type
from tilewright.compiler.importer.tflite.schema import FileOp
from tilewright.compiler.importer.tflite.windows import image


def _constant_result(b: TfliteBuilder, value: np.ndarray) -> None:
    """Makes a known value the op's output."""
    b.graph.tensor(b.result(value.shape)).data = value.astype(b.target().dtype)


@handles("SHAPE", "RANK", table=PLAIN)
def shape_of(b: TfliteBuilder, op: FileOp) -> None:
    shape = b.shape(0)
    _constant_result(b, np.array(shape if op.name == "SHAPE" else len(shape)))


@handles("RANGE", table=PLAIN)
def range_op(b: TfliteBuilder, op: FileOp) -> None:
    start, limit, step = (b.const(k, what).reshape(-1)[0] for k, what in enumerate(("start", "limit", "step")))
    if step == 0 or abs((float(limit) - float(start)) / float(step)) > 1 << 20:
        raise b.damaged(f"from {start} to {limit} by {step}")
    _constant_result(b, np.arange(start, limit, step))


@handles("FILL", "BROADCAST_TO", table=PLAIN, wide=True)
def fill(b: TfliteBuilder, op: FileOp) -> None:
    value, dims = (1, 0) if op.name == "FILL" else (0, 1)
    shape = b.ints(dims, "shape")
    if any(s < 0 for s in shape) or len(shape) > 8:
        raise b.damaged(f"shape {shape}")
    move(b, "Expand", [b.value(value), b.constant("shape", shape, np.int64)], {}, shape, FILE)


@moves("TILE")
def tile(b: TfliteBuilder, op: FileOp) -> None:
    shape, times = b.shape(0), b.ints(1, "multiples")
    if len(times) != len(shape) or any(t < 0 for t in times):
        raise b.damaged(f"multiples {times} of {list(shape)}")
    same_type(b, 0)
    out = [n * t for n, t in zip(shape, times)]
    move(b, "Tile", [b.value(0), b.constant("repeats", times, np.int64)], {}, out, FILE)


@moves("REVERSE_V2")
def reverse(b: TfliteBuilder, op: FileOp) -> None:
    shape = b.shape(0)
    axes = [axis_of(b, a, len(shape)) for a in b.ints(1, "axes")]
    same_type(b, 0)
    values = ([-1] * len(axes), [-(shape[a] + 1) for a in axes], axes, [-1] * len(axes))
    move(b, "Slice", [b.value(0), *(b.constant("slice", v, np.int64) for v in values)], {}, shape, FILE)


@moves("MIRROR_PAD")
def mirror_pad(b: TfliteBuilder, op: FileOp) -> None:
    """Imports MIRROR_PAD as one Gather per padded axis."""
    shape, table = b.shape(0), b.const(1, "paddings")
    edge = int(op.option("Mode", 0) == 1)  # SYMMETRIC repeats the edge itself
    if table.shape != (len(shape), 2) or np.any(table < 0) or any(max(p) > n - 1 + edge for p, n in zip(table, shape)):
        raise b.damaged(f"paddings {table.reshape(-1).tolist()[:16]} of {list(shape)}")
    same_type(b, 0)
    padded = [axis for axis in range(len(shape)) if table[axis].any()]
    name, out = b.value(0), list(shape)
    for axis in padded:
        out[axis] += int(table[axis].sum())
        indices = np.pad(np.arange(shape[axis]), table[axis], "symmetric" if edge else "reflect")
        inputs = [name, b.constant("indices", indices, np.int64)]
        if axis == padded[-1]:
            move(b, "Gather", inputs, {"axis": axis}, out, FILE)
            return
        name = b.onnx("Gather", inputs, {"axis": axis})
    move(b, "Identity", [name], {}, out, FILE)


@handles("SPACE_TO_DEPTH", "DEPTH_TO_SPACE", table=PLAIN)
def space_to_depth(b: TfliteBuilder, op: FileOp) -> None:
    n, h, w, c = image(b, 0)
    size = op.option("BlockSize", 0)
    down = op.name == "SPACE_TO_DEPTH"
    if size < 1 or (h % size or w % size if down else c % size**2):
        raise b.damaged(f"blocks of {size} in {[n, h, w, c]}")
    same_type(b, 0)
    out = (n, c * size**2, h // size, w // size) if down else (n, c // size**2, h * size, w * size)
    attrs = {"blocksize": size} if down else {"blocksize": size, "mode": "DCR"}
    move(b, "SpaceToDepth" if down else "DepthToSpace", [b.value(0, PLANES)], attrs, out, PLANES)


@moves("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND")
def space_to_batch(b: TfliteBuilder, op: FileOp) -> None:
    """Imports [N, space, rest] to [N*blocks, space/blocks, rest] with padding before, or back with cropping behind."""
    shape, x = list(b.shape(0)), b.source(0)
    blocks, edges = b.ints(1, "block shape"), b.const(2, "paddings")
    count = len(blocks)
    if not 0 < count < len(shape) or min(blocks) < 1 or edges.shape != (count, 2) or np.any(edges < 0):
        raise b.damaged(f"blocks {blocks} of {shape}")
    same_type(b, 0)
    spatial, rest = range(1, count + 1), shape[count + 1 :]
    name = b.value(0)
    if op.name == "SPACE_TO_BATCH_ND":
        zero = int(b.byte_quant(x).zero_point) if b.is_bytes(x) else 0
        pads = [[0, *edges[:, side], *[0] * len(rest)] for side in (0, 1)]
        inputs = [b.constant("pads", np.concatenate(pads), np.int64), b.constant("value", zero, x.dtype)]
        name = b.onnx("Pad", [name, *inputs], {"mode": "constant"})
        sizes = [n + int(e.sum()) for n, e in zip(shape[1 : count + 1], edges)]
        if any(n % k for n, k in zip(sizes, blocks)):
            raise b.damaged(f"blocks {blocks} of {sizes}")
        split = [shape[0], *(v for n, k in zip(sizes, blocks) for v in (n // k, k)), *rest]
        perm = [*(2 * i for i in spatial), 0, *(2 * i - 1 for i in spatial), *range(2 * count + 1, len(split))]
        out = [shape[0] * int(np.prod(blocks)), *(n // k for n, k in zip(sizes, blocks)), *rest]
    else:
        if shape[0] % int(np.prod(blocks)):
            raise b.damaged(f"blocks {blocks} of {shape}")
        split = [*blocks, shape[0] // int(np.prod(blocks)), *shape[1:]]
        pairs = [v for i in range(count) for v in (count + 1 + i, i)]
        perm = [count, *pairs, *range(2 * count + 1, len(split))]
        out = [split[count], *(n * k for n, k in zip(shape[1:], blocks)), *rest]
    name = b.reshaped(name, split)
    name = b.onnx("Transpose", [name], {"perm": perm})
    if op.name == "SPACE_TO_BATCH_ND":
        b.reshaped(name, out, b.result(out))
        return
    name = b.reshaped(name, out)
    ends = [out[i] - int(edges[i - 1, 1]) for i in spatial]
    final = [out[0], *(end - int(start) for end, start in zip(ends, edges[:, 0])), *rest]
    if min(final) < 1:
        raise b.damaged(f"crops {edges.reshape(-1).tolist()} of {out}")
    limits = [b.constant("slice", v, np.int64) for v in (edges[:, 0], ends, list(spatial), [1] * count)]
    move(b, "Slice", [name, *limits], {}, final, FILE)


def _indices(b: TfliteBuilder, k: int) -> str:
    if b.graph.tensor(b.value(k)).dtype.kind != "i":
        raise b.damaged(f"indices {b.source(k).name!r} are {b.source(k).type_name}")
    return b.cast(b.value(k), np.int64)


@moves("GATHER")
def gather(b: TfliteBuilder, op: FileOp) -> None:
    shape, indices = b.shape(0), b.shape(1)
    axis, batch = axis_of(b, op.option("Axis", 0), len(shape)), op.option("BatchDims", 0)
    same_type(b, 0)
    known = b.graph.const(b.value(1))
    if known is not None and np.any((known < 0) | (known >= shape[axis])):
        raise b.damaged(f"indices outside axis {axis} of {list(shape)}")
    if batch == 0:
        out = [*shape[:axis], *indices, *shape[axis + 1 :]]
        move(b, "Gather", [b.value(0), _indices(b, 1)], {"axis": axis}, out, FILE)
        return
    if batch % max(len(indices), 1) != axis or shape[:axis] != indices[:axis]:
        raise b.refuse(f"batch_dims={batch} with axis={axis} is not supported; equal ones are")
    last = b.onnx("Unsqueeze", [_indices(b, 1), b.constant("axes", [len(indices)], np.int64)])
    move(b, "GatherND", [b.value(0), last], {"batch_dims": axis}, [*indices, *shape[axis + 1 :]], FILE)


@handles("EMBEDDING_LOOKUP", table=PLAIN)
def embedding_lookup(b: TfliteBuilder, op: FileOp) -> None:
    b.quantize_into(b.onnx("Gather", [b.real(1), _indices(b, 0)], {"axis": 0}))


@moves("GATHER_ND")
def gather_nd(b: TfliteBuilder, op: FileOp) -> None:
    shape, indices = b.shape(0), b.shape(1)
    if not indices or not 0 < indices[-1] <= len(shape):
        raise b.damaged(f"indices {list(indices)} of {list(shape)}")
    same_type(b, 0)
    out = [*indices[:-1], *shape[indices[-1] :]]
    move(b, "GatherND", [b.value(0), _indices(b, 1)], {"batch_dims": 0}, out, FILE)


@moves("DYNAMIC_UPDATE_SLICE")
def update_slice(b: TfliteBuilder, op: FileOp) -> None:
    """Imports DYNAMIC_UPDATE_SLICE: input 1 replaces a part of input 0 that begins at input 2; a part that would reach
    beyond the end begins earlier."""
    shape, update = b.shape(0), b.shape(1)
    if len(update) != len(shape) or b.shape(2) != (len(shape),) or any(u > n for u, n in zip(update, shape)):
        raise b.damaged(f"{list(update)} from {list(b.shape(2))} values on in {list(shape)}")
    same_type(b, 0, 1)
    steps = np.cumprod([1, *shape[:0:-1]], dtype=np.int64)[::-1]
    room = np.array([n - u for n, u in zip(shape, update)], np.int64)
    start = b.onnx("Max", [_indices(b, 2), b.constant("first", np.zeros_like(room))])
    start = b.onnx("Mul", [b.onnx("Min", [start, b.constant("last", room)]), b.constant("steps", steps)])
    places = np.ravel(sum(np.indices(update)[i] * step for i, step in enumerate(steps))).astype(np.int64)
    first = b.onnx("ReduceSum", [start, b.constant("axes", [0], np.int64)], {"keepdims": 1})
    where = b.onnx("Add", [b.constant("places", places), first])
    flat = [b.reshaped(b.value(k), [-1]) for k in (0, 1)]
    made = b.onnx("ScatterElements", [flat[0], where, flat[1]], {"axis": 0})
    b.reshaped(made, shape, b.result(shape))


@handles("SCATTER_ND", table=PLAIN)
def scatter_nd(b: TfliteBuilder, op: FileOp) -> None:
    """Imports SCATTER_ND: values at the same place are added. Inputs: indices, values, shape."""
    if b.quantised():
        raise b.refuse("8-bit tensors are not supported; floats and integers are")
    zeros = b.constant("zeros", np.zeros(b.ints(2, "shape"), b.source(1).dtype))
    b.quantize_into(b.onnx("ScatterND", [zeros, _indices(b, 0), b.value(1)], {"reduction": "add"}))


@handles("ONE_HOT", table=PLAIN)
def one_hot(b: TfliteBuilder, op: FileOp) -> None:
    """Imports ONE_HOT. Inputs: indices, depth, on and off value."""
    pair = [b.reshaped(b.value(k), [1]) for k in (3, 2)]
    values = b.onnx("Concat", pair, {"axis": 0})
    depth = b.constant("depth", b.ints(1, "depth"), np.int64)
    b.quantize_into(b.onnx("OneHot", [_indices(b, 0), depth, values], {"axis": op.option("Axis", -1)}))
