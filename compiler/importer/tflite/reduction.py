"""Operators along axes: sums, extrema, arg-extrema, TOPK_V2, CUMSUM."""

from __future__ import annotations

import numpy as np

from tilewright.compiler.graph.graph import Node, Tensor
from tilewright.compiler.importer.tflite.builder import FILE, TfliteBuilder
from tilewright.compiler.importer.tflite.fixed_point import Integers
from tilewright.compiler.importer.tflite.handlers import PLAIN, WIDE, handles
from tilewright.compiler.importer.tflite.movement import axis_of
from tilewright.compiler.importer.tflite.schema import FileOp
from tilewright.compiler.importer.tflite.wide import one_scale

_REDUCTIONS = {
    "SUM": "ReduceSum", "MEAN": "ReduceMean", "REDUCE_PROD": "ReduceProd", "REDUCE_MAX": "ReduceMax",
    "REDUCE_MIN": "ReduceMin", "REDUCE_ANY": "ReduceMax", "REDUCE_ALL": "ReduceMin",
}  # fmt: skip


def axes_of(b: TfliteBuilder, k: int) -> list[int]:
    """The distinct axes that constant input `k` names, of input 0; in order."""
    rank = len(b.shape(0))
    return sorted({axis_of(b, a, rank) for a in b.ints(k, "axes")})


@handles(*_REDUCTIONS, table=PLAIN)
def reduce(b: TfliteBuilder, op: FileOp) -> None:
    """Imports reductions. Extrema of quantised tensors with one scale are taken of their integers."""
    axes, keep = axes_of(b, 1), int(bool(op.option("KeepDims", False)))
    qx = b.source(0).quant
    same = op.name in ("REDUCE_MAX", "REDUCE_MIN") and qx is not None and qx.same_as(b.target().quant)
    x = b.value(0, FILE) if same else b.real(0)
    if not axes:
        b.quantize_into(x)
        return
    made = b.onnx(_REDUCTIONS[op.name], [x, b.constant("axes", axes, np.int64)], {"keepdims": keep})
    b.quantize_into(made)


@handles("REDUCE_MAX", "REDUCE_MIN", table=WIDE)
def wide_extremum(b: TfliteBuilder, op: FileOp) -> None:
    one_scale(b, 0)
    ints, axes, keep = Integers(b), axes_of(b, 1), int(bool(op.option("KeepDims", False)))
    x = ints.of(b.value(0, FILE))
    ints.finish(
        b.onnx(_REDUCTIONS[op.name], [x, b.constant("axes", axes, np.int64)], {"keepdims": keep}) if axes else x
    )


@handles("ARG_MAX", "ARG_MIN", table=PLAIN)
def arg_extremum(b: TfliteBuilder, op: FileOp) -> None:
    """Emits the position of the first extremum; quantised tensors are compared by their integers."""
    kind, t = ("ArgMax" if op.name == "ARG_MAX" else "ArgMin"), b.target()
    axis = axis_of(b, b.ints(1, "axis")[0], len(b.shape(0)))
    found = b.onnx(kind, [b.value(0, FILE)], {"axis": axis, "keepdims": 0})
    b.quantize_into(found if t.dtype == np.int64 else b.cast(found, t.dtype))


@handles("CUMSUM", table=PLAIN)
def cumsum(b: TfliteBuilder, op: FileOp) -> None:
    x = b.real(0)
    axis = b.constant("axis", axis_of(b, b.ints(1, "axis")[0], len(b.shape(0))), np.int64)
    attrs = {"exclusive": int(op.option("Exclusive", False)), "reverse": int(op.option("Reverse", False))}
    b.quantize_into(b.onnx("CumSum", [x, axis], attrs))


def largest(b: TfliteBuilder, name: str, k: int, axis: int, stem: str) -> tuple[str, str]:
    """Emits the k largest values along an axis, largest first, and their places as int64."""
    x = b.graph.tensor(name)
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    values, places = b.graph.unique(f"{stem}.values"), b.graph.unique(f"{stem}.places")
    b.graph.add(Tensor(values, shape, x.dtype, None, x.quant))
    b.graph.add(Tensor(places, shape, np.dtype(np.int64)))
    attrs, inputs = {"axis": axis, "largest": 1, "sorted": 1}, [name, b.constant("k", [k], np.int64)]
    b.graph.nodes.append(Node("TopK", inputs, [values, places], attrs, values, (b.op.label,)))
    return values, places


@handles("TOPK_V2", table=PLAIN)
def top_k(b: TfliteBuilder, op: FileOp) -> None:
    """Imports TOPK_V2: largest first along the last axis; values, then indices."""
    shape, (k, *_) = b.shape(0), b.ints(1, "k")
    if not shape or not 0 < k <= shape[-1] or len(op.outputs) != 2:
        raise b.damaged(f"k={k} of {list(shape)}")
    values, places = largest(b, b.value(0), k, len(shape) - 1, b.target().name)
    out = (*shape[:-1], k)
    b.onnx("Identity", [values], output=b.result(out, k=0))
    b.cast(places, np.int32, b.result(out, k=1))
