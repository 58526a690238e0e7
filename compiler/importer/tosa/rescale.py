"""RESCALE, CLAMP and TABLE: on the NPU where its requantiser, its adder, its multiplier or a table does the same."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.compiler.graph.ops.elementwise import AddConstants, QAdd, QLut, QMul
from tilewright.compiler.graph.tensor import EIGHT_BIT
from tilewright.compiler.importer.tosa.builder import FILE, PLANES, Function, TosaBuilder, handles
from tilewright.compiler.importer.tosa.passes import LIMIT, npu_passes
from tilewright.compiler.importer.tosa.records import TosaOp, TypeOf
from tilewright.compiler.importer.tosa.scaling import Scaling

_EVEN = 8  # the shift of an addition of two passes


def every(dtype: Any) -> np.ndarray:
    """All values of a byte type in the order of their raw bytes, int64 [256]."""
    return np.asarray(np.arange(256, dtype=np.uint8).view(np.dtype(dtype)).astype(np.int64))


def function_of(b: TosaBuilder, k: int) -> Function | None:
    """The k-th operand as a function of 8-bit tensors; an 8-bit tensor is one of itself."""
    number = b.operand(k)
    if number in b.functions:
        return b.functions[number]
    if b.type(k).dtype in EIGHT_BIT and b.known(number) is None:
        return Function((number,), every(b.type(k).dtype))
    return None


def _limits(of: TypeOf, unsigned: bool) -> tuple[int, int]:
    """The range of a result's type."""
    bits = {"i8": 8, "ui8": 8, "i16": 16, "ui16": 16, "i32": 32, "i48": 48, "i4": 4, "i64": 48}[of.element]
    return (0, (1 << bits) - 1) if unsigned or of.element[0] == "u" else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


@handles("rescale")
def rescale(b: TosaBuilder, op: TosaOp) -> None:
    """Imports RESCALE: x, multiplier, shift, input_zp, output_zp."""
    if b.type(0).dtype.kind not in "iu" or b.target().dtype.kind not in "iu":
        raise b.damaged(f"of {b.type(0)} to {b.target()}; integers are accepted")
    multiplier, shift = (b.const(k, what).astype(np.int64).reshape(-1) for k, what in ((1, "multiplier"), (2, "shift")))
    channels = b.shape(0)[-1] if b.shape(0) else 1
    per_channel = bool(op.attrs.get("per_channel", False))
    if {multiplier.size, shift.size} != {channels if per_channel else 1}:
        raise b.damaged(f"{multiplier.size} multipliers, {shift.size} shifts for {channels if per_channel else 1}")
    if shift.min() < 2 or shift.max() > 62 or multiplier.min() < 0:
        raise b.damaged(
            f"multiplier {multiplier.min()}, shift {shift.min()} to {shift.max()}; 0 and above, 2 to 62 are"
        )
    low, high = _limits(b.target(), bool(op.attrs.get("output_unsigned", False)))
    unsigned = bool(op.attrs.get("input_unsigned", False))
    zero, out_zero = (_zero(b, k, flag) for k, flag in ((3, unsigned), (4, low == 0)))
    double = str(op.attrs.get("rounding_mode", "")) == "DOUBLE_ROUND" or bool(op.attrs.get("double_round", False))
    scaling = Scaling(multiplier, shift, zero, out_zero, low, high, double)
    if b.target().dtype == np.int8 and low == 0:
        raise b.refuse("output_unsigned of an i8 tensor; make the tensor ui8")
    if unsigned and b.type(0).dtype.kind == "i":
        raise b.refuse(f"input_unsigned of {b.type(0)}; make the tensor unsigned")
    _scaled(b, scaling)


def _zero(b: TosaBuilder, k: int, unsigned: bool) -> int:
    value = b.scalar(k, "zero point")
    bits = 8 * b.type(k).dtype.itemsize if k < len(b.op.operands) else 8
    return value + (1 << bits) if unsigned and value < 0 else value


def _scaled(b: TosaBuilder, scaling: Scaling) -> None:
    """Makes the op's result by a scaling of operand 0, on the NPU where that is exact."""
    number = b.op.results[0]
    sums = b.sums.get(b.operand(0))
    done = False
    if b.target().dtype in EIGHT_BIT:
        b.zeros[number] = scaling.out_zero
        if sums is not None:
            b.scaled[number] = sums, scaling
            done = _product(b, sums, scaling)
        if not done and scaling.multiplier.size == 1:
            done = _of_bytes(b, scaling)
    elif scaling.multiplier.size == 1 and (f := function_of(b, 0)) is not None:
        b.functions[number] = Function(f.roots, scaling.of(f.values))
    if not done:
        form = b.layout(0)
        _on_cpu(b, scaling, form)


def _on_cpu(b: TosaBuilder, scaling: Scaling, form: str) -> None:
    """Emits the arithmetic of the specification on int64."""
    x = b.wide(b.value(0, form))
    rank = len(b.shape(0))
    if scaling.zero:
        x = b.pair("Sub", x, scaling.zero)
    along = (-1, 1, 1) if form == PLANES else (-1,)
    m, s = (v.reshape(along if v.size > 1 else [1] * min(rank, 1)) for v in (scaling.multiplier, scaling.shift))
    rounding = np.int64(1) << (s - 1)
    y = b.pair("Add", b.pair("Mul", x, m), rounding)
    if scaling.double and np.any(s > 31):
        below = b.cast(b.onnx("Less", [x, b.constant(0, np.int64)]), np.int64)
        twice = b.pair("Sub", b.constant(1 << 30, np.int64), b.pair("Mul", below, 1 << 31))
        y = b.pair("Add", y, b.pair("Mul", twice, (s > 31).astype(np.int64)))
    y = b.shifted_right(y, s)
    if scaling.out_zero:
        y = b.pair("Add", y, scaling.out_zero)
    b.finish(b.cast(b.clipped(y, scaling.low, scaling.high), b.target().dtype), form)


def _product(b: TosaBuilder, sums: Any, scaling: Scaling) -> bool:
    """Makes the product and its RESCALE quantised ops, if that is exact: as many as there are passes, added."""
    two = isinstance(sums.weights, str)  # activations: they have no bias, and one factor
    limit = LIMIT if b.target().dtype == np.int8 and not two else 1
    least, most = sums.reach
    found = npu_passes(scaling, least, most, limit, not two)
    if not isinstance(found, str) and two and scaling.multiplier.size > 1:
        found = "multipliers per channel of a product of two activations"
    if isinstance(found, str):
        b.reasons[b.op.label] = f"on the CPU: {found}"
        return False
    if len(found) > 1:
        b.reasons[b.op.label] = f"{len(found)} products on the NPU: no one float32 factor rounds like its multipliers"
    whole, dtype = "", b.target().dtype
    for part in found:
        op = sums.op.clamped(part.low, part.high)
        made = b.quantized(op, sums.inputs(b, part), sums.shape, dtype, part.zero)
        both = QAdd(constants=AddConstants(1 << _EVEN, 1 << _EVEN, -part.low << _EVEN, _EVEN))
        whole = b.quantized(both, [whole, made], sums.shape, dtype, scaling.out_zero) if whole else made
    b.finish(b.relabelled(whole, np.float32(1), scaling.out_zero), sums.form)
    return True


def _of_bytes(b: TosaBuilder, scaling: Scaling) -> bool:
    """Makes the result of 8-bit tensors by a table, an addition or a product, proven on all their bytes."""
    f = function_of(b, 0)
    return f is not None and place(b, Function(f.roots, scaling.of(f.values)))


def place(b: TosaBuilder, f: Function) -> bool:
    """Makes the op's 8-bit result by the NPU's op that has all these values. Returns False if there is none."""
    types = [b.types[r] for r in f.roots]
    dtype = b.target().dtype
    if any(t.shape != b.target().shape for t in types):
        return False
    forms = [b.forms.get(r, {}) for r in f.roots]
    form = PLANES if len(b.target().shape) == 4 and any(PLANES in g and FILE not in g for g in forms) else FILE
    names = [b.form_of(r, form) for r in f.roots]
    zero = b.zero(b.op.results[0])
    shape = b.graph.tensor(names[0]).shape
    if len(f.roots) == 1:
        if any(b.graph.tensor(n).data is not None for n in names):
            return False
        b.finish(b.quantized(QLut(table=f.values.astype(dtype).tobytes()), names, shape, dtype, zero), form)
        return True
    if any(t.dtype != dtype for t in types) or dtype != np.int8:
        return False
    bytes_ = np.stack([np.broadcast_to(v, (256, 256)) for v in (every(dtype)[:, None], every(dtype)[None, :])])
    op = _sum(f.values, bytes_) or _times(b, f.values, bytes_, names, zero)
    if op is None:
        b.reasons[b.op.label] = "on the CPU: the NPU's adder and multiplier differ on some of the 65,536 pairs of bytes"
        return False
    quantised, operands = op
    b.finish(b.quantized(quantised, operands or names, shape, dtype, zero), form)
    return True


def _sum(values: np.ndarray, bytes_: np.ndarray) -> tuple[QAdd, list[str]] | None:
    """The adder `(a*ma + b*mb + c) >> shift` with these values for all pairs of bytes, None if none is found."""
    a, c = bytes_
    inside = (values > values.min()) & (values < values.max())
    low, high = int(values.min()), int(values.max())
    if inside.sum() < 3:
        return None
    rows = np.stack([a[inside], c[inside], np.ones(int(inside.sum()))]).T.astype(np.float64)
    (fa, fb, fc), *_ = np.linalg.lstsq(rows, values[inside].astype(np.float64), rcond=None)
    for shift in range(23, 3, -1):
        ma, mb = round(fa * 2**shift), round(fb * 2**shift)
        if max(abs(ma), abs(mb)) * 128 * 2 + abs(fc + 1) * 2**shift >= 1 << 31:
            continue
        total = a * ma + c * mb
        # constants with which the least sum of each value reaches it, and the largest stays below the next one
        shifted = np.where(inside, (values << shift) - total, 0)
        first, last = shifted[inside].max(), (shifted[inside] + (1 << shift) - 1).min()
        for k in dict.fromkeys((int(first), int((first + last) // 2), int(last))):
            if abs(k) < 1 << 30 and np.array_equal(np.clip((total + k) >> shift, low, high), values):
                return QAdd(constants=AddConstants(ma, mb, k, shift)).clamped(low, high), []
    return None


def _times(
    b: TosaBuilder, values: np.ndarray, bytes_: np.ndarray, names: list[str], zero: int
) -> tuple[QMul, list[str]] | None:
    """The multiplier with these values for all pairs of bytes, None if none is found."""
    quants = [b.graph.tensor(n).quant for n in names]
    if any(q is None for q in quants):
        return None
    za, zb = (int(q.zero_point) for q in quants if q is not None)
    low, high = int(values.min()), int(values.max())
    a, c = bytes_
    product = (a - za) * (c - zb)
    inside = (values > low) & (values < high) & (product != 0)
    if not inside.any():
        return None
    weight = product[inside].astype(np.float64)
    factor = np.float32((weight * (values[inside] - zero)).sum() / (weight * weight).sum())
    near = int(factor.view(np.uint32))
    # the sum is rounded, so the fit is off by more than a bit: the exact factor lies where the thresholds leave room
    above = ((values - zero - 0.5)[inside & (product > 0)] / product[inside & (product > 0)]).max(initial=0)
    below = ((values - zero + 0.5)[inside & (product > 0)] / product[inside & (product > 0)]).min(initial=np.inf)
    tries = [np.float32((above + below) / 2)] if np.isfinite(below) else []
    tries += [np.uint32(near + k).view(np.float32) for k in (0, 1, -1)]
    for scale in tries:
        got = np.rint(product.astype(np.int32).astype(np.float32) * scale) + zero
        if scale > 0 and np.array_equal(np.clip(got, low, high).astype(np.int64), values):
            again = b.relabelled(names[0], scale, za)
            return QMul(zero_point_after=True).clamped(low, high), [again, names[1]]
    return None


@handles("clamp")
def clamp(b: TosaBuilder, op: TosaOp) -> None:
    """Imports CLAMP: of a RESCALE's bytes as its limits, else on its own."""
    low, high = (op.attrs.get(name) for name in ("min_val", "max_val"))
    dtype = b.target().dtype
    if low is None or high is None or low > high:
        raise b.damaged(f"min_val {low}, max_val {high}")
    number = op.results[0]
    before = b.scaled.get(b.operand(0))
    if before is not None and dtype == np.int8:
        sums, scaling = before
        closer = scaling.clamped(int(low), int(high))
        b.zeros[number] = scaling.out_zero
        b.scaled[number] = sums, closer
        if _product(b, sums, closer):
            return
        b.scaled.pop(number)
    elif dtype.kind in "iu" and (f := function_of(b, 0)) is not None:
        new = Function(f.roots, np.clip(f.values, int(low), int(high)))
        if dtype in EIGHT_BIT:
            b.zeros[number] = b.zero(b.operand(0))
            if place(b, new):
                return
        else:
            b.functions[number] = new
    form = b.layout(0)
    x = b.value(0, form)
    wide = b.wide(x) if dtype.kind in "iu" else b.cast(x, np.float32)
    inner = np.int64 if dtype.kind in "iu" else np.float32
    y = b.onnx("Clip", [wide, b.constant(low, inner), b.constant(high, inner)])
    b.finish(b.cast(y, dtype), form)


@handles("table")
def table(b: TosaBuilder, op: TosaOp) -> None:
    """Imports TABLE: 256 entries of int8, or 513 of int16, between which is interpolated to 23 bits."""
    entries = b.const(1, "table").astype(np.int64).reshape(-1)
    if b.type(0).dtype == np.int8 and entries.size == 256:
        if place(b, Function((b.operand(0),), entries[every(np.int8) + 128])):
            return
        form = b.layout(0)
        index = b.pair("Add", b.wide(b.value(0, form)), 128)
        b.finish(b.onnx("Gather", [b.constant(entries, np.int8), index], {"axis": 0}), form)
        return
    if b.type(0).dtype != np.int16 or entries.size != 513:
        raise b.damaged(f"{entries.size} entries for {b.type(0)}; 256 for i8, 513 for i16 are needed")
    values = np.arange(-32768, 32768)
    at, rest = (values + 32768) >> 7, values & 0x7F
    base, following = entries[at], entries[at + 1]
    whole = (base << 7) + (following - base) * rest
    form = b.layout(0)
    index = b.pair("Add", b.wide(b.value(0, form)), 32768)
    b.finish(b.onnx("Gather", [b.constant(whole, np.int32), index], {"axis": 0}), form)
