"""Convolutions and matrix products."""

from __future__ import annotations

import numpy as np

from tests.network.layer_cases.case import Case, lut, move, spatial
from tilewright.compiler.graph.graph import Quant


def conv(case: Case, depthwise: bool = False) -> None:
    rank = 1 if case.chance(0.2) else 2
    size = tuple(case.integer(1, 14) for _ in range(rank))
    group = case.integer(2, 4) if case.chance(0.25) else 1
    c, o = case.integer(1, 40) * group, case.integer(1, 40) * group
    if case.chance(0.3) or depthwise:
        group = c = o = case.integer(2, 70)
    n = case.integer(1, 2)
    attrs = spatial(case, size, 5)
    out = attrs.pop("out")
    x = case.input((n, c, *size), case.dtype())
    w = case.weights((o, c // group, *attrs["kernel"]), o, 0)
    dtype = case.dtype()
    y = case.finish("QConv", [x, w, *case.bias(o)], (n, o, *out), dtype, group=group, **attrs, **case.limits(dtype))
    _tail(case, y)


def _tail(case: Case, y: str) -> None:
    shape = case.graph.tensor(y).shape
    if case.chance(0.3):
        other = case.input(shape, case.dtype())
        dtype = case.dtype()
        operands = [y, other] if case.chance(0.5) else [other, y]
        y = case.finish("QAdd", operands, shape, dtype, **case.limits(dtype))
    if case.chance(0.3):
        y = lut(case, y)
    case.graph.outputs.append(y)


def conv_transpose(case: Case) -> None:
    rank = 1 if case.chance(0.2) else 2
    size = tuple(case.integer(1, 8) for _ in range(rank))
    group = case.integer(2, 3) if case.chance(0.2) else 1
    c, o = case.integer(1, 20) * group, case.integer(1, 20) * group
    while True:
        kernel = [case.integer(1, 4) for _ in size]
        strides = [case.integer(1, 3) for _ in size]
        dilations = [case.integer(1, 2) if max(strides) == 1 else 1 for _ in size]
        pads = [case.integer(0, k - 1) for k in kernel] + [case.integer(0, k - 1) for k in kernel]
        extra = [case.integer(0, s - 1) for s in strides]
        out = tuple(
            (size[i] - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 + extra[i] - pads[i] - pads[rank + i]
            for i in range(rank)
        )
        if min(out) > 0:
            break
    n = case.integer(1, 2)
    x = case.input((n, c, *size), case.dtype())
    w = case.weights((c, o // group, *kernel), o if group == 1 else 1, 1)
    dtype = case.dtype()
    y = case.finish(
        "QConvTranspose", [x, w, *case.bias(o)], (n, o, *out), dtype, kernel=kernel, strides=strides,
        dilations=dilations, pads=pads, output_padding=extra, group=group, **case.limits(dtype),
    )  # fmt: skip
    _tail(case, y)


def matmul(case: Case) -> None:
    batch = tuple(case.integer(1, 3) for _ in range(case.integer(0, 2)))
    m, k, n = case.integer(1, 40), case.integer(1, 70), case.integer(1, 70)
    x = case.input((*batch, m, k), case.dtype())
    dtype = case.dtype()
    if case.chance(0.5):
        inputs = [x, case.weights((k, n), n, 1), *case.bias(n)]
    else:
        inputs = [x, case.input((*batch, k, n), case.dtype())]
        case.graph.tensor(inputs[1]).quant = Quant.of(np.float32(0.004), case.graph.tensor(inputs[1]).quant.zero_point)  # type: ignore[union-attr]
    y = case.finish("QMatMul", inputs, (*batch, m, n), dtype, **case.limits(dtype))
    _tail(case, y)


def _product(case: Case, x: str, second: int | str) -> str:
    """Adds a product by constant weights with so many columns, or by another tensor."""
    shape, dtype = case.graph.tensor(x).shape, case.dtype()
    if isinstance(second, int):
        inputs, columns = [x, case.weights((shape[-1], second), second, 1), *case.bias(second)], second
    else:
        inputs, columns = [x, second], case.graph.tensor(second).shape[-1]
    return case.finish("QMatMul", inputs, (*shape[:-1], columns), dtype, **case.limits(dtype))


def heads(case: Case) -> None:
    """Attention without its Softmax: rows divided into heads, products among them, heads joined to rows again."""
    batch, rows, count, depth = case.integer(1, 2), case.integer(1, 30), case.integer(1, 4), 4 * case.integer(1, 10)
    depth = 16 * -(-depth // 16) if case.chance(0.5) else depth  # heads of whole blocks are read where they lie
    x = case.input((batch, rows, case.integer(1, 40)), case.dtype())
    parts = []
    for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]):
        made = _product(case, x, count * depth)
        if case.chance(0.3):
            made = lut(case, made)
        divided = move(case, "Reshape", made, [[batch, rows, count, depth]], [[batch, rows, count, depth]])[0]
        shape = [(batch, rows, count, depth)[p] for p in perm]
        parts.append(move(case, "Transpose", divided, [], [shape], perm=perm)[0])
    scores = _product(case, parts[0], parts[1])
    together = _product(case, lut(case, scores) if case.chance(0.5) else scores, parts[2])
    back = move(case, "Transpose", together, [], [[batch, rows, count, depth]], perm=[0, 2, 1, 3])[0]
    flat = [batch * rows, count * depth] if case.chance(0.3) else [batch, rows, count * depth]
    joined = move(case, "Reshape", back, [flat], [flat])[0]
    case.graph.outputs += [_product(case, joined, case.integer(1, 40))]
    if case.chance(0.3):
        case.graph.outputs.append(joined)


def masked(case: Case) -> None:
    """Products of heads behind which a table changes the scale alone, and a mask is added to rows of all heads."""
    count, rows, depth, columns = case.integer(1, 4), case.integer(1, 30), case.integer(1, 40), case.integer(1, 40)
    second = columns if case.chance(0.5) else case.input((count, depth, columns), case.dtype())
    y = _product(case, case.input((count, rows, depth), case.dtype()), second)
    if case.chance(0.7):
        dtype = case.graph.tensor(y).dtype
        y = case.finish("QLut", [y], (count, rows, columns), dtype, table=bytes(range(256)))
    mask = case.input((1, rows if case.chance(0.7) else 1, columns), case.dtype())
    dtype = case.dtype()
    y = case.finish("QAdd", [y, mask], (count, rows, columns), dtype, **case.limits(dtype))
    case.graph.outputs.append(lut(case, y) if case.chance(0.3) else y)


def wide_conv(case: Case) -> None:
    """Convolutions of 16-bit activations behind each other, with groups, strides and padding of any kind."""
    rank = 1 if case.chance(0.2) else 2
    c, size = case.integer(1, 40), tuple(case.integer(1, 14) for _ in range(rank))
    x = case.tensor("x0", (case.integer(1, 2), c, *size), np.int16, Quant.of(np.float32(0.001)))
    case.graph.inputs.append(x)
    for _ in range(case.integer(1, 3)):
        n, c, *size = case.graph.tensor(x).shape
        attrs = spatial(case, tuple(size), 4)
        out = attrs.pop("out")
        o, group = case.integer(1, 40), 1
        if case.chance(0.3):
            o = group = c
        elif c % 2 == 0 and case.chance(0.3):
            o, group = 2 * o, 2
        shape = (o, c // group, *attrs["kernel"])
        w = case.graph.constant("w", case.rng.integers(-127, 128, shape).astype(np.int8), Quant.of(np.float32(0.01)))
        inputs = [x, w]
        if case.chance(0.7):
            most = 1 << case.integer(10, 38)
            inputs.append(case.graph.constant("b", case.rng.integers(-most, most, o)))
        # Most sums come to an int16 or a few.
        bits = int(np.log2(32768 * 64 * np.prod(shape[1:]) ** 0.5)) - 15
        shifts = [bits + 15 + case.integer(-2, 2) for _ in range(o)]
        low = case.integer(-32768, 0) if case.chance(0.4) else -32768
        high = case.integer(low, 32767) if case.chance(0.4) else 32767
        x = case.finish(
            "QConv16", inputs, (n, o, *out), np.int16, quant=Quant.of(np.float32(0.001)), group=group, low=low,
            high=high, multipliers=tuple(case.integer(0, 0x7FFF) for _ in range(o)), shifts=tuple(shifts), **attrs,
        )  # fmt: skip
    case.graph.outputs.append(x)
