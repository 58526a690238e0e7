"""The integer rule of linear Resize."""

from __future__ import annotations

import math

import numpy as np

from tilewright.compiler.graph.graph import Node
from tilewright.compiler.graph.ops.interpolate import Places, QInterpolate
from tilewright.compiler.graph.quantization import limits
from tilewright.compiler.graph.resampling import Resampling
from tilewright.compiler.passes.integer_rules.rule import integer_rule
from tilewright.compiler.passes.integer_rules.site import Site

_ONE = 1 << 11


@integer_rule("Resize")
def resize_linear(site: Site) -> list[Node] | None:
    """The rule of rows and columns whose scale is a power of two and stays. Then all float operations of onnxruntime
    are exact but the last rounding, which is to even. With any other scale earlier roundings decide the side of a tie
    on which a sum falls, and every 4 ** n-th sum is a tie.
    """
    x, node = site.activation(0), site.node
    if x is None or x.quant is None or x.dtype != site.out.dtype or not x.quant.same_as(site.out.quant):
        return None
    if not is_linear(node) or node.attrs.get("antialias") or len(x.shape) != 4:
        return None
    if math.frexp(float(x.quant.scale))[0] != 0.5 or (site.low, site.high) != limits(site.out.dtype):
        return None
    how = Resampling.of(site.graph, node)
    if how is None or how.crops or how.scales[:2] != (1.0, 1.0) or x.shape[:2] != site.out.shape[:2]:
        return None
    rows, columns = (_places(how, axis) for axis in (2, 3))
    if rows is None or columns is None or rows.one * columns.one > 1 << 14:  # products of two shares are exact
        return None
    return [site.make(QInterpolate(rows=rows, columns=columns, to_even=True), [x.name])]


def is_linear(node: Node) -> bool:
    return node.op == "Resize" and node.attrs.get("mode") == "linear"


def _places(how: Resampling, axis: int) -> Places | None:
    """The neighbours of every place, None where their shares are no multiples of 1 / 2048."""
    n = how.shape[axis]
    at = np.arange(n, dtype=np.float32) if how.scales[axis] == 1.0 else how.positions(axis)
    at = np.clip(at, 0, n - 1).astype(np.float64)
    first = np.floor(at).astype(np.int64)
    shares = (at - first) * _ONE
    if np.any(shares != np.floor(shares)):
        return None
    return Places.of(first, np.minimum(first + 1, n - 1), shares.astype(np.int64), _ONE)
