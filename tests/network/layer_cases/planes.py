"""Layers of planes that are no products: pools, means, resizes, norms."""

from __future__ import annotations

import numpy as np

from tests.network.layer_cases.case import Case, lut, move, small_conv, spatial
from tilewright.compiler.graph.graph import Quant
from tilewright.compiler.graph.ops.interpolate import Places


def pool(case: Case) -> None:
    rank = 1 if case.chance(0.2) else 2
    size = tuple(case.integer(1, 14) for _ in range(rank))
    n, c = case.integer(1, 2), case.integer(1, 50)
    dtype = case.dtype()
    x = case.input((n, c, *size), dtype)
    kind = case.integer(0, 2)
    if kind == 0:
        while True:
            attrs = spatial(case, size, 4)
            if all(p < k for p, k in zip(attrs["pads"], attrs["kernel"] * 2, strict=True)):
                break
        out = attrs.pop("out")
        y = case.finish("QMaxPool", [x], (n, c, *out), dtype, quant=case.graph.tensor(x).quant, **attrs)
    elif kind == 1:
        attrs = spatial(case, size, 3)
        attrs["kernel"] = [k if k % 2 else 1 for k in attrs["kernel"]]
        include = case.chance(0.4)
        pads = [case.integer(0, k - 1) if include else 0 for k in attrs["kernel"] * 2]
        attrs["pads"], attrs["dilations"] = pads, [1] * rank
        reach = [size[i] + pads[i] + pads[rank + i] - attrs["kernel"][i] for i in range(rank)]
        out = tuple(r // stride + 1 for r, stride in zip(reach, attrs["strides"], strict=True))
        if min(reach) < 0:
            attrs["kernel"], attrs["pads"] = [1] * rank, [0] * 2 * rank
            out = tuple((s - 1) // t + 1 for s, t in zip(size, attrs["strides"], strict=True))
        attrs.pop("out")
        y = case.finish(
            "QAveragePool", [x], (n, c, *out), dtype, count_include_pad=include, **attrs, **case.limits(dtype)
        )
    else:
        dtype = case.dtype()
        y = case.finish("QGlobalAveragePool", [x], (n, c, *([1] * rank)), dtype, keepdims=1, **case.limits(dtype))
    if case.chance(0.3):
        y = lut(case, y)
    case.graph.outputs.append(y)


def litert_average(case: Case) -> None:
    """Averages by LiteRT's rules: of windows, of planes, and of channels that were moved into the place of planes."""
    dtype, size = case.dtype(), (case.integer(1, 14), case.integer(1, 14))
    x = case.input((case.integer(1, 2), case.integer(1, 50), *size), dtype)
    kind = case.integer(0, 3)
    if kind == 3:
        x = small_conv(case, x, case.integer(2, 40), 1, dtype)
        n, c, *size = shape = case.graph.tensor(x).shape
        x = move(case, "Transpose", x, [], [[n, *size, c]], perm=[0, 2, 3, 1])[0]
        planes = [1, n * size[0] * size[1], c, 1]
        x = move(case, "Reshape", x, [planes], [planes])[0]
    t = case.graph.tensor(x)
    limits = case.limits(dtype)
    if kind == 0:
        kernel, strides = ([case.integer(1, min(s, 5)) for s in size], [case.integer(1, 3) for _ in size])
        out = [(s - k) // by + 1 for s, k, by in zip(size, kernel, strides)]
        y = case.finish(
            "QAveragePool", [x], (*t.shape[:2], *out), dtype, quant=t.quant, kernel=kernel, strides=strides,
            half_away=True, **limits,
        )  # fmt: skip
    elif kind == 1:
        y = case.finish("QGlobalAveragePool", [x], (*t.shape[:2], 1, 1), dtype, quant=t.quant, half_away=True, **limits)
    else:
        assert t.quant is not None
        n, zx, to = np.float32(t.shape[2] * t.shape[3]), np.float32(t.quant.zero_point), case.quant(dtype)
        factor = np.float32(t.quant.scale / to.scale) * (np.float32(1) / n)
        offset = np.float32(to.zero_point) - np.float32(np.float32(n * zx) * factor)
        y = case.finish(
            "QGlobalAveragePool", [x], t.shape[:2], dtype, quant=to, keepdims=False, factor=float(factor),
            offset=float(offset), **limits,
        )  # fmt: skip
    if kind == 3:
        back = [shape[0], 1, *shape[2:]]
        y = small_conv(case, move(case, "Reshape", y, [back], [back])[0], case.integer(1, 40), 3)
    case.graph.outputs.append(y)


def large_mean(case: Case) -> None:
    """Averages over planes that fill ACT many times over, of what a layer makes and of an input."""
    size = (case.integer(40, 130), case.integer(40, 130))
    x = case.input((case.integer(1, 2), case.integer(1, 20), *size), case.dtype())
    if case.chance(0.5):
        x = lut(case, x)
        case.graph.outputs.append(x)
    shape, dtype = case.graph.tensor(x).shape, case.dtype()
    y = case.finish("QGlobalAveragePool", [x], (*shape[:2], 1, 1), dtype, keepdims=1, **case.limits(dtype))
    case.graph.outputs.append(lut(case, y) if case.chance(0.3) else y)


def _between(case: Case, n: int) -> Places:
    """Places a whole number of times as many, as RESIZE_BILINEAR has them, or any."""
    out = n * (1, 2, 3, 4, 8)[case.integer(0, 4)] if case.chance(0.8) else case.integer(1, 20)
    at = np.arange(out) * (n / out)
    if case.chance(0.6):
        at = at + 0.5 * n / out - 0.5
    at = np.clip(at, 0, n - 1)
    first = np.floor(at).astype(np.int64)
    shares = np.rint((at - first) * 2048).astype(np.int64)
    return Places.of(first, np.minimum(first + 1, n - 1), shares, 2048)


def interpolate(case: Case) -> None:
    """Rows and columns between others, between convolutions and alone."""
    x = case.input((case.integer(1, 2), case.integer(1, 40), case.integer(1, 9), case.integer(1, 9)), case.dtype())
    if case.chance(0.6):
        x = small_conv(case, x, case.integer(1, 40), 1)
    t = case.graph.tensor(x)
    rows, columns = (_between(case, n) for n in t.shape[2:])
    shape = (*t.shape[:2], len(rows.first), len(columns.first))
    y = case.finish(
        "QInterpolate", [x], shape, t.dtype, quant=t.quant, rows=rows, columns=columns, to_even=case.chance(0.5)
    )
    if case.chance(0.3):
        y = lut(case, y)
    if case.chance(0.6):
        y = small_conv(case, y, case.integer(1, 40), 1)
    case.graph.outputs.append(y)


def take(case: Case) -> None:
    """Rows and columns repeated, left out, reversed, between convolutions and alone."""
    c, rank = case.integer(1, 40), 1 if case.chance(0.2) else 2
    size = [case.integer(1, 9) for _ in range(rank)]
    x = case.input((case.integer(1, 2), c, *size), case.dtype())
    if rank == 2 and case.chance(0.7):
        x = small_conv(case, x, case.integer(1, 40), 1)
    shape, indices = list(case.graph.tensor(x).shape), []
    for n in size:
        kind, out = case.integer(0, 3), case.integer(1, 20)
        places: list[tuple[int, ...] | None] = [
            None, tuple(i // 2 for i in range(2 * n)), tuple(i * n // out for i in range(out)), tuple(range(n))[::-2],
        ]  # fmt: skip
        indices.append(places[kind])
    out_shape = [*shape[:2], *(n if i is None else len(i) for n, i in zip(size, indices, strict=True))]
    t = case.graph.tensor(x)
    y = case.finish("QTake", [x], tuple(out_shape), t.dtype, quant=t.quant, indices=(None, None, *indices))
    if case.chance(0.3):
        y = lut(case, y)
    if rank == 2 and case.chance(0.7):
        case.graph.outputs.append(y)
        y = small_conv(case, y, case.integer(1, 30), 3)
    case.graph.outputs.append(y)


def plane_norm(case: Case) -> None:
    """A norm over planes, of channels or of groups of them, before a convolution."""
    groups, together = case.integer(1, 6), case.integer(1, 4)
    size = (case.integer(2, 9), case.integer(2, 9)) if together == 1 else (4, 4 * case.integer(1, 3))
    shape = (case.integer(1, 2), groups * together, *size)
    dtype = case.dtype()
    x = case.input(shape, dtype)
    info = np.iinfo(dtype)
    rng = np.random.default_rng(case.integer(0, 1 << 30))
    pairs = ((1, 0.5), (0, 0.3))
    inputs = [case.graph.constant("channels", rng.normal(*p, shape[1]).astype(np.float32)) for p in pairs]
    quant = Quant.of(np.float32(rng.uniform(3, 5) / 127), int(info.min) + 128 + case.integer(0, 10))
    epsilon = float(10.0 ** -rng.integers(4, 9))
    y = case.finish("QPlaneNorm", [x, *inputs], shape, dtype, quant=quant, groups=groups, epsilon=epsilon)
    v = case.weights((m := case.integer(1, 20), shape[1], 1, 1), m, 0)
    limits = {"out_min": int(info.min), "out_max": int(info.max)}
    out = case.finish("QConv", [y, v], (shape[0], m, *size), dtype, kernel=(1, 1), **limits)
    case.graph.outputs += [y, out]
