"""Which quantised nodes the NPU can run, and why not where it cannot."""

from __future__ import annotations

import functools

import numpy as np

from compiler.graph import Graph, Node, Tensor
from compiler.npu.add_constants import find_add_constants
from compiler.npu.views import plane_shape
from compiler.ops.elementwise import AddConstants, QAdd
from compiler.ops.quantized_op import Clamped
from compiler.tensor import EIGHT_BIT
from isa import numerics
from isa.config import NpuConfig
from isa.instructions import Rounding
from isa.program import Layout

_BIGGEST_KERNEL = 63


def stored_zero_point(t: Tensor) -> int:
    """The zero point in the int8 domain in which the machine holds the tensor."""
    assert t.quant is not None
    return int(t.quant.zero_point) - (128 if t.dtype == np.uint8 else 0)


def stored_limits(t: Tensor, node: Node) -> tuple[int, int]:
    """(low, high) clamp of a node's output in the int8 domain."""
    assert isinstance(node.quantized, Clamped)
    shift = 128 if t.dtype == np.uint8 else 0
    low, high = node.quantized.limits(t.dtype)
    return low - shift, high - shift


def add_constants(graph: Graph, node: Node) -> dict[str, int] | None:
    """VECTOR_ADD constants of a QAdd in the order of its operands."""
    a, b, y = (graph.tensor(n) for n in (*node.inputs, node.outputs[0]))
    assert a.quant is not None and b.quant is not None and y.quant is not None
    if isinstance(node.quantized, QAdd) and node.quantized.constants is not None:
        return _stored_constants(node.quantized.constants, *(_type(t)[2] for t in (a, b, y)))
    low, high = stored_limits(y, node)
    return find_add_constants(*(_type(t) for t in (a, b, y)), low, high)


def _stored_constants(given: AddConstants, oa: int, ob: int, oy: int) -> dict[str, int] | None:
    """A QAdd's own constants for values stored minus `oa`, `ob`, `oy`; None where the machine has no room for them."""
    ma, mb, shift = given.ma, given.mb, given.shift
    c = given.c + oa * ma + ob * mb - (oy << shift)
    reach = (abs(ma) + abs(mb)) * 128 + abs(c)
    if max(abs(ma), abs(mb)) >= 1 << 23 or not 0 <= shift < 32 or reach >= 1 << 31:
        return None
    return {"ma": ma, "mb": mb, "c": c, "shift": shift}


def _type(t: Tensor) -> tuple[float, int, int]:
    assert t.quant is not None
    return float(t.quant.scale), int(t.quant.zero_point), 128 if t.dtype == np.uint8 else 0


def unsupported_reason(graph: Graph, node: Node, config: NpuConfig) -> str | None:
    """None if the NPU runs `node` exactly, else why it goes to the CPU."""
    check = _CHECKS.get(node.op)
    if check is None:
        return f"{node.op} is not an NPU operation"
    acts = [n for n in (*node.inputs, *node.outputs) if n and graph.tensor(n).dtype in EIGHT_BIT]
    for name in acts:
        t = graph.tensor(name)
        if t.size == 0:
            return f"{name} is empty"
    for name in (node.inputs[0], node.outputs[0]):
        t = graph.tensor(name)
        if t.dtype not in EIGHT_BIT or t.quant is None or not t.quant.per_tensor:
            return f"{name} is not an int8 or uint8 tensor with one scale"
        if not np.isfinite(t.quant.scale) or not 2.0**-120 < float(t.quant.scale) < 2.0**120:
            return f"scale {float(t.quant.scale)} of {name} is outside 2^-120..2^120"
    return check(graph, node, config)


def _spatial(graph: Graph, node: Node) -> str | None:
    rank = len(graph.tensor(node.inputs[0]).shape)
    if rank not in (3, 4):
        return f"{rank - 2} spatial axes; the NPU has 1 or 2"
    if max(node.attributes.get("kernel", [1])) > _BIGGEST_KERNEL:
        return f"kernel {list(node.attributes['kernel'])} is larger than {_BIGGEST_KERNEL}"
    if max(node.attributes.get("strides", [1])) > 64 or max(node.attributes.get("dilations", [1])) > 64:
        return "stride or dilation above 64"
    if any(p < 0 for p in node.attributes.get("pads", [0])) or max(node.attributes.get("pads", [0])) > 255:
        return f"pads {list(node.attributes['pads'])} outside 0..255"
    return None


def _conv(graph: Graph, node: Node, config: NpuConfig) -> str | None:
    w = graph.tensor(node.inputs[1])
    if not w.is_const or w.dtype != np.int8:
        return "weights are not int8 constants"
    if len(node.inputs) > 2 and node.inputs[2] and not graph.tensor(node.inputs[2]).is_const:
        return "bias is not a constant"
    return _spatial(graph, node)


def _conv_transpose(graph: Graph, node: Node, config: NpuConfig) -> str | None:
    if max(node.attributes.get("dilations", [1])) > 1 and max(node.attributes.get("strides", [1])) > 1:
        return "ConvTranspose with stride and dilation"
    return _conv(graph, node, config)


def _matmul(graph: Graph, node: Node, config: NpuConfig) -> str | None:
    x, w = graph.tensor(node.inputs[0]), graph.tensor(node.inputs[1])
    if len(x.shape) < 2 or len(w.shape) < 2:
        return f"operands of rank {len(x.shape)} and {len(w.shape)}"
    if len(node.inputs) > 2 and node.inputs[2] and not graph.tensor(node.inputs[2]).is_const:
        return "bias is not a constant"
    if w.is_const:
        if w.dtype != np.int8:
            return "weights are not int8"
        return "batched constant weights" if len(w.shape) > 2 and w.size != w.shape[-1] * w.shape[-2] else None
    if len(node.inputs) > 2 and node.inputs[2]:
        return "product of two activations with bias"
    if w.dtype not in EIGHT_BIT or w.quant is None or not w.quant.per_tensor:
        return "second operand is not int8 or uint8 with one scale"
    if x.shape[:-2] != w.shape[:-2]:
        return f"broadcast batch axes {x.shape[:-2]} and {w.shape[:-2]}"
    return None


def _elementwise(graph: Graph, node: Node, config: NpuConfig) -> str | None:
    y = graph.tensor(node.outputs[0])
    for name in node.inputs:
        t = graph.tensor(name)
        if t.dtype not in EIGHT_BIT or t.quant is None or not t.quant.per_tensor:
            return f"{name} is not int8 or uint8 with one scale"
    if graph.tensor(node.inputs[0]).is_const and graph.tensor(node.inputs[1]).is_const:
        return "both operands are constants"
    if plane_shape(y.shape, Layout.CHANNELS_FIRST if len(y.shape) == 4 else Layout.CHANNELS_LAST) is None:
        return f"rank {len(y.shape)}"
    return None


def broadcast_ok(shape: tuple[int, ...], out: tuple[int, ...], layout: Layout, const: bool) -> bool:
    """True if an operand of `shape` can be walked along `out`: channels match (constants are spread over lanes)."""
    full = (1,) * (len(out) - len(shape)) + tuple(shape)
    own, dims = plane_shape(full, layout), plane_shape(out, layout)
    if own is None or dims is None:
        return False
    if layout is Layout.CHANNELS_LAST and len(out) > 2 and full[:-2] != out[:-2] and int(np.prod(full[:-2])) != 1:
        return False
    return const or own[1] == dims[1]


def _add(graph: Graph, node: Node, config: NpuConfig) -> str | None:
    reason = _elementwise(graph, node, config)
    if reason is None and add_constants(graph, node) is None:
        if isinstance(node.quantized, QAdd) and node.quantized.constants is not None:
            return "the constants of this Add do not fit 24-bit multipliers and a 32-bit sum"
        return "no integer constants reproduce this Add on all operand pairs"
    return reason


def _mul(graph: Graph, node: Node, config: NpuConfig) -> str | None:
    """Mul rounds with the zero point inside; for uint8 the machine's zero point differs by 128, so prove it."""
    reason = _elementwise(graph, node, config)
    if reason is not None:
        return reason
    a, b, y = (graph.tensor(n) for n in (*node.inputs, node.outputs[0]))
    low, high = stored_limits(y, node)
    if node.attributes.get("zero_point_after"):  # the requantiser's own order, whatever the zero point
        return None
    if not mul_is_exact(_type(a), _type(b), _type(y), low, high):
        return "rounding inside uint8 differs from the machine's int8 for some operand pair"
    return None


@functools.lru_cache(maxsize=4096)
def mul_is_exact(
    a_type: tuple[float, int, int], b_type: tuple[float, int, int], y_type: tuple[float, int, int], low: int, high: int
) -> bool:
    """True if the requantiser equals `numerics.mul_reference` for all operand pairs (types as in `add_constants`)."""
    q = np.arange(-128, 128, dtype=np.int64)
    (sa, za, oa), (sb, zb, ob), (sy, zy, oy) = a_type, b_type, y_type
    expected = numerics.mul_reference(q[:, None] + oa, q[None, :] + ob, sa, za, sb, zb, sy, zy, low + oy, high + oy)
    product = (q[:, None] + oa - za) * (q[None, :] + ob - zb)
    scale = numerics.scale_bits(numerics.product_scale(sa, sb, sy))
    got = numerics.requantize(product, scale, zy - oy, low, high, Rounding.EVEN_ZERO_POINT_INSIDE)
    return bool(np.array_equal(got.astype(np.int64) + oy, expected))


def _pool(graph: Graph, node: Node, config: NpuConfig) -> str | None:
    x, y = graph.tensor(node.inputs[0]), graph.tensor(node.outputs[0])
    if x.dtype != y.dtype:
        return "input and output types differ"
    return _spatial(graph, node)


def _average(graph: Graph, node: Node, config: NpuConfig) -> str | None:
    kernel = node.attributes["kernel"]
    if node.attributes.get("half_away"):
        if half_away_factor(graph, node) is None:
            return f"no float32 factor divides by a window of {int(np.prod(kernel))} exactly"
    elif int(np.prod(kernel)) % 2 == 0:
        return f"even window of {int(np.prod(kernel))}: onnxruntime's float order decides ties"
    if any(node.attributes.get("pads", [0])):
        return "padding changes the divisor" if not node.attributes.get("count_include_pad") else "padded average"
    if any(d != 1 for d in node.attributes.get("dilations", [1])):
        return "dilated average"
    return _spatial(graph, node)


def half_away_factor(graph: Graph, node: Node) -> np.float32 | None:
    """The scale of an average with `half_away`, proven for every sum of its window."""
    x = graph.tensor(node.inputs[0])
    n = int(np.prod(node.attributes.get("kernel") or x.shape[2:]))
    return _half_away(n, x.dtype == np.uint8)


@functools.lru_cache(maxsize=256)
def _half_away(n: int, unsigned: bool) -> np.float32 | None:
    if n > 1 << 14:
        return None
    return numerics.half_away_scale(n, 0 if unsigned else -128 * n, (255 if unsigned else 127) * n)


def mean_rule(graph: Graph, node: Node) -> tuple[np.float32, Rounding] | None:
    """Factor and rounding of a mean with an `offset` (LiteRT's), proven for every sum."""
    x, y = graph.tensor(node.inputs[0]), graph.tensor(node.outputs[0])
    assert x.quant is not None and y.quant is not None
    info, zeros = np.iinfo(x.dtype), (int(x.quant.zero_point), int(y.quant.zero_point))
    return _mean_rule(int(np.prod(x.shape[2:])), float(node.attributes["factor"]), *zeros, int(info.min), int(info.max))


@functools.lru_cache(maxsize=256)
def _mean_rule(n: int, factor: float, zx: int, zy: int, low: int, high: int) -> tuple[np.float32, Rounding] | None:
    return None if n > 1 << 12 else numerics.litert_mean_on_machine(n, factor, zx, zy, low, high)


def _mean(graph: Graph, node: Node, config: NpuConfig) -> str | None:
    x = graph.tensor(node.inputs[0])
    if node.attributes["offset"] is not None and mean_rule(graph, node) is None:
        return f"no float32 factor gives LiteRT's mean of {int(np.prod(x.shape[2:]))} for every sum"
    if node.attributes.get("half_away") and half_away_factor(graph, node) is None:
        return f"no float32 factor divides by a window of {int(np.prod(x.shape[2:]))} exactly"
    if len(x.shape) not in (3, 4):
        return f"{len(x.shape) - 2} spatial axes; the NPU has 1 or 2"
    if int(np.prod(x.shape[2:])) > config.act_rows // 2 - 8:
        return f"plane of {int(np.prod(x.shape[2:]))} vectors does not fit half of ACT"
    return None


_NO_TABLES = "the machine has no tables"


def _lut(graph: Graph, node: Node, config: NpuConfig) -> str | None:
    if not config.table_lookup:
        return _NO_TABLES
    y = graph.tensor(node.outputs[0])
    return (
        None
        if plane_shape(y.shape, Layout.CHANNELS_FIRST if len(y.shape) == 4 else Layout.CHANNELS_LAST)
        else f"rank {len(y.shape)}"
    )


def _concat(graph: Graph, node: Node, config: NpuConfig) -> str | None:
    y = graph.tensor(node.outputs[0])
    rank, axis = len(y.shape), node.attributes["axis"] % len(y.shape)
    if rank != 4:
        return f"concatenation of rank {rank}"
    mapped = any(t is not None for t in node.attributes.get("tables") or [])
    if not config.table_lookup and (mapped or any(graph.tensor(n).dtype != y.dtype for n in node.inputs)):
        return _NO_TABLES
    for name in node.inputs:
        t = graph.tensor(name)
        if t.dtype not in EIGHT_BIT:
            return f"{name} is not int8 or uint8"
        if axis == 1 and name != node.inputs[-1] and t.shape[1] % config.block_in:
            return f"{t.shape[1]} channels of {name} are not a multiple of {config.block_in}"
    return None


_CHECKS = {
    "QConv": _conv,
    "QConvTranspose": _conv_transpose,
    "QMatMul": _matmul,
    "QAdd": _add,
    "QMul": _mul,
    "QMaxPool": _pool,
    "QAveragePool": _average,
    "QGlobalAveragePool": _mean,
    "QLut": _lut,
    "QConcat": _concat,
}
