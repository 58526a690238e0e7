"""The compiler's graph: nodes in topological order over named tensors.

Two vocabularies share the `Node` class. Nodes with an ONNX op name (`Conv`, `Softmax`, ...) have ONNX semantics at
`Graph.opset` and their attributes in a dictionary. Nodes with a `QuantizedOp` compute integers directly by the rules of
`tilewright.isa.numerics`; the front end's passes and the TFLite importer make them, the NPU and the CPU kernels both
run them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec import Struct

from tilewright.compiler.errors import CompileError
from tilewright.compiler.graph.macs import macs_of
from tilewright.compiler.graph.ops import QUANTIZED_OPS, QuantizedOp
from tilewright.compiler.graph.tensor import Quant, Tensor
from tilewright.isa.program import Window


@dataclass
class Node:
    """An operation of a graph.

    Attributes:
        op: name of the ONNX op or of the quantised op.
        inputs: names of tensors; missing optional inputs are the empty string, as in ONNX.
        attrs: attributes of an ONNX op.
        name: name for messages and reports.
        origin: names of the model's nodes it was made from.
        quantized: the quantised op with its attributes, None for ONNX ops.
    """

    op: str
    inputs: list[str]
    outputs: list[str]
    attrs: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    origin: tuple[str, ...] = ()
    quantized: QuantizedOp | None = None

    @staticmethod
    def of(
        op: QuantizedOp, inputs: list[str], outputs: list[str], name: str = "", origin: tuple[str, ...] = ()
    ) -> Node:
        """Makes a node with a quantised op."""
        return Node(op.name, inputs, outputs, {}, name, origin, op)

    def become(self, op: str, inputs: list[str], attrs: Mapping[str, Any] | None = None) -> None:
        """Turns the node into an ONNX op with the same outputs, name and origin."""
        self.op, self.inputs, self.attrs, self.quantized = op, inputs, dict(attrs or {}), None

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The attributes by name, of either vocabulary: for kernels that an ONNX op shares with its quantised form."""
        return self.attrs if self.quantized is None else vars(self.quantized)

    @property
    def reason(self) -> str:
        """The reason why the reference has another rule, so results may be off by a step; empty if they may not."""
        return "" if self.quantized is None else self.quantized.reason

    def __str__(self) -> str:
        pairs = [(k, _short(v)) for k, v in sorted(self.attrs.items())]
        pairs += [] if self.quantized is None else self.quantized.attributes()
        attrs = ", ".join(f"{k}={v}" for k, v in pairs)
        return f"{', '.join(self.outputs)} = {self.op}({', '.join(self.inputs)}){' {' + attrs + '}' if attrs else ''}"


def needed_nodes(nodes: Sequence[Node], needed: set[str]) -> list[Node]:
    """The nodes, in their order, that make the tensors `needed`, which gets all that these nodes read and make."""
    kept: list[Node] = []
    for node in reversed(nodes):
        if not needed.isdisjoint(node.outputs):
            kept.append(node)
            needed.update(name for name in (*node.inputs, *node.outputs) if name)
    return kept[::-1]


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray) and value.size > 8:
        return f"<{value.dtype}{list(value.shape)}>"
    return str(value.tolist() if isinstance(value, np.ndarray) else value)


@dataclass(frozen=True)
class State:
    """A value that lives from one run to the next.

    Attributes:
        name: name for people.
        begin: the graph's input with the value that a run begins with.
        end: the graph's output with the value that the next run begins with.
        initial: the value that the first run begins with.
        plain: the tensor that has the value as the model has it where `begin` and `end` are its blocks of lanes; else
            "".
        shape: shape of the value in the model, where heads lie side by side in blocks of lanes; else ().
    """

    name: str
    begin: str
    end: str
    initial: np.ndarray
    plain: str = ""
    shape: tuple[int, ...] = ()


class DroppedChannels(Struct, frozen=True):
    """Channels of products that need not be computed, for the program's notes.

    Attributes:
        constant: number of channels that are constant for every input.
        unread: number of others that were dropped.
        channels: number of all.
        macs_before, macs: multiply-accumulates of the graph with and without what was dropped.
    """

    constant: int
    unread: int
    channels: int
    macs_before: int
    macs: int


class Graph:
    """A model under compilation: nodes in topological order over named tensors.

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
        self.states: list[State] = []
        self.rising: frozenset[str] = frozenset()  # integer inputs whose values are one more from each to the next
        self.windows: list[Window] = []  # of the program's other entry points
        self.limits: dict[str, tuple[int, int]] = {}  # lowest and highest an integer tensor may be, as imported
        self.metadata: dict[str, str] = {}  # of the model, for users of the program
        self.notes: list[str] = []  # of the importer, for the program's
        self.dropped: DroppedChannels | None = None  # channels that are not computed
        self.floats: dict[str, str] = {}  # why an op between quantised tensors has no integers, by node of the model
        self._serial = 0
        self._invented: set[str] = set()

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
                self._invented.add(name)
                return name

    def is_invented(self, name: str) -> bool:
        """True if the name was made by `unique`, and is not of a tensor of the model."""
        return name in self._invented

    @property
    def serial(self) -> int:
        """The number of names that `unique` made or passed over."""
        return self._serial

    def resume(self, serial: int, invented: set[str]) -> None:
        """Continues the names of `unique` where another graph, of which this is a copy, stopped."""
        self._serial, self._invented = serial, set(invented)

    def add(self, tensor: Tensor) -> Tensor:
        self.tensors[tensor.name] = tensor
        return tensor

    def constant(self, stem: str, data: np.ndarray, quant: Quant | None = None) -> str:
        """Adds a constant under a fresh name and returns the name."""
        name = self.unique(stem)
        self.add(Tensor(name, tuple(data.shape), data.dtype, data, quant))
        return name

    def like(self, tensor: Tensor, stem: str, shape: tuple[int, ...] | None = None) -> str:
        """Adds a tensor with the type and scale of another under a fresh name and returns the name.

        Args:
            shape: shape of the tensor, by default that of the other.
        """
        name = self.unique(stem)
        self.add(Tensor(name, tensor.shape if shape is None else shape, tensor.dtype, None, tensor.quant))
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

    def prune(self) -> None:
        """Drops nodes whose results have no reader and tensors without a node."""
        needed = set(self.outputs)
        self.nodes = needed_nodes(self.nodes, needed)
        needed.update(self.inputs)
        self.tensors = {k: t for k, t in self.tensors.items() if k in needed}

    def verify(self, after: str = "") -> None:
        """Checks order, single assignment, known tensors, constant shapes and the quantised ops.

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
            error = self._quantized_error(node)
            if error is not None:
                raise CompileError(f"{where}{node.op} {node.name!r}: {error}")
        for name in self.outputs:
            if name not in ready:
                raise CompileError(f"{where}output {name!r} is never made")
        for t in self.tensors.values():
            if t.data is not None and (tuple(t.data.shape) != t.shape or t.data.dtype != t.dtype):
                raise CompileError(
                    f"{where}constant {t.name!r} is {t.data.dtype}{t.data.shape}, not {t.dtype}{t.shape}"
                )

    def macs(self, node: Node) -> int:
        """The multiply-accumulates of a node, for the reports; 0 for ops that are no products."""
        operands, result = self.operands(node), self.tensors[next(name for name in node.outputs if name)]
        if node.quantized is not None:
            return node.quantized.macs(operands, result)
        shapes = [() if t is None else t.shape for t in operands]
        weights = operands[1].data if len(operands) > 1 and operands[1] is not None else None
        return macs_of(node.op, node.attrs, shapes, result.size, weights)

    def operands(self, node: Node) -> list[Tensor | None]:
        """The tensors a node reads, None for missing optional ones."""
        return [self.tensors[name] if name else None for name in node.inputs]

    def _quantized_error(self, node: Node) -> str | None:
        if node.quantized is None:
            return "a quantised op without its attributes" if node.op in QUANTIZED_OPS else None
        if node.op != node.quantized.name or node.attrs:
            return f"named {node.op}, with attributes {sorted(node.attrs)}, but it is {node.quantized}"
        if len(node.outputs) != 1:
            return f"{len(node.outputs)} results; quantised ops have one"
        return node.quantized.check(self.operands(node), self.tensors[node.outputs[0]])

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


__all__ = ["QUANTIZED_OPS", "DroppedChannels", "Graph", "Node", "Quant", "State", "Tensor"]
