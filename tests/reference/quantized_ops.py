"""QUANTIZED_OPS in plain numpy, straight from the rules in the numerics contract; everything else by onnx's reference.

Independent of the compiler's own tables and of `tilewright.isa.numerics` on purpose: tests compare those with this.
Speed comes second; the convolutions run as exact float64 matrix products (|sums| < 2^53).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tilewright.compiler.graph.graph import QUANTIZED_OPS, Graph, Node, Quant
from tilewright.compiler.onnx.onnx_ops import evaluate

F32 = np.float32


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Correctly rounded float32 a*b+c: exact product in float64, sum rounded to odd, then to float32."""
    p = np.multiply(a, b, dtype=np.float64)
    c = np.asarray(c, np.float64)
    s = p + c
    t = s - p
    error = (p - (s - t)) + (c - t)
    bits = np.atleast_1d(s).view(np.int64).reshape(np.shape(s))
    sticky = (error != 0) & ((bits & 1) == 0)
    return np.where(sticky, np.nextafter(s, np.where(error > 0, np.inf, -np.inf)), s).astype(F32)


def requantize(
    acc: np.ndarray, scale: np.ndarray, zero: np.ndarray, low: int, high: int, dtype: np.dtype
) -> np.ndarray:
    """sat(RNE(f32(f32(acc) * s)) + zy)."""
    rounded = np.rint(acc.astype(F32) * scale.astype(F32)).astype(np.float64) + float(zero)
    return np.clip(rounded, low, high).astype(dtype)


def quant(graph: Graph, name: str) -> Quant:
    found = graph.tensor(name).quant
    assert found is not None, f"{name} has no quantisation"
    return found


def centred(graph: Graph, name: str, x: np.ndarray) -> np.ndarray:
    q = quant(graph, name)
    zero = q.zero_point
    if q.axis is not None:
        zero = zero.reshape([-1 if i == q.axis else 1 for i in range(x.ndim)])
    return x.astype(np.int64) - zero


def _windows(
    x: np.ndarray, kernel: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...]
) -> np.ndarray:
    """[N,C,spatial] -> [N,C,out,kernel]."""
    rank = len(kernel)
    reach = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations))
    view = sliding_window_view(x, reach, axis=tuple(range(2, 2 + rank)))
    steps = tuple(slice(None, None, s) for s in strides)
    taps = tuple(slice(None, None, d) for d in dilations)
    return view[(slice(None), slice(None), *steps, *taps)]


def _padded(x: np.ndarray, pads: tuple[int, ...], value: float) -> np.ndarray:
    """Pads by `pads`; negative ones crop."""
    rank = len(pads) // 2
    width = [(0, 0), (0, 0), *((max(pads[i], 0), max(pads[rank + i], 0)) for i in range(rank))]
    x = np.pad(x, width, constant_values=value)
    crop = [slice(-min(pads[i], 0), x.shape[2 + i] + min(pads[rank + i], 0)) for i in range(rank)]
    return x[(slice(None), slice(None), *crop)]


def conv_sums(x: np.ndarray, w: np.ndarray, attrs: Mapping[str, object]) -> np.ndarray:
    """Exact integer convolution of centred operands."""
    group, kernel = int(attrs["group"]), tuple(attrs["kernel"])  # type: ignore[call-overload, arg-type]
    x = _padded(x.astype(np.float64), attrs["pads"], 0)  # type: ignore[arg-type]
    view = _windows(x, kernel, attrs["strides"], attrs["dilations"])  # type: ignore[arg-type]
    rank = len(kernel)
    n, out = x.shape[0], view.shape[2 : 2 + rank]
    outputs = []
    for g, part in enumerate(np.split(w.astype(np.float64), group)):
        cols = view[:, g * part.shape[1] : (g + 1) * part.shape[1]]
        cols = np.moveaxis(cols, 1, 1 + rank).reshape(n, int(np.prod(out)), -1)
        sums = cols @ part.reshape(part.shape[0], -1).T
        outputs.append(np.moveaxis(sums, 2, 1).reshape(n, part.shape[0], *out))
    return np.concatenate(outputs, 1).astype(np.int64)


def conv_transpose_sums(x: np.ndarray, w: np.ndarray, attrs: Mapping[str, object]) -> np.ndarray:
    group, kernel, strides = int(attrs["group"]), tuple(attrs["kernel"]), attrs["strides"]  # type: ignore[call-overload, arg-type]
    dilations, pads, extra = attrs["dilations"], attrs["pads"], attrs["output_padding"]
    rank = len(kernel)
    full = [(i - 1) * s + (k - 1) * d + 1 + e for i, s, k, d, e in zip(x.shape[2:], strides, kernel, dilations, extra)]  # type: ignore[call-overload]
    parts = []
    for xs, ws in zip(np.split(x, group, 1), np.split(w, group, 0)):
        y = np.zeros((x.shape[0], ws.shape[1], *full), np.int64)
        for tap in np.ndindex(*kernel):
            where = tuple(
                slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, n, s in zip(tap, dilations, xs.shape[2:], strides)
            )  # type: ignore[call-overload]
            y[(slice(None), slice(None), *where)] += np.einsum(
                "nc...,co->no...", xs, ws[(slice(None), slice(None), *tap)]
            )
        parts.append(y)
    y = np.concatenate(parts, 1)
    crop = [slice(pads[i], y.shape[2 + i] - pads[rank + i]) for i in range(rank)]  # type: ignore[index]
    return y[(slice(None), slice(None), *crop)]


def _scaled(graph: Graph, node: Node, acc: np.ndarray, channel_axis: int) -> np.ndarray:
    qx, qw, qy = (quant(graph, n) for n in (node.inputs[0], node.inputs[1], node.outputs[0]))
    scale = np.asarray(F32(qx.scale) * qw.scale.astype(F32), F32) / F32(qy.scale)
    if qw.axis is not None:
        scale = scale.reshape([-1 if i == channel_axis else 1 for i in range(acc.ndim)])
    dtype = graph.tensor(node.outputs[0]).dtype
    return requantize(acc, np.asarray(scale, F32), qy.zero_point, *_limits(graph, node), dtype)


def q_conv(graph: Graph, node: Node, args: list[np.ndarray]) -> np.ndarray:
    x, w = centred(graph, node.inputs[0], args[0]), centred(graph, node.inputs[1], args[1])
    sums = conv_sums if node.op == "QConv" else conv_transpose_sums
    acc = sums(x, w, node.attributes)
    if len(args) > 2:
        acc = acc + args[2].reshape(1, -1, *([1] * (acc.ndim - 2)))
    assert np.abs(acc).max(initial=0) < 1 << 31, "accumulator beyond int32"
    return _scaled(graph, node, acc, 1)


def q_conv_16(graph: Graph, node: Node, args: list[np.ndarray]) -> np.ndarray:
    """LiteRT's product of 64 bits: a multiplier of 15, half of what is shifted away, the shift, the limits."""
    acc, attrs = conv_sums(args[0], args[1], node.attributes), node.attributes
    channel = (1, -1, *([1] * (acc.ndim - 2)))
    if len(args) > 2:
        acc = acc + args[2].reshape(channel)
    m, t = (np.array(attrs[name], np.int64).reshape(channel) for name in ("multipliers", "shifts"))
    return np.clip((acc * m + (np.int64(1) << (t - 1))) >> t, attrs["low"], attrs["high"]).astype(np.int16)


def q_mat_mul(graph: Graph, node: Node, args: list[np.ndarray]) -> np.ndarray:
    a, b = centred(graph, node.inputs[0], args[0]), centred(graph, node.inputs[1], args[1])
    acc = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64)
    acc = acc + args[2] if len(args) > 2 else acc
    return _scaled(graph, node, acc, acc.ndim - 1)


def q_add(graph: Graph, node: Node, args: list[np.ndarray]) -> np.ndarray:
    k = node.attributes["constants"]
    if k is not None:
        total = args[0].astype(np.int64) * k.ma + args[1].astype(np.int64) * k.mb + k.c
        return _clamped(graph, node, total >> k.shift)
    qa, qb, qy = (quant(graph, n) for n in (*node.inputs, node.outputs[0]))
    ra, rb = F32(qa.scale / qy.scale), F32(qb.scale / qy.scale)
    fixed = F32(F32(qy.zero_point) - fma(ra, F32(qa.zero_point), F32(rb * F32(qb.zero_point))))
    value = np.rint(fma(args[0].astype(F32), ra, fma(args[1].astype(F32), rb, fixed)))
    return _clamped(graph, node, value)


def q_mul(graph: Graph, node: Node, args: list[np.ndarray]) -> np.ndarray:
    qa, qb, qy = (quant(graph, n) for n in (*node.inputs, node.outputs[0]))
    scale = F32(F32(qa.scale * qb.scale) / qy.scale)
    product = centred(graph, node.inputs[0], args[0]) * centred(graph, node.inputs[1], args[1])
    if node.attributes.get("zero_point_after"):
        return _clamped(graph, node, np.rint(product.astype(F32) * scale) + qy.zero_point)
    return _clamped(graph, node, np.rint(product.astype(F32) * scale + F32(qy.zero_point)))


def _limits(graph: Graph, node: Node) -> tuple[int, int]:
    info = np.iinfo(graph.tensor(node.outputs[0]).dtype)
    return max(int(info.min), node.attributes["out_min"]), min(int(info.max), node.attributes["out_max"])


def _clamped(graph: Graph, node: Node, value: np.ndarray) -> np.ndarray:
    return np.clip(value, *_limits(graph, node)).astype(graph.tensor(node.outputs[0]).dtype)


def q_max_pool(graph: Graph, node: Node, args: list[np.ndarray]) -> np.ndarray:
    attrs = node.attributes
    x = _padded(args[0], attrs["pads"], np.iinfo(args[0].dtype).min)
    view = _windows(x, attrs["kernel"], attrs["strides"], attrs["dilations"])
    return view.max(axis=tuple(range(-len(attrs["kernel"]), 0)))


def _half_away(sums: np.ndarray, count: int) -> np.ndarray:
    """LiteRT's integer division: ties away from zero."""
    return np.sign(sums) * ((2 * np.abs(sums) + count) // (2 * count))


def q_average_pool(graph: Graph, node: Node, args: list[np.ndarray]) -> np.ndarray:
    """onnxruntime's order: dequantise, sum in float32 tap by tap, divide by the count, by the scale, add zy."""
    attrs, qx, qy = node.attributes, quant(graph, node.inputs[0]), quant(graph, node.outputs[0])
    if attrs["half_away"]:
        assert not any(attrs["pads"])
        inside = _windows(args[0].astype(np.int64), attrs["kernel"], attrs["strides"], (1,) * len(attrs["kernel"]))
        axes = tuple(range(-len(attrs["kernel"]), 0))
        return _clamped(graph, node, _half_away(inside.sum(axes), int(np.prod(attrs["kernel"]))))
    real = (args[0].astype(np.int32) - qx.zero_point).astype(F32) * F32(qx.scale)
    ones = (1,) * len(attrs["kernel"])
    view = _windows(_padded(real, attrs["pads"], 0.0), attrs["kernel"], attrs["strides"], ones)
    inside = np.ones((1, 1, *args[0].shape[2:]))
    counted = _padded(inside, attrs["pads"], 1.0 if attrs["count_include_pad"] else 0.0)
    count = _windows(counted, attrs["kernel"], attrs["strides"], ones).sum(tuple(range(-len(ones), 0)))
    total = np.zeros(view.shape[: -len(ones)], F32)
    for tap in np.ndindex(*attrs["kernel"]):
        total = total + view[(..., *tap)]
    mean = (total / count.astype(F32)).astype(F32)
    return _clamped(graph, node, np.rint(mean / F32(qy.scale) + F32(qy.zero_point)))


def q_global_average_pool(graph: Graph, node: Node, args: list[np.ndarray]) -> np.ndarray:
    qx, qy = quant(graph, node.inputs[0]), quant(graph, node.outputs[0])
    axes, attrs = tuple(range(2, args[0].ndim)), node.attributes
    count = int(np.prod(args[0].shape[2:]))
    if attrs["half_away"] or attrs["offset"] is not None:  # of the stored integers, zero points and all
        total = args[0].astype(np.int64).sum(axes, keepdims=bool(attrs["keepdims"]))
        mean = F32(total.astype(F32) * F32(attrs["factor"] or 0)) + F32(attrs["offset"] or 0)
        return _clamped(graph, node, _half_away(total, count) if attrs["half_away"] else np.rint(mean))
    acc = centred(graph, node.inputs[0], args[0]).sum(axes, keepdims=bool(node.attributes["keepdims"]))
    scale = F32(F32(qx.scale) / F32(F32(qy.scale) * F32(count)))
    dtype = graph.tensor(node.outputs[0]).dtype
    return requantize(acc, np.asarray(scale), qy.zero_point, *_limits(graph, node), dtype)


def _table(table: bytes) -> np.ndarray:
    return np.frombuffer(table, np.uint8)


def q_lut(graph: Graph, node: Node, args: list[np.ndarray]) -> np.ndarray:
    return _table(node.attributes["table"])[args[0].view(np.uint8)].view(graph.tensor(node.outputs[0]).dtype)


def q_concat(graph: Graph, node: Node, args: list[np.ndarray]) -> np.ndarray:
    tables = [_table(bytes(range(256)) if t is None else t) for t in node.attributes["tables"]]
    parts = [t[a.view(np.uint8)] for a, t in zip(args, tables, strict=True)]
    return np.concatenate(parts, node.attributes["axis"]).view(graph.tensor(node.outputs[0]).dtype)


def q_take(graph: Graph, node: Node, args: list[np.ndarray]) -> np.ndarray:
    indices, x = node.attributes["indices"], args[0]
    return x[np.ix_(*(range(n) if i is None else i for n, i in zip(x.shape, indices, strict=True)))]


def q_softmax(graph: Graph, node: Node, args: list[np.ndarray]) -> np.ndarray:
    qx, qy, axis = quant(graph, node.inputs[0]), quant(graph, node.outputs[0]), node.attributes["axis"]
    x = np.moveaxis(args[0].astype(np.float64), axis, -1)
    below, scale = x.max(-1, keepdims=True) - x, float(F32(qx.scale))
    dtype = graph.tensor(node.outputs[0]).dtype
    info, zero = np.iinfo(dtype), int(qy.zero_point)
    if node.attributes["levels"] is None:  # LiteRT's; its expf rounds one value in 2,000 another way
        step = F32(qx.scale) * F32(node.attributes["beta"])
        e = np.exp(-(step * below.astype(F32)), dtype=np.float64).astype(F32)
        steps = e * (F32(1) / (np.cumsum(e, axis=-1, dtype=F32)[..., -1:] * F32(qy.scale)))
        rounded = np.floor(steps.astype(np.float64) + 0.5) + (zero if info.min else 0)
        return np.moveaxis(np.clip(rounded, info.min, info.max), -1, axis).astype(dtype)
    largest = float(np.finfo(F32).max)
    shift = max(0.0, float(np.log(F32(largest) / F32(x.shape[-1]), dtype=np.float64).astype(F32)) - 5.0) / scale
    e = np.exp((shift - below) * scale).astype(F32)
    total = np.cumsum(e, axis=-1, dtype=F32)[..., -1:]
    with np.errstate(over="ignore"):
        y = (e * F32(node.attributes["levels"])) / total
    infinite = zero if info.min == 0 else info.max if zero < 0 else info.min  # what x86 converts an infinity to
    value = np.where(np.isinf(y), infinite, np.clip(np.rint(y.astype(np.float64)) + zero, info.min, info.max))
    return np.moveaxis(value, -1, axis).astype(dtype)


def q_norm(graph: Graph, node: Node, xs: list[np.ndarray]) -> np.ndarray:
    """The norm in float64: float32 gives other results for the few that lie next to a tie."""
    qx, qy, x = quant(graph, node.inputs[0]), quant(graph, node.outputs[0]), xs[0].astype(np.float64)
    real = (x - float(qx.zero_point)) * float(F32(qx.scale))
    if node.attributes["centred"]:
        real = real - real.mean(-1, keepdims=True)
    y = real / np.sqrt((real**2).mean(-1, keepdims=True) + float(F32(node.attributes["epsilon"]))) * xs[1]
    if len(xs) > 2:
        y = y + xs[2]
    info = np.iinfo(xs[0].dtype)
    return np.clip(np.rint(y / float(F32(qy.scale))) + int(qy.zero_point), info.min, info.max).astype(xs[0].dtype)


def q_plane_norm(graph: Graph, node: Node, xs: list[np.ndarray]) -> np.ndarray:
    """The norm of planes in float64, as q_norm."""
    qx, qy, x = quant(graph, node.inputs[0]), quant(graph, node.outputs[0]), xs[0].astype(np.float64)
    real = ((x - float(qx.zero_point)) * float(F32(qx.scale))).reshape(x.shape[0], node.attributes["groups"], -1)
    real = real - real.mean(-1, keepdims=True)
    y = real / np.sqrt((real**2).mean(-1, keepdims=True) + float(F32(node.attributes["epsilon"])))
    each = (-1, *[1] * (x.ndim - 2))
    y = y.reshape(x.shape) * xs[1].reshape(each) + xs[2].reshape(each)
    info = np.iinfo(xs[0].dtype)
    return np.clip(np.rint(y / float(F32(qy.scale))) + int(qy.zero_point), info.min, info.max).astype(xs[0].dtype)


def q_interpolate(graph: Graph, node: Node, xs: list[np.ndarray]) -> np.ndarray:
    """Exact sums of the four neighbours, ties upwards or, without the zero point, to even."""
    found, whole = xs[0].astype(np.int64), 1
    for axis, places in ((2, node.attributes["rows"]), (3, node.attributes["columns"])):
        share = np.array(places.shares).reshape([-1 if i == axis else 1 for i in range(4)])
        first, second = (np.take(found, at, axis) for at in (places.first, places.second))
        found, whole = first * (places.one - share) + second * share, whole * places.one
    if node.attributes["to_even"]:
        zero = int(quant(graph, node.inputs[0]).zero_point)
        return (np.rint(found / whole - zero) + zero).astype(xs[0].dtype)
    return np.floor(found / whole + 0.5).astype(xs[0].dtype)


def q_put(graph: Graph, node: Node, xs: list[np.ndarray]) -> np.ndarray:
    """The cache with channels c of head h of the row at [h * parts + c // lanes, row, c % lanes]."""
    cache, new, row = xs
    found = cache.copy()
    found[:, int(row.reshape(())) % found.shape[1], :] = new.reshape(found.shape[0], found.shape[2])
    return found


def q_row(graph: Graph, node: Node, xs: list[np.ndarray]) -> np.ndarray:
    """The row, or the last one for a number behind it."""
    table, value = xs
    return np.asarray(table[min(int(value.reshape(())), len(table) - 1)])


RUN: dict[str, Callable[[Graph, Node, list[np.ndarray]], np.ndarray]] = {
    "QConv": q_conv,
    "QConvTranspose": q_conv,
    "QConv16": q_conv_16,
    "QMatMul": q_mat_mul,
    "QAdd": q_add,
    "QMul": q_mul,
    "QMaxPool": q_max_pool,
    "QAveragePool": q_average_pool,
    "QGlobalAveragePool": q_global_average_pool,
    "QLut": q_lut,
    "QConcat": q_concat,
    "QTake": q_take,
    "QInterpolate": q_interpolate,
    "QSoftmax": q_softmax,
    "QNorm": q_norm,
    "QPlaneNorm": q_plane_norm,
    "QPut": q_put,
    "QRow": q_row,
}
#: Run on the CPU alone, and compared with LiteRT; run by kernels, which have references.
_ELSEWHERE = {"QMatMul16", "QKernel"}
assert set(RUN) | _ELSEWHERE == {
    name for name, op in QUANTIZED_OPS.items() if op.__module__.startswith("tilewright.compiler.graph.ops.")
}


def run(
    graph: Graph, feeds: Mapping[str, np.ndarray], given: Mapping[str, np.ndarray] | None = None
) -> dict[str, np.ndarray]:
    """Every tensor of the graph.

    Args:
        feeds: the graph inputs.
        given: values that replace computed tensors for the nodes behind them, so that one node's difference does not
            become the next one's; the result still holds what the nodes computed.
    """
    given = given or {}
    values = {n: t.data for n, t in graph.tensors.items() if t.data is not None}
    values.update(feeds)
    computed = dict(values)
    for node in graph:
        args = [values[n] if n else None for n in node.inputs]
        if node.op in RUN:
            results = [RUN[node.op](graph, node, [a for a in args if a is not None])]
        elif (
            node.op == "QuantizeLinear"
            and np.ndim(args[1]) == 0
            and args[2] is not None
            and args[2].dtype.itemsize == 1
        ):
            info = np.iinfo(args[2].dtype)
            results = [
                np.clip(np.rint(args[0] / args[1]) + args[2].astype(F32), info.min, info.max).astype(args[2].dtype)
            ]
        else:
            results = evaluate(node, args)
        for name, value in zip(node.outputs, results):
            if not name:
                continue
            tensor = graph.tensor(name)
            assert value.shape == tensor.shape and value.dtype == tensor.dtype, (str(node), value.shape, value.dtype)
            computed[name] = value
            values[name] = given.get(name, value) if name in given else value
    return computed
