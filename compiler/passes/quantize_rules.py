"""One function per float op: the integer nodes that replace it, or None where it does not fit.

Each takes a `Site` and may look at nothing but that op, its DequantizeLinears and its QuantizeLinear.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.graph import Graph, Node, Tensor
from compiler.passes.quantization import is_activation, quant_of, requantize_table
from compiler.passes.site import Site
from compiler.passes.weights import add_weights, constant_bias, constant_weights


def conv(site: Site, op: str = "QConv") -> list[Node] | None:
    """Weights constant, per tensor or per output channel; bias none, int32 or float constant."""
    x, attrs = site.activation(0), site.node.attrs
    transposed = op == "QConvTranspose"
    weights = constant_weights(site.graph, site.dequantizer(1), axis=1 if transposed else 0)
    if x is None or weights is None:
        return None
    data, quant = weights
    group = int(attrs["group"])
    if transposed and group > 1 and not quant.per_tensor:
        return None  # ONNX's axis 1 holds the channels of one group only
    channels = data.shape[1] * group if transposed else data.shape[0]
    inputs = [x.name, add_weights(site.graph, _source(site, 1), data, quant)]
    if site.has(2):
        assert x.quant is not None
        bias = constant_bias(site.graph, site.node.inputs[2], site.producers, x.quant, quant, channels)
        if bias is None:
            return None
        inputs.append(site.graph.constant(f"{site.node.inputs[2]}.int32", bias))
    window: dict[str, Any] = {
        "kernel": tuple(attrs["kernel_shape"]),
        "strides": tuple(attrs["strides"]),
        "pads": tuple(attrs["pads"]),
        "dilations": tuple(attrs["dilations"]),
        "group": group,
    }
    if transposed:
        window["output_padding"] = tuple(attrs["output_padding"])
    return [site.make(op, inputs, **window)]


def conv_transpose(site: Site) -> list[Node] | None:
    return conv(site, "QConvTranspose")


def _source(site: Site, index: int) -> Node:
    node = site.dequantizer(index)
    assert node is not None
    return node


def gemm(site: Site) -> list[Node] | None:
    """alpha = beta = 1. Transposed constants are transposed now, a transposed A by a Transpose of its integers."""
    attrs = site.node.attrs
    if float(attrs.get("alpha", 1.0)) != 1.0 or (site.has(2) and float(attrs.get("beta", 1.0)) != 1.0):
        return None
    return _product(site, bool(attrs.get("transA")), bool(attrs.get("transB")))


def mat_mul(site: Site) -> list[Node] | None:
    return _product(site, False, False)


def _product(site: Site, trans_a: bool, trans_b: bool) -> list[Node] | None:
    graph = site.graph
    a, source_b = site.activation(0), site.dequantizer(1)
    if a is None or source_b is None or len(a.shape) < 2:
        return None
    shape_b = graph.tensor(source_b.inputs[0]).shape
    if len(shape_b) < 2:
        return None
    before: list[Node] = []
    left = _transposed(graph, a, before) if trans_a else a.name
    weights = constant_weights(graph, source_b, axis=0 if trans_b else len(shape_b) - 1)
    b = site.activation(1)
    if weights is not None and len(shape_b) == 2:
        data, quant = weights
        if trans_b:
            data = np.ascontiguousarray(data.T)
            quant = type(quant)(quant.scale, quant.zero_point, None if quant.per_tensor else 1)
            right = graph.constant(f"{source_b.inputs[0]}.transposed", data, quant)
        else:
            right = add_weights(graph, source_b, data, quant)
    elif b is not None:
        quant = b.quant  # type: ignore[assignment]
        right = _transposed(graph, b, before) if trans_b else b.name
    else:
        return None
    inputs = [left, right]
    if site.has(2):
        assert a.quant is not None
        channels = site.out.shape[-1]
        bias = constant_bias(graph, site.node.inputs[2], site.producers, a.quant, quant, channels)
        if bias is None:
            return None
        inputs.append(graph.constant(f"{site.node.inputs[2]}.int32", bias))
    return [*before, site.make("QMatMul", inputs)]


def _transposed(graph: Graph, tensor: Tensor, before: list[Node]) -> str:
    name = graph.unique(f"{tensor.name}.transposed")
    graph.add(Tensor(name, tensor.shape[::-1], tensor.dtype, None, tensor.quant))
    before.append(Node("Transpose", [tensor.name], [name], {"perm": [1, 0]}, name))
    return name


def binary(site: Site) -> list[Node] | None:
    """Add and Mul of two 8-bit tensors, either of which may be a constant."""
    a, b = site.activation(0), site.activation(1)
    if a is None or b is None or not a.dtype == b.dtype == site.out.dtype:
        return None
    return [site.make("QAdd" if site.node.op == "Add" else "QMul", [a.name, b.name])]


def average_pool(site: Site) -> list[Node] | None:
    """Padding counts in the divisor where count_include_pad says so, the overhang of ceil mode included.

    (The float AveragePool does not count the overhang; onnxruntime's QLinearAveragePool does.)
    """
    x, attrs = site.activation(0), site.node.attrs
    dilated = any(d != 1 for d in attrs.get("dilations", []))
    if x is None or dilated or x.dtype != site.out.dtype:
        return None
    kernel, strides, pads = list(attrs["kernel_shape"]), list(attrs["strides"]), list(attrs["pads"])
    if attrs.get("ceil_mode"):
        rank = len(kernel)
        for i in range(rank):
            covered = (site.out.shape[2 + i] - 1) * strides[i] + kernel[i]
            pads[rank + i] = covered - x.shape[2 + i] - pads[i]
    window: dict[str, Any] = {
        "kernel": tuple(kernel),
        "strides": tuple(strides),
        "pads": tuple(pads),
        "count_include_pad": int(attrs.get("count_include_pad", 0)),
    }
    return [site.make("QAveragePool", [x.name], **window)]


def global_average_pool(site: Site) -> list[Node] | None:
    x = site.activation(0)
    if x is None or x.dtype != site.out.dtype:
        return None
    return [site.make("QGlobalAveragePool", [x.name], keepdims=1)]


def reduce_mean(site: Site) -> list[Node] | None:
    """A mean over all dimensions but the first and one other; that one becomes the channels by a Transpose."""
    x = site.activation(0)
    axes = site.graph.const(site.node.inputs[1]) if site.has(1) else None
    if x is None or axes is None or x.dtype != site.out.dtype:
        return None
    rank, keep = len(x.shape), int(site.node.attrs.get("keepdims", 1))
    reduced = sorted(int(a) % rank for a in axes)
    kept = [i for i in range(rank) if i not in reduced]
    if rank < 3 or len(kept) != 2 or kept[0] != 0:
        return None
    if kept[1] == 1:
        return [site.make("QGlobalAveragePool", [x.name], keepdims=keep)]
    if keep:
        return None
    perm = [0, kept[1], *reduced]
    name = site.graph.unique(f"{x.name}.transposed")
    site.graph.add(Tensor(name, tuple(x.shape[p] for p in perm), x.dtype, None, x.quant))
    move = Node("Transpose", [x.name], [name], {"perm": perm}, name)
    return [move, site.make("QGlobalAveragePool", [name], keepdims=0)]


def softmax(site: Site) -> list[Node] | None:
    """QSoftmax with `levels`: y = sat(RNE(softmax(x) * levels) + zy).

    onnxruntime scales by floor(f32(1 / sy)), an integer: 254 for the usual sy = 1/255 in float32, which is why the
    plain 1 / sy is wrong in some 0.3 % of elements there.
    """
    x = site.activation(0)
    if x is None or x.dtype != site.out.dtype or (site.low, site.high) != _full(site):
        return None
    axis = int(site.node.attrs.get("axis", -1)) % len(x.shape)
    levels = float(np.floor(np.float32(1) / np.float32(site.out_quant.scale)))
    return [site.make("QSoftmax", [x.name], clamped=False, axis=axis, levels=levels)]


def _full(site: Site) -> tuple[int, int]:
    info = np.iinfo(site.out.dtype)
    return int(info.min), int(info.max)


def _operand(site: Site, index: int, before: list[Node]) -> Tensor | None:
    """Integers of a Concat or Where operand. A float operand is quantised to the output: Q is elementwise."""
    tensor = site.activation(index)
    if tensor is not None:
        return tensor
    source = site.graph.tensor(site.node.inputs[index])
    if source.dtype != np.float32:
        return None
    name = site.graph.unique(f"{source.name}.{site.out.dtype}")
    made = site.graph.add(Tensor(name, source.shape, site.out.dtype, None, site.out_quant))
    before.append(Node("QuantizeLinear", [source.name, *site.quantizer.inputs[1:]], [name], site.quantizer.attrs, name))
    return made


def _table(site: Site, tensor: Tensor) -> np.ndarray | None:
    """Table that requantises an operand to the output and clamps it; None where the bytes pass unchanged."""
    assert tensor.quant is not None
    table = site.clamp_table(requantize_table(tensor.quant, tensor.dtype, site.out_quant, site.out.dtype))
    return None if np.array_equal(table, np.arange(256)) else table


def concat(site: Site) -> list[Node] | None:
    before: list[Node] = []
    if not any(site.activation(i) is not None for i in range(len(site.node.inputs))):
        return None
    operands = [_operand(site, i, before) for i in range(len(site.node.inputs))]
    if any(t is None for t in operands):
        return None
    tensors = [t for t in operands if t is not None]
    tables = [_table(site, t) for t in tensors]
    axis = int(site.node.attrs["axis"])
    return [*before, site.make("QConcat", [t.name for t in tensors], clamped=False, axis=axis, tables=tables)]


def where(site: Site) -> list[Node] | None:
    """Where(condition, x, y) on integers; operands of another scale pass through a table first."""
    before: list[Node] = []
    if site.activation(1) is None and site.activation(2) is None:
        return None
    names = []
    for i in (1, 2):
        tensor = _operand(site, i, before)
        if tensor is None:
            return None
        table = _table(site, tensor)
        name = tensor.name
        if table is not None or tensor.dtype != site.out.dtype:
            table = np.arange(256, dtype=np.uint8) if table is None else table
            name = site.graph.unique(f"{tensor.name}.requantized")
            site.graph.add(Tensor(name, tensor.shape, site.out.dtype, None, site.out_quant))
            before.append(Node("QLut", [tensor.name], [name], {"table": table}, name))
        names.append(name)
    return [*before, site.make("Where", [site.node.inputs[0], *names], clamped=False)]


def integer_max_pool(graph: Graph, node: Node) -> Node:
    """MaxPool on 8-bit integers is QMaxPool."""
    x = graph.tensor(node.inputs[0])
    if not is_activation(x) or len(node.outputs) > 1 or node.attrs.get("ceil_mode"):
        return node
    attrs = {
        "kernel": tuple(node.attrs["kernel_shape"]),
        "strides": tuple(node.attrs["strides"]),
        "pads": tuple(node.attrs["pads"]),
        "dilations": tuple(node.attrs["dilations"]),
    }
    graph.tensor(node.outputs[0]).quant = x.quant
    return Node("QMaxPool", node.inputs, node.outputs, attrs, node.name, node.origin)


def arg_max(graph: Graph, node: Node, producers: dict[str, Node]) -> None:
    """ArgMax and ArgMin read the integers: a positive scale keeps the order and the ties."""
    source = producers.get(node.inputs[0])
    if source is None or source.op != "DequantizeLinear":
        return
    quant, tensor = quant_of(graph, source), graph.tensor(source.inputs[0])
    if quant is not None and quant.per_tensor and is_activation(tensor):
        node.inputs = [tensor.name]
