"""From quantised nodes to NPU layers: scales, biases, phases and fused tails. One function per node kind."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from compiler.graph import Node
from compiler.npu.layers.conv import ConvLayer
from compiler.npu.layers.conv_tiling import Phase
from compiler.npu.layers.depthwise import DepthwiseLayer
from compiler.npu.layers.elementwise import ElementLayer
from compiler.npu.layers.layer import Add, Layer, Post
from compiler.npu.layers.pooling import MaxPoolLayer, MeanLayer
from compiler.npu.place.operands import Operands
from compiler.npu.support import add_constants, half_away_factor, mean_rule, stored_limits, stored_zero_point
from compiler.npu.views import View
from isa import numerics
from isa.instructions import Rounding
from isa.program import Layout


def _pair(values: list[int] | None, default: int, rank: int) -> tuple[int, int]:
    """Spatial attribute as (rows, columns); 1-D runs along columns."""
    v = list(values) if values else [default] * (rank - 2)
    return (int(v[0]), int(v[1])) if len(v) == 2 else (default, int(v[0]))


def _pads(node: Node, rank: int) -> tuple[int, int]:
    pads = list(node.attributes.get("pads") or [0] * (2 * (rank - 2)))
    return _pair(pads[: rank - 2], 0, rank)


def _split_zero_point(w: np.ndarray, zero_point: np.ndarray) -> np.ndarray:
    """int8 sets [sets, ...] that add up to w - zero_point; `zero_point` broadcasts along axis 0."""
    z = np.asarray(zero_point, np.int32).reshape(-1, *([1] * (w.ndim - 1)))  # one value or one per output
    rest = w.astype(np.int32) - z
    sets = []
    while True:
        fits = np.clip(rest, -128, 127)
        sets.append(fits.astype(np.int8))
        rest = rest - fits
        if not rest.any():
            return np.stack(sets)


def _bias(operands: Operands, node: Node, effective_sum: np.ndarray, zx: int) -> np.ndarray:
    """bias - zx * (sum of the weights of each output), wrapping."""
    bias = np.zeros(effective_sum.shape, np.int64)
    if len(node.inputs) > 2 and node.inputs[2]:
        const = operands.graph.const(node.inputs[2])
        assert const is not None
        bias = bias + const.astype(np.int64).reshape(-1)
    return numerics.wrap32(bias - zx * effective_sum.astype(np.int64))


def _requantise(operands: Operands, node: Node, channels: int) -> tuple[Post, np.ndarray, int]:
    x, w, y = (
        operands.graph.tensor(node.inputs[0]),
        operands.graph.tensor(node.inputs[1]),
        operands.graph.tensor(node.outputs[0]),
    )
    assert x.quant is not None and w.quant is not None and y.quant is not None
    scale = numerics.product_scale(x.quant.scale, w.quant.scale, y.quant.scale)
    low, high = stored_limits(y, node)
    post = Post(zp=stored_zero_point(y), low=low, high=high)
    return post, np.broadcast_to(scale.reshape(-1), (channels,)).astype(np.float32), stored_zero_point(x)


def _labels(nodes: list[Node]) -> tuple[str, str]:
    return " + ".join(n.name or n.outputs[0] for n in nodes), "+".join(n.op for n in nodes)


def fuse_tail(operands: Operands, post: Post, tail: list[Node], layout: Layout, value: str) -> str:
    """Folds a following QAdd and QLut into `post`; returns the name of the tensor the layer now makes."""
    for node in tail:
        if node.op == "QLut":
            post.lut = operands.table(node.attributes["table"], node.inputs[0], node.outputs[0])
        else:
            constants = dict(add_constants(operands.graph, node) or {})
            other = node.inputs[1] if node.inputs[0] == value else node.inputs[0]
            if node.inputs[0] != value:
                constants["ma"], constants["mb"] = constants["mb"], constants["ma"]
            low, high = stored_limits(operands.graph.tensor(node.outputs[0]), node)
            view = operands.view(other, layout, like=node.outputs[0])
            post.add = Add(view, constants, low, high)
        value = node.outputs[0]
    return value


def conv(operands: Operands, node: Node, tail: list[Node]) -> Layer:
    graph = operands.graph
    x, w, y = graph.tensor(node.inputs[0]), graph.tensor(node.inputs[1]), graph.tensor(node.outputs[0])
    rank = len(x.shape)
    assert w.data is not None and w.quant is not None
    data = w.data if rank == 4 else w.data[:, :, None, :]
    post, scale, zx = _requantise(operands, node, data.shape[0])
    sets = _split_zero_point(data, w.quant.zero_point)
    effective = sets.astype(np.int64).sum(axis=(0, 2, 3, 4))
    bias = _bias(operands, node, effective, zx)
    stride, dilation = _pair(node.attributes.get("strides"), 1, rank), _pair(node.attributes.get("dilations"), 1, rank)
    pad, group = _pads(node, rank), int(node.attributes.get("group", 1))
    macs = operands.graph.macs(node)
    depthwise = group == x.shape[1] == y.shape[1] and group > 1 and len(sets) == 1
    depthwise = depthwise and bool(operands.config.depthwise)  # else diagonal tiles of the grouped convolution
    packed = None if depthwise else operands.pack_input(node, data.shape, stride, dilation, pad, group)
    if packed is None:
        view = operands.view(node.inputs[0], Layout.CHANNELS_FIRST)
    else:
        view, pad, stride, dilation = packed.view, packed.pad, packed.stride, packed.dilation
        sets = np.stack([packed.repack(w_set) for w_set in sets])
    name, op = _labels([node, *tail])
    output = fuse_tail(operands, post, tail, Layout.CHANNELS_FIRST, node.outputs[0])
    made = operands.output(output)
    if depthwise:
        return DepthwiseLayer(
            name, op, [view], made, post, macs, weights=sets[0][:, 0], bias=bias, scale=scale, pad=pad, stride=stride,
            dilation=dilation, fill=zx,
        )  # fmt: skip
    phase = Phase(sets, pad, stride, dilation)
    return ConvLayer(name, op, [view], made, post, macs, phases=[phase], bias=bias, scale=scale, group=group, fill=zx)


def conv_transpose(operands: Operands, node: Node, tail: list[Node]) -> Layer:
    graph = operands.graph
    x, w, y = graph.tensor(node.inputs[0]), graph.tensor(node.inputs[1]), graph.tensor(node.outputs[0])
    rank = len(x.shape)
    assert w.data is not None and w.quant is not None
    group = int(node.attributes.get("group", 1))
    data = w.data if rank == 4 else w.data[:, :, None, :]
    c, og, kh, kw = data.shape
    # [C, O/g, kh, kw] -> [O, C/g, kh, kw], kernel mirrored so that taps walk forward over the input.
    swapped = (
        data.reshape(group, c // group, og, kh, kw).transpose(0, 2, 1, 3, 4).reshape(group * og, c // group, kh, kw)
    )
    mirrored = swapped[:, :, ::-1, ::-1]
    zero_point = w.quant.zero_point
    if zero_point.ndim and zero_point.size != group * og:
        zero_point = np.tile(zero_point, group)
    post, scale, zx = _requantise(operands, node, og if w.quant.scale.ndim else group * og)
    if scale.size != group * og:
        scale = np.tile(scale, group)
    sets = _split_zero_point(mirrored, zero_point)
    stride, dilation = _pair(node.attributes.get("strides"), 1, rank), _pair(node.attributes.get("dilations"), 1, rank)
    pad = _pads(node, rank)
    out = (y.shape[2], y.shape[3]) if rank == 4 else (1, y.shape[2])
    # The bias correction assumes zero-point padding around the input, so that every tap counts once.
    phases = []
    for py in range(min(stride[0], out[0])):
        for px in range(min(stride[1], out[1])):
            axes = [_phase_axis(p, pad[i], (kh, kw)[i], stride[i], dilation[i]) for i, p in ((0, py), (1, px))]
            (ky0, ny, pad_y), (kx0, nx, pad_x) = axes
            if ny == 0 or nx == 0:
                taps = np.zeros((*sets.shape[:3], 1, 1), np.int8)
                pad_y = pad_x = 0
            else:
                taps = sets[:, :, :, ky0 :: stride[0], kx0 :: stride[1]]
            phases.append(
                Phase(taps, (pad_y, pad_x), (1, 1), dilation if stride == (1, 1) else (1, 1), stride, (py, px))
            )
    biases = [_bias(operands, node, p.weights.astype(np.int64).sum(axis=(0, 2, 3, 4)), zx) for p in phases]
    view = operands.view(node.inputs[0], Layout.CHANNELS_FIRST)
    name, op = _labels([node, *tail])
    output = fuse_tail(operands, post, tail, Layout.CHANNELS_FIRST, node.outputs[0])
    return ConvLayer(
        name=name, op=op, inputs=[view], output=operands.output(output), post=post,
        macs=operands.graph.macs(node), phases=phases, bias=np.stack(biases), scale=scale, group=group, fill=zx,
    )  # fmt: skip


def _phase_axis(phase: int, pad: int, kernel: int, stride: int, dilation: int) -> tuple[int, int, int]:
    """Taps of one output phase along one axis, in the mirrored kernel.

    Output o = q*stride + phase gets input i through kernel index k (unmirrored) when o + pad = i*stride + k*dilation.

    Returns:
        (first mirrored index, number of taps, pad of the phase's ordinary convolution).
    """
    if stride == 1:
        return 0, kernel, (kernel - 1) * dilation - pad
    first = (phase + pad) % stride  # unmirrored k of this phase: first, first + stride, ...
    count = -(-(kernel - first) // stride) if first < kernel else 0
    if count == 0:
        return 0, 0, 0
    last = first + (count - 1) * stride
    # Input row of tap k at q is q + (phase + pad - k) / stride; the mirrored order starts at the largest k.
    return kernel - 1 - last, count, -((phase + pad - last) // stride)


def matmul(operands: Operands, node: Node, tail: list[Node]) -> Layer:
    graph = operands.graph
    w = graph.tensor(node.inputs[1])
    k, n = w.shape[-2], w.shape[-1]
    post, scale, zx = _requantise(operands, node, n)
    macs = operands.graph.macs(node)
    name, op = _labels([node, *tail])
    view = operands.view(node.inputs[0], Layout.CHANNELS_LAST)
    dynamic, bias, sets = None, np.zeros(n, np.int32), np.zeros((1, n, k, 1, 1), np.int8)
    if w.is_const:
        assert w.data is not None and w.quant is not None
        data = w.data.reshape(k, n).T[:, :, None, None]
        sets = _split_zero_point(data, w.quant.zero_point)
        bias = _bias(operands, node, sets.astype(np.int64).sum(axis=(0, 2, 3, 4)), zx)
    else:
        dynamic = operands.dynamic_weights(node, zx, float(scale[0]))
    output = fuse_tail(operands, post, tail, Layout.CHANNELS_LAST, node.outputs[0])
    layer = ConvLayer(
        name=name, op=op, inputs=[view], output=operands.output(output), post=post, macs=macs,
        phases=[Phase(sets, (0, 0))], bias=bias, scale=scale, fill=zx, dynamic=dynamic,
    )  # fmt: skip
    if dynamic is not None:
        layer.extra_reads += [dynamic.tiles, dynamic.params]
    return layer


def _average_rule(operands: Operands, node: Node, n: int) -> tuple[Post, int, np.float32]:
    """Requantiser, bias and scale of an average over n stored values."""
    x, y = operands.graph.tensor(node.inputs[0]), operands.graph.tensor(node.outputs[0])
    assert x.quant is not None and y.quant is not None
    low, high = stored_limits(y, node)
    if node.attributes.get("half_away"):
        stored = 128 if x.dtype == np.uint8 else 0  # averages of the model's own integers: sums of uint8 are positive
        factor = half_away_factor(operands.graph, node)
        assert factor is not None
        return Post(zp=-stored, low=low, high=high, rounding=Rounding.HALF_AWAY), n * stored, factor
    if node.attributes["offset"] is not None:
        rule = mean_rule(operands.graph, node)
        assert rule is not None
        post = Post(zp=stored_zero_point(y), low=low, high=high, rounding=rule[1])
        return post, -n * stored_zero_point(x), rule[0]
    given = node.attributes["factor"]
    scale = numerics.mean_scale(x.quant.scale, y.quant.scale, n) if given is None else np.float32(given)
    return Post(zp=stored_zero_point(y), low=low, high=high), -n * stored_zero_point(x), scale


def average_pool(operands: Operands, node: Node, tail: list[Node]) -> Layer:
    graph = operands.graph
    x = graph.tensor(node.inputs[0])
    rank, c = len(x.shape), x.shape[1]
    kernel = _pair(node.attributes["kernel"], 1, rank)
    n = kernel[0] * kernel[1]
    zx = stored_zero_point(x)
    post, bias, scale = _average_rule(operands, node, n)
    name, op = _labels([node, *tail])
    view = operands.view(node.inputs[0], Layout.CHANNELS_FIRST)
    output = fuse_tail(operands, post, tail, Layout.CHANNELS_FIRST, node.outputs[0])
    made = operands.output(output)
    biases, scales = np.full(c, bias, np.int32), np.full(c, scale, np.float32)
    pad, stride = _pads(node, rank), _pair(node.attributes.get("strides"), 1, rank)
    if not operands.config.depthwise:
        phase = Phase(np.ones((1, c, 1, *kernel), np.int8), pad, stride)
        return ConvLayer(
            name, op, [view], made, post, phases=[phase], bias=biases, scale=scales, group=c, fill=zx,
        )  # fmt: skip
    return DepthwiseLayer(
        name, op, [view], made, post, weights=np.ones((c, *kernel), np.int8), bias=biases, scale=scales, pad=pad,
        stride=stride, fill=zx,
    )  # fmt: skip


def global_average(operands: Operands, node: Node, tail: list[Node]) -> Layer:
    n = int(np.prod(operands.graph.tensor(node.inputs[0]).shape[2:]))
    post, bias, scale = _average_rule(operands, node, n)
    name, op = _labels([node, *tail])
    view = operands.view(node.inputs[0], Layout.CHANNELS_FIRST)
    return MeanLayer(name, op, [view], operands.output(node.outputs[0]), post, bias=bias, scale=scale)


def max_pool(operands: Operands, node: Node, tail: list[Node]) -> Layer:
    rank = len(operands.graph.tensor(node.inputs[0]).shape)
    name, op = _labels([node, *tail])
    post = Post()
    view = operands.view(node.inputs[0], Layout.CHANNELS_FIRST)
    output = fuse_tail(operands, post, tail, Layout.CHANNELS_FIRST, node.outputs[0])
    return MaxPoolLayer(
        name=name, op=op, inputs=[view], output=operands.output(output), post=post,
        kernel=_pair(node.attributes["kernel"], 1, rank), pad=_pads(node, rank),
        stride=_pair(node.attributes.get("strides"), 1, rank),
        dilation=_pair(node.attributes.get("dilations"), 1, rank),
    )  # fmt: skip


def lut(operands: Operands, node: Node, tail: list[Node]) -> Layer:
    layout = operands.layout(node)
    name, op = _labels([node, *tail])
    post = Post(lut=operands.table(node.attributes["table"], node.inputs[0], node.outputs[0]))
    view = operands.view(node.inputs[0], layout)
    return ElementLayer(name, op, [view], operands.output(node.outputs[0]), post)


def add(operands: Operands, node: Node, tail: list[Node]) -> Layer:
    layout = operands.layout(node)
    a, b = (operands.view(n, layout, like=node.outputs[0]) for n in node.inputs)
    low, high = stored_limits(operands.graph.tensor(node.outputs[0]), node)
    constants = dict(add_constants(operands.graph, node) or {})
    full = operands.planes(node.outputs[0], layout)
    if (a.n, a.c, a.h, a.w) != full:  # the first operand walks all of the output
        a, b = b, a
        constants["ma"], constants["mb"] = constants["mb"], constants["ma"]
    name, op = _labels([node, *tail])
    post = Post(add=Add(b, constants, low, high))
    output = fuse_tail(operands, post, tail, layout, node.outputs[0])
    return ElementLayer(name, op, [a, b], operands.output(output), post, kind="add")


def mul(operands: Operands, node: Node, tail: list[Node]) -> Layer:
    layout = operands.layout(node)
    y = operands.graph.tensor(node.outputs[0])
    names = list(node.inputs)
    views = [operands.view(n, layout, like=node.outputs[0]) for n in names]
    full = operands.planes(node.outputs[0], layout)
    if (views[0].n, views[0].c, views[0].h, views[0].w) != full:
        views.reverse()
        names.reverse()
    qa, qb = operands.graph.tensor(names[0]), operands.graph.tensor(names[1])
    assert qa.quant is not None and qb.quant is not None and y.quant is not None
    low, high = stored_limits(y, node)
    rounding = Rounding.EVEN if node.attributes.get("zero_point_after") else Rounding.EVEN_ZERO_POINT_INSIDE
    # Inside the rounding the zero point is that of the model's own type: uint8 values are moved after it.
    post = Post(
        zp=stored_zero_point(y), low=low, high=high, rounding=rounding,
        za=stored_zero_point(qa), zb=stored_zero_point(qb),
    )  # fmt: skip
    scale = numerics.product_scale(qa.quant.scale, qb.quant.scale, y.quant.scale)
    name, op = _labels([node, *tail])
    output = fuse_tail(operands, post, [n for n in tail if n.op == "QLut"], layout, node.outputs[0])
    return ElementLayer(name, op, views, operands.output(output), post, kind="mul", scale=np.float32(scale))


def concat(operands: Operands, node: Node, tail: list[Node]) -> list[Layer]:
    axis = node.attributes["axis"] % 4
    whole = operands.output(node.outputs[0])
    tables = node.attributes.get("tables") or [None] * len(node.inputs)
    layers: list[Layer] = []
    at = 0
    for index, (name, table) in enumerate(zip(node.inputs, tables, strict=True)):
        view = operands.view(name, Layout.CHANNELS_FIRST)
        offset = (whole.sn, whole.sc // whole.block, whole.sh, whole.block)[axis] * at
        n, c, h, w = view.n, view.c, view.h, view.w
        target = View(whole.tensor, whole.region, whole.buffer, n, c, h, w, whole.sn, whole.sc, whole.sh, whole.block,
                      offset)  # fmt: skip
        x, y = operands.graph.tensor(name), operands.graph.tensor(node.outputs[0])
        post = Post(lut=None if table is None and x.dtype == y.dtype else operands.table(table, name, node.outputs[0]))
        layers.append(ElementLayer(f"{node.name or node.outputs[0]} [{index}]", node.op, [view], target, post))
        at += (n, c, h, w)[axis]
    return layers


def _single(function: Callable[[Operands, Node, list[Node]], Layer]) -> Callable[..., list[Layer]]:
    return lambda operands, node, tail: [function(operands, node, tail)]


LOWER: dict[str, Callable[..., list[Layer]]] = {
    "QConv": _single(conv),
    "QConvTranspose": _single(conv_transpose),
    "QMatMul": _single(matmul),
    "QAveragePool": _single(average_pool),
    "QGlobalAveragePool": _single(global_average),
    "QMaxPool": _single(max_pool),
    "QLut": _single(lut),
    "QAdd": _single(add),
    "QMul": _single(mul),
    "QConcat": concat,
}
