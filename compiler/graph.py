"""The compiler's graph: typed tensors with quantisation, and nodes in topological order.

Two vocabularies share the same `Node` class. Nodes with an ONNX op name (`Conv`, `Softmax`, ...) have ONNX
semantics at `Graph.opset`. Nodes with a name from `QUANTIZED_OPS` compute integers directly by the rules of
`isa.numerics`; `fuse_quantization` makes them, the NPU backend and the CPU kernels both implement them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from compiler.errors import CompileError

# Every operand and result below is int8 or uint8 with a `Quant`; shapes are ONNX's (NCHW, NCW, rows of K).
# `out_min`/`out_max` (attributes of the ops marked *) clamp in the output's own quantised units. The attribute `reason`
# says why the reference's rule is another one, so that results may be off by a step.
QUANTIZED_OPS: dict[str, str] = {
    "QConv": "* x [N,C,spatial], w const int8 [O,C/group,kernel], optional bias int32 [O]; kernel, strides, pads "
    "(all begins, then all ends), dilations, group",
    "QConvTranspose": "* as QConv with w [C,O/group,kernel]; also output_padding",
    "QMatMul": "* x [...,M,K], w [K,N] const int8 or activation [...,K,N], optional bias int32 [N]",
    "QAdd": "* a, b with broadcasting; by onnxruntime's float rule, or with the attribute constants {ma, mb, c, shift} "
    "(integers in the tensors' own types, the output's zero point inside c) `clamp((a*ma + b*mb + c) >> shift)`, which "
    "is LiteRT's",
    "QMul": "* a, b with broadcasting; the zero point is inside the rounding, with zero_point_after=1 (LiteRT) added "
    "after it",
    "QMaxPool": "x; kernel, strides, pads, dilations; padding never wins; same quantisation in and out",
    "QAveragePool": "* x; kernel, strides, pads, count_include_pad; with half_away=1 LiteRT's rule: the same "
    "quantisation in and out, sum of the stored integers / number of taps inside, ties away from zero",
    "QGlobalAveragePool": "* x [N,C,spatial] -> [N,C,1,1] or [N,C] (keepdims); factor: the float32 that the sum is "
    "multiplied with (default `mean_scale`), with offset (LiteRT) `RNE(f32(sum) * factor + offset)` of the stored "
    "integers, or half_away=1 as for QAveragePool",
    "QLut": "x; table uint8[256]: output byte for each input byte (both as raw bytes)",
    "QConcat": "xs; axis; tables: one uint8[256] per input or None where the bytes pass unchanged",
    "QSoftmax": "x; axis; correctly rounded softmax",
}


@dataclass(frozen=True)
class Quant:
    """Affine quantisation: real = scale * (q - zero_point).

    Attributes:
        scale: float32, shape () per tensor or [C] per channel along `axis`.
        zero_point: int32, same shape as `scale`.
        axis: channel axis, or None per tensor.
    """

    scale: np.ndarray
    zero_point: np.ndarray
    axis: int | None = None

    @staticmethod
    def of(scale: Any, zero_point: Any = 0, axis: int | None = None) -> Quant:
        s = np.asarray(scale, np.float32)
        z = np.broadcast_to(np.asarray(zero_point).astype(np.int32), s.shape).copy()
        return Quant(s, z, axis if s.ndim else None)

    @property
    def per_tensor(self) -> bool:
        return self.scale.ndim == 0

    def same_as(self, other: Quant | None) -> bool:
        return (
            other is not None
            and self.axis == other.axis
            and np.array_equal(self.scale, other.scale)
            and np.array_equal(self.zero_point, other.zero_point)
        )


@dataclass
class Tensor:
    """A value of the graph. `shape` is concrete once `infer_shapes` has run; constants carry `data`."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    data: np.ndarray | None = None
    quant: Quant | None = None

    @property
    def is_const(self) -> bool:
        return self.data is not None

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize


@dataclass
class Node:
    """One operation. Missing optional inputs are the empty string, as in ONNX. `origin` names the source nodes."""

    op: str
    inputs: list[str]
    outputs: list[str]
    attrs: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    origin: tuple[str, ...] = ()

    def __str__(self) -> str:
        attrs = ", ".join(f"{k}={_short(v)}" for k, v in sorted(self.attrs.items()))
        return f"{', '.join(self.outputs)} = {self.op}({', '.join(self.inputs)}){' {' + attrs + '}' if attrs else ''}"


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray) and value.size > 8:
        return f"<{value.dtype}{list(value.shape)}>"
    return str(value.tolist() if isinstance(value, np.ndarray) else value)


class Graph:
    """Nodes in topological order over named tensors.

    Args:
        name: model name, for messages and reports.
        opset: version of the default ONNX domain.
    """

    def __init__(self, name: str = "graph", opset: int = 21) -> None:
        self.name = name
        self.opset = opset
        self.tensors: dict[str, Tensor] = {}
        self.nodes: list[Node] = []
        self.inputs: list[str] = []
        self.outputs: list[str] = []
        self._serial = 0

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def tensor(self, name: str) -> Tensor:
        return self.tensors[name]

    def unique(self, stem: str) -> str:
        """A tensor name not yet in the graph, starting with `stem`."""
        while True:
            self._serial += 1
            name = f"{stem}.{self._serial}"
            if name not in self.tensors:
                return name

    def add(self, tensor: Tensor) -> Tensor:
        self.tensors[tensor.name] = tensor
        return tensor

    def constant(self, stem: str, data: np.ndarray, quant: Quant | None = None) -> str:
        """Adds a constant under a fresh name and returns the name."""
        name = self.unique(stem)
        self.add(Tensor(name, tuple(data.shape), data.dtype, data, quant))
        return name

    def producers(self) -> dict[str, Node]:
        return {out: node for node in self.nodes for out in node.outputs if out}

    def consumers(self) -> dict[str, list[Node]]:
        users: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                if name:
                    users.setdefault(name, []).append(node)
        return users

    def const(self, name: str) -> np.ndarray | None:
        """The value of a constant tensor, None for anything else (also for a missing optional input)."""
        return self.tensors[name].data if name in self.tensors else None

    def replace_uses(self, old: str, new: str, nodes: Iterable[Node] | None = None) -> None:
        """Makes every reader of `old` read `new`. Graph outputs keep their names and are not touched."""
        for node in self.nodes if nodes is None else nodes:
            node.inputs = [new if i == old else i for i in node.inputs]

    def prune(self) -> None:
        """Drops nodes whose results nobody needs and tensors nobody names."""
        needed = set(self.outputs)
        kept: list[Node] = []
        for node in reversed(self.nodes):
            if any(o in needed for o in node.outputs):
                kept.append(node)
                needed.update(i for i in node.inputs if i)
                needed.update(o for o in node.outputs if o)
        self.nodes = kept[::-1]
        needed.update(self.inputs)
        self.tensors = {k: t for k, t in self.tensors.items() if k in needed}

    def verify(self, after: str = "") -> None:
        """Checks order, single assignment, known tensors and constant shapes.

        Raises:
            CompileError: naming the pass `after` which the graph is broken; always a compiler bug.
        """
        where = f"graph broken after {after}: " if after else "graph broken: "
        ready = set(self.inputs) | {n for n, t in self.tensors.items() if t.is_const}
        for node in self.nodes:
            for name in node.inputs:
                if name and name not in ready:
                    raise CompileError(f"{where}{node.op} {node.name!r} reads {name!r} before it is made")
            for name in node.outputs:
                if not name:
                    continue
                if name in ready:
                    raise CompileError(f"{where}{name!r} is assigned twice")
                if name not in self.tensors:
                    raise CompileError(f"{where}{node.op} {node.name!r} writes unknown tensor {name!r}")
                ready.add(name)
        for name in self.outputs:
            if name not in ready:
                raise CompileError(f"{where}output {name!r} is never made")
        for t in self.tensors.values():
            if t.data is not None and (tuple(t.data.shape) != t.shape or t.data.dtype != t.dtype):
                raise CompileError(
                    f"{where}constant {t.name!r} is {t.data.dtype}{t.data.shape}, not {t.dtype}{t.shape}"
                )

    def __str__(self) -> str:
        def typed(name: str) -> str:
            t = self.tensors[name]
            q = ""
            if t.quant is not None:
                q = (
                    f" q({float(t.quant.scale):.6g},{int(t.quant.zero_point)})"
                    if t.quant.per_tensor
                    else f" q(per-channel axis {t.quant.axis})"
                )
            return f"{name}: {t.dtype}{list(t.shape)}{q}"

        lines = [f"graph {self.name} (opset {self.opset})"]
        lines += [f"  in  {typed(n)}" for n in self.inputs]
        lines += [f"  {node}  -> {', '.join(typed(o) for o in node.outputs if o)}" for node in self.nodes]
        lines += [f"  out {typed(n)}" for n in self.outputs]
        return "\n".join(lines)
