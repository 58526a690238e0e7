"""What the quantisation passes share: reading scales off Q/DQ nodes, and the float32 rules of the tables.

quantize(x)   = sat(RNE(f32(x / s)) + z)            s, x float32
dequantize(q) = f32(f32(q - z) * s)
"""

from __future__ import annotations

import numpy as np

from compiler.graph import Graph, Node, Quant, Tensor

EIGHT_BIT = (np.dtype(np.int8), np.dtype(np.uint8))


def quant_of(graph: Graph, node: Node) -> Quant | None:
    """Scale and zero point of a QuantizeLinear or DequantizeLinear; None where they are not constant or not affine."""
    if node.op not in ("QuantizeLinear", "DequantizeLinear") or node.attrs.get("block_size"):
        return None
    scale, zero = graph.const(node.inputs[1]), graph.const(node.inputs[2])
    if scale is None or zero is None or scale.dtype != np.float32 or zero.dtype.kind not in "iu" or scale.ndim > 1:
        return None
    axis = int(node.attrs.get("axis", 1))
    rank = len(graph.tensor(node.inputs[0]).shape)
    return Quant.of(scale, zero, axis % rank if scale.ndim and rank else None)


def annotate(graph: Graph) -> None:
    """Sets `quant` on every tensor a Q writes or a DQ reads.

    A constant dequantised in several ways becomes one constant for each. Another tensor read with two meanings keeps
    the first; its other readers stay float.
    """
    for node in graph:
        quant = quant_of(graph, node)
        if quant is None:
            continue
        tensor = graph.tensor(node.outputs[0] if node.op == "QuantizeLinear" else node.inputs[0])
        if tensor.quant is None:
            tensor.quant = quant
        elif tensor.data is not None and not quant.same_as(tensor.quant):
            node.inputs[0] = graph.constant(tensor.name, tensor.data, quant)


def is_activation(tensor: Tensor | None) -> bool:
    """True for an 8-bit tensor with one scale."""
    return tensor is not None and tensor.dtype in EIGHT_BIT and tensor.quant is not None and tensor.quant.per_tensor


def limits(dtype: np.dtype) -> tuple[int, int]:
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def quantize(x: np.ndarray, quant: Quant, dtype: np.dtype) -> np.ndarray:
    """float32 -> 8 bit, per tensor. NaN becomes the lower limit, as the saturating conversion of x86 does."""
    low, high = limits(dtype)
    with np.errstate(all="ignore"):
        rounded = np.rint(np.asarray(x, np.float32) / np.float32(quant.scale)) + np.float32(quant.zero_point)
        rounded = np.where(np.isnan(rounded), np.float32(low), rounded)
        return np.clip(rounded, low, high).astype(dtype)


def dequantize(q: np.ndarray, quant: Quant) -> np.ndarray:
    """8 bit -> float32, per tensor."""
    return ((q.astype(np.int32) - quant.zero_point).astype(np.float32) * quant.scale).astype(np.float32)


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Correctly rounded float32 a*b+c.

    The product of two float32 is exact in float64; the sum is rounded to odd there, so that rounding it once more to
    float32 cannot go wrong.
    """
    p = np.asarray(a, np.float64) * np.asarray(b, np.float64)
    q = np.broadcast_to(np.asarray(c, np.float64), np.broadcast_shapes(p.shape, np.shape(c)))
    s = p + q
    t = s - p
    error = (p - (s - t)) + (q - t)  # s + error is the exact sum
    odd = (s.view(np.int64) & 1).astype(bool) if s.ndim else bool(s[None].view(np.int64)[0] & 1)
    toward = np.nextafter(s, np.where(error > 0, np.inf, -np.inf))
    return np.where((error != 0) & ~odd & np.isfinite(s), toward, s).astype(np.float32)


def add_rule(a: np.ndarray, qa: Quant, b: np.ndarray, qb: Quant, qy: Quant, dtype: np.dtype) -> np.ndarray:
    """onnxruntime's QLinearAdd: ra = sa/sy, rb = sb/sy, RNE(fma(a, ra, fma(b, rb, zy - fma(ra, za, rb*zb))))."""
    ra, rb = np.float32(qa.scale / qy.scale), np.float32(qb.scale / qy.scale)
    za, zb, zy = (np.float32(q.zero_point) for q in (qa, qb, qy))
    fixed = np.float32(zy - fma(ra, za, np.float32(rb * zb)))
    value = fma(a.astype(np.float32), ra, fma(b.astype(np.float32), rb, fixed))
    return np.clip(np.rint(value), *limits(dtype)).astype(dtype)


def mul_rule(a: np.ndarray, qa: Quant, b: np.ndarray, qb: Quant, qy: Quant, dtype: np.dtype) -> np.ndarray:
    """onnxruntime's QLinearMul: RNE(f32(f32((a-za)*(b-zb)) * f32(f32(sa*sb)/sy)) + zy)."""
    scale = np.float32(np.float32(qa.scale * qb.scale) / qy.scale)
    product = (a.astype(np.int32) - qa.zero_point) * (b.astype(np.int32) - qb.zero_point)
    value = product.astype(np.float32) * scale + np.float32(qy.zero_point)
    return np.clip(np.rint(value), *limits(dtype)).astype(dtype)


def requantize_table(source: Quant, source_dtype: np.dtype, target: Quant, target_dtype: np.dtype) -> np.ndarray:
    """uint8[256]: byte of the target for each byte of the source, by dequantise then quantise."""
    every = np.arange(256, dtype=np.uint8).view(source_dtype)
    return quantize(dequantize(every, source), target, target_dtype).view(np.uint8)
