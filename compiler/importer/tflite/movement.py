"""Operators that move, select and join elements: the integers stay unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.compiler.graph.graph import Quant
from tilewright.compiler.graph.ops.concat import QConcat
from tilewright.compiler.importer.tflite.builder import FILE, PLANES, TfliteBuilder, half_away
from tilewright.compiler.importer.tflite.handlers import handles, moves
from tilewright.compiler.importer.tflite.schema import FileOp

_AXIS_IN_PLANES = (0, 2, 3, 1)  # of the file's axis


def same_type(b: TfliteBuilder, *ks: int, outputs: int = 1) -> None:
    """Raises UnsupportedError unless inputs `ks` and all outputs have one type and scale. Integers of 16 bits without
    a scale above 0 are plain ones, others activations.
    """
    first, targets = b.source(ks[0]), [b.target(k) for k in range(outputs)]
    tensors = [*(b.source(k) for k in ks), *targets]
    for t in targets if b.wide() and any(map(b.is_steps, tensors)) else ():
        b.wide_scale(t)
    for t in tensors:
        if t.dtype != first.dtype:
            raise b.refuse(f"{first.name!r} is {first.type_name}, {t.name!r} is {t.type_name}: types must be equal")
        if b.is_steps(t) and t.quant is not None and not t.quant.same_as(first.quant):
            raise b.refuse(f"{first.name!r} and {t.name!r} must have the same scale and zero point")


def axis_of(b: TfliteBuilder, axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise b.damaged(f"axis {axis} of rank {rank}")
    return axis % rank


def move(
    b: TfliteBuilder, op: str, inputs: Sequence[str], attrs: dict[str, Any], shape: Sequence[int], form: str
) -> None:
    b.onnx(op, inputs, attrs, b.result(shape, form))


def reshape(b: TfliteBuilder, shape: Sequence[int], k: int = 0) -> None:
    same_type(b, k)
    b.reshaped(b.value(k), shape, b.result(shape))


def new_shape(b: TfliteBuilder, op: FileOp) -> list[int]:
    """The shape that RESHAPE or EXPAND_DIMS gives."""
    if op.name == "EXPAND_DIMS":
        shape, (axis, *_) = list(b.shape(0)), b.ints(1, "axis")
        shape.insert(axis_of(b, axis, len(shape) + 1), 1)
        return shape
    if b.has(1):
        target = b.ints(1, "shape")
    elif op.options is not None:
        target = [int(op.options.NewShape(i)) for i in range(min(op.options.NewShapeLength(), 8))]
    else:
        target = list(b.target().shape)
    size = int(np.prod(b.shape(0), dtype=np.int64))
    if target.count(-1) == 1:
        rest = -int(np.prod(target, dtype=object))
        target = [size // rest if t == -1 and rest else t for t in target]
    if any(t < 0 for t in target) or int(np.prod(target, dtype=object)) != size:
        raise b.damaged(f"{list(b.shape(0))} cannot become {target}")
    return target


@moves("RESHAPE", "EXPAND_DIMS")
def reshape_op(b: TfliteBuilder, op: FileOp) -> None:
    reshape(b, new_shape(b, op))


def squeezed(b: TfliteBuilder, op: FileOp) -> list[int]:
    """The shape that SQUEEZE gives."""
    shape = b.shape(0)
    count = op.options.SqueezeDimsLength() if op.options is not None else 0
    dims = {axis_of(b, int(op.options.SqueezeDims(i)), len(shape)) for i in range(min(count, 8))}
    if any(shape[d] != 1 for d in dims):
        raise b.damaged(f"axes {sorted(dims)} of {list(shape)} are not 1")
    return [s for i, s in enumerate(shape) if not (i in dims if count else s == 1)]


@moves("SQUEEZE")
def squeeze(b: TfliteBuilder, op: FileOp) -> None:
    reshape(b, squeezed(b, op))


@moves("TRANSPOSE")
def transpose(b: TfliteBuilder, op: FileOp) -> None:
    shape, perm = b.shape(0), b.ints(1, "permutation")
    if sorted(perm) != list(range(len(shape))):
        raise b.damaged(f"permutation {perm} of {list(shape)}")
    same_type(b, 0)
    move(b, "Transpose", [b.value(0, FILE)], {"perm": perm}, [shape[p] for p in perm], FILE)


@moves("PAD", "PADV2")
def pad(b: TfliteBuilder, op: FileOp) -> None:
    shape, x = b.shape(0), b.source(0)
    table = b.const(1, "paddings")
    if table.shape != (len(shape), 2) or table.dtype.kind != "i" or np.any(table < 0) or np.any(table > 1 << 20):
        raise b.damaged(f"paddings {table.reshape(-1).tolist()[:16]} of {list(shape)}")
    same_type(b, 0)
    value: object = int(b.byte_quant(x).zero_point) if b.is_bytes(x) else 0
    if op.name == "PADV2":
        given = b.const(2, "value")
        if given.size != 1 or given.dtype != x.dtype:
            raise b.damaged("the padding value must be one of the input's type")
        value = given.reshape(-1)[0]
    form = b.layout(0)
    order = range(len(shape)) if form == FILE else (0, 3, 1, 2)
    pads = [int(table[i, side]) for side in (0, 1) for i in order]
    out = [shape[i] + int(table[i].sum()) for i in order]
    inputs = [b.value(0, form), b.constant("pads", pads, np.int64), b.constant("value", value, x.dtype)]
    move(b, "Pad", inputs, {"mode": "constant"}, out, form)


@handles("CONCATENATION", wide=True)
def concatenation(b: TfliteBuilder, op: FileOp) -> None:
    ks = range(len(op.inputs))
    _check_ignored_activation(b)
    shapes = [b.shape(k) for k in ks]
    rank = len(shapes[0]) if shapes else 0
    if rank == 0 or any(len(s) != rank for s in shapes):
        raise b.damaged(f"inputs {[list(s) for s in shapes]}")
    axis = axis_of(b, op.option("Axis", 0), rank)
    out = list(shapes[0])
    out[axis] = sum(s[axis] for s in shapes)
    if any([*s[:axis], *s[axis + 1 :]] != [*out[:axis], *out[axis + 1 :]] for s in shapes):
        raise b.damaged(f"inputs {[list(s) for s in shapes]} along axis {axis}")
    form = b.layout(*ks) if rank == 4 else FILE
    names = [b.value(k, form) for k in ks]
    if form == PLANES:
        axis, out = (0, 2, 3, 1)[axis], [out[i] for i in (0, 3, 1, 2)]
    if not b.is_bytes(b.target()):
        same_type(b, *ks)
        move(b, "Concat", names, {"axis": axis}, out, form)
        return
    y = b.target()
    tables: list[bytes | None] = []
    qy = b.byte_quant(y)
    for k in ks:
        q = b.byte_quant(b.source(k))
        if b.source(k).dtype != y.dtype:
            raise b.refuse("inputs and output must be of one type")
        if y.dtype == np.int8 and not q.same_as(qy):
            raise b.refuse("int8 inputs must have the scale and zero point of the output")
        assert y.dtype is not None
        tables.append(None if q.same_as(qy) else _scaled_bytes(q, qy).tobytes())
    b.quantized(QConcat(axis=axis, tables=tuple(tables)), names, b.result(out, form))


def _check_ignored_activation(b: TfliteBuilder) -> None:
    """Checks the fused activation of a CONCATENATION, which XNNPACK ignores and the built-in kernel refuses. Raises
    UnsupportedError where LiteRT runs the latter.
    """
    if b.op.option("FusedActivationFunction", 0) == 0:
        return
    y, parts = b.target(), [b.source(k) for k in range(len(b.op.inputs))]
    known = y.dtype == np.float32 or (b.is_bytes(y) and all(b.is_bytes(t) for t in parts))
    one_scale = not b.is_bytes(y) or all(b.byte_quant(t).same_as(b.byte_quant(y)) for t in parts)
    if not (known and one_scale and 2 <= len(parts) <= 5):
        raise b.refuse(
            "a fused activation is accepted, and ignored, as LiteRT does, for two to five inputs of float32 or of "
            "bytes with the scale of the result"
        )


def _scaled_bytes(source: Quant, target: Quant) -> np.ndarray:
    """The built-in kernel's table for uint8: a float32 factor and offset, ties away from zero, then the zero point."""
    every = np.arange(256, dtype=np.float32)
    factor = np.float32(source.scale) * (np.float32(1) / np.float32(target.scale))
    offset = np.float32(-int(source.zero_point)) * factor
    steps = half_away(every * factor + offset) + int(target.zero_point)
    table: np.ndarray = np.clip(steps, 0, 255).astype(np.uint8)
    return table


def _slice(b: TfliteBuilder, starts: list[int], ends: list[int], steps: list[int], final: Sequence[int] | None) -> None:
    """Emits a slice given per axis of the file, then the shape without the axes that were dropped."""
    shape = b.shape(0)
    same_type(b, 0)
    out = [len(range(s, e, st)) for s, e, st in zip(starts, ends, steps)]
    form = b.layout(0) if final is None else FILE
    order = list(range(len(shape))) if form == FILE else [0, 3, 1, 2]
    # ONNX: an end of -1 would mean the last element; before the first one is any number below -size.
    limits = [e if e >= 0 else -(shape[i] + 1) for i, e in enumerate(ends)]
    parts = [[v[i] for i in order] for v in (starts, limits)]
    inputs = [b.value(0, form), *(b.constant("slice", p, np.int64) for p in parts)]
    inputs += [b.constant("axes", list(range(len(shape))), np.int64)]
    inputs += [b.constant("steps", [steps[i] for i in order], np.int64)]
    if final is None:
        move(b, "Slice", inputs, {}, [out[i] for i in order], form)
        return
    part = b.moved("Slice", inputs)
    b.reshaped(part, final, b.result(final))


@moves("SLICE")
def slice_op(b: TfliteBuilder, op: FileOp) -> None:
    shape, begin, size = b.shape(0), b.ints(1, "begin"), b.ints(2, "size")
    if not len(shape) == len(begin) == len(size):
        raise b.damaged(f"begin {begin} and size {size} of {list(shape)}")
    ends = [n if s == -1 else o + s for n, o, s in zip(shape, begin, size)]
    if any(not 0 <= o <= e <= n for o, e, n in zip(begin, ends, shape)):
        raise b.damaged(f"begin {begin} and size {size} of {list(shape)}")
    _slice(b, begin, ends, [1] * len(shape), None)


@moves("STRIDED_SLICE")
def strided_slice(b: TfliteBuilder, op: FileOp) -> None:
    shape = b.shape(0)
    begin, end, strides = b.ints(1, "begin"), b.ints(2, "end"), b.ints(3, "strides")
    masks = {name: op.option(f"{name}Mask", 0) for name in ("Begin", "End", "Ellipsis", "NewAxis", "ShrinkAxis")}
    count = len(begin)

    def mask_bit(name: str, i: int) -> bool:
        return bool(masks[name] >> i & 1)

    ellipsis = [i for i in range(count) if mask_bit("Ellipsis", i)]
    added = [i for i in range(count) if mask_bit("NewAxis", i) and i not in ellipsis]
    rest = len(shape) - (count - len(ellipsis) - len(added))
    if not count == len(end) == len(strides) or 0 in strides or rest < 0 or len(ellipsis) > 1:
        raise b.damaged(f"begin {begin}, end {end}, strides {strides} of {list(shape)}")
    axis, starts, ends, steps, final = 0, [], [], [], []

    def whole(amount: int) -> None:
        nonlocal axis
        for n in shape[axis : axis + amount]:
            starts.append(0)
            ends.append(n)
            steps.append(1)
            final.append(n)
        axis += amount

    for i in range(count):
        if i in ellipsis:
            whole(rest)
            continue
        if i in added:
            final.append(1)
            continue
        n = shape[axis]
        if mask_bit("ShrinkAxis", i):
            start = begin[i] + n if begin[i] < 0 else begin[i]
            stop, step = start + 1, 1
            if not 0 <= start < n:
                raise b.damaged(f"index {begin[i]} of axis {axis} of {list(shape)}")
        else:
            limits = (None if mask_bit("Begin", i) else begin[i], None if mask_bit("End", i) else end[i])
            start, stop, step = slice(*limits, strides[i]).indices(n)
            final.append(len(range(start, stop, step)))
        starts.append(start)
        ends.append(stop)
        steps.append(step)
        axis += 1
    whole(len(shape) - axis)
    _slice(b, starts, ends, steps, final if added or masks["ShrinkAxis"] else None)


@moves("SPLIT", "SPLIT_V")
def split(b: TfliteBuilder, op: FileOp) -> None:
    data, axis_input = (1, 0) if op.name == "SPLIT" else (0, 2)
    shape = b.shape(data)
    axis = axis_of(b, b.ints(axis_input, "axis")[0], len(shape))
    parts = len(op.outputs)
    if op.name == "SPLIT":
        if parts == 0 or shape[axis] % parts:
            raise b.damaged(f"{parts} parts of {shape[axis]}")
        sizes = [shape[axis] // parts] * parts
    else:
        sizes = b.ints(1, "sizes")
        if sizes.count(-1) == 1:
            sizes = [shape[axis] - sum(sizes) - 1 if s == -1 else s for s in sizes]
        if len(sizes) != parts or sum(sizes) != shape[axis] or min(sizes) < 0:
            raise b.damaged(f"sizes {sizes} of {shape[axis]}")
    same_type(b, data, outputs=parts)
    form, at = b.layout(data), 0
    source = b.value(data, form)
    where = axis if form == FILE else _AXIS_IN_PLANES[axis]
    for k, size in enumerate(sizes):
        own = list(b.graph.tensor(source).shape)
        own[where] = size
        b.onnx("Slice", b.section(source, at, at + size, where), {}, b.result(own, form, k))
        at += size


@moves("PACK")
def pack(b: TfliteBuilder, op: FileOp) -> None:
    ks = range(len(op.inputs))
    same_type(b, *ks)
    shape = b.shape(0)
    axis = axis_of(b, op.option("Axis", 0), len(shape) + 1)
    one = [*shape[:axis], 1, *shape[axis:]]
    names = []
    for k in ks:
        if b.shape(k) != shape:
            raise b.damaged(f"shapes {list(shape)} and {list(b.shape(k))}")
        source = b.value(k, FILE)
        names.append(b.moved("Reshape", [source, b.constant("shape", one, np.int64)], {"allowzero": 1}))
    out = b.result([*shape[:axis], len(names), *shape[axis:]], FILE)
    if b.is_bytes(b.target()):
        b.quantized(QConcat(axis=axis, tables=(None,) * len(names)), names, out)
    else:
        b.onnx("Concat", names, {"axis": axis}, out)


@moves("UNPACK")
def unpack(b: TfliteBuilder, op: FileOp) -> None:
    shape = b.shape(0)
    axis = axis_of(b, op.option("Axis", 0), len(shape))
    same_type(b, 0, outputs=len(op.outputs))
    if shape[axis] != len(op.outputs):
        raise b.damaged(f"{len(op.outputs)} parts of {shape[axis]}")
    source, final = b.value(0, FILE), [*shape[:axis], *shape[axis + 1 :]]
    for k in range(len(op.outputs)):
        part = b.moved("Slice", b.section(source, k, k + 1, axis))
        b.reshaped(part, final, b.result(final, FILE, k))
