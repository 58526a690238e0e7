"""`Context`: from nodes to stages. Which values are computed inside their consumer's loop, which get memory.

A `Value` starts lazy: a function from an output index to an expression. A consumer that reads it once per element calls
that function, which is the fusion: Dequantize -> op -> Quantize becomes one loop. A value is given memory
(`Context.buffer`) when several readers would repeat much work, when an operator needs its operand in memory, or when it
leaves the segment. Convolutions and matmuls give *accumulator* values: an expression of one at its own index becomes
the epilogue of the micro-kernel's tile.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from tilewright.compiler.cpu.expr import (
    Assignment,
    Buffer,
    Expr,
    Index,
    Rewriter,
    Var,
    const,
    dtype_of,
    linear,
    load,
    unravel,
    walk,
)
from tilewright.compiler.cpu.expr.small_types import NUMPY, number_of
from tilewright.compiler.cpu.loops.function import Function
from tilewright.compiler.cpu.schedule import GemmSchedule, Schedules
from tilewright.compiler.cpu.stages.stage import KernelStage, LoopStage, Stage
from tilewright.compiler.cpu.stages.value import ElementFn, Value
from tilewright.compiler.cpu.target import Target
from tilewright.compiler.errors import UnsupportedError
from tilewright.compiler.graph.graph import Graph, Node

CHEAP = 2  # work per element up to which a value is recomputed rather than stored
MAX_COST = 120  # work per element above which a chain is cut, so that loops stay vectorisable
BAKE_BYTES = 4096  # constants up to this size live in the object


class PackedConstants:
    """Constants made for kernels, by content: equal ones of a graph are one tensor of it.

    Args:
        graph: the graph that receives them.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._names: dict[tuple[str, str], str] = {}

    def name(self, stem: str, data: np.ndarray) -> str:
        """The name of the tensor that holds `data`; a new one is called after `stem`."""
        content = np.ascontiguousarray(data)
        key = stem, hashlib.sha256(content.tobytes() + str((data.dtype, data.shape)).encode()).hexdigest()
        if self._names.get(key) not in self.graph.tensors:
            self._names[key] = self.graph.constant(stem, content)
        return self._names[key]


class Context:
    """State of compiling one segment: the inputs of operators' rules, and the values and stages that they make.

    Args:
        graph: holds the tensors.
        nodes: nodes of the segment.
        outputs: tensors wanted by others.
        target: machine to compile for.
        dry: only check that everything is supported; large constants are not packed.
        schedules: schedules of the kernels.
        packed: receives constants made for kernels.
        in_place: outputs whose memory already holds the tensor that their op updates.
    """

    def __init__(
        self,
        graph: Graph,
        nodes: Sequence[Node],
        outputs: Sequence[str],
        target: Target,
        dry: bool = False,
        schedules: Schedules | None = None,
        packed: PackedConstants | None = None,
        in_place: Collection[str] = (),
    ) -> None:
        self.in_place = in_place
        self.graph, self.target, self.dry = graph, target, dry
        self.schedules = schedules or Schedules()
        self.packed = packed or PackedConstants(graph)
        self.outputs = set(outputs)
        self.uses = Counter(i for node in nodes for i in node.inputs if i)
        self.values: dict[str, Value] = {}
        self.stages: list[Stage] = []
        self.consts: dict[str, Buffer] = {}
        self.output_buffers: dict[str, Buffer] = {}
        self.node = nodes[0] if nodes else Node("", [], [])
        self.computed: list[list[Node]] = []  # by every stage
        self._met: dict[str, Node] = {}  # by first output, since the last stage
        self._makers: dict[Value, Node] = {}

    # Methods for reading operands.

    def unsupported(self, what: str, supported: str) -> UnsupportedError:
        n = self.node
        return UnsupportedError(f"{n.op} {n.name or n.outputs[0]!r}: {what}; supported: {supported}")

    def has(self, i: int) -> bool:
        return len(self.node.inputs) > i and bool(self.node.inputs[i])

    def attr(self, name: str, default: Any = None) -> Any:
        return self.node.attributes.get(name, default)

    def ints(self, name: str, default: Sequence[int] = ()) -> list[int]:
        v = self.node.attributes.get(name)
        return list(default) if v is None else [int(x) for x in v]

    def const_input(self, i: int) -> np.ndarray | None:
        """The value of a constant input, None if the input is missing; raises an error if it is not constant."""
        if not self.has(i):
            return None
        data = self.graph.const(self.node.inputs[i])
        if data is None:
            raise self.unsupported(f"input {i} ({self.node.inputs[i]!r}) is not constant", "a constant")
        return data

    def axis(self, default: int | None, rank: int, name: str = "axis") -> int:
        a = int(self.attr(name, default))
        return a + rank if a < 0 else a

    def inputs(self) -> list[Value]:
        return [self.value(n) for n in self.node.inputs if n]

    def input(self, i: int = 0) -> Value:
        return self.value(self.node.inputs[i])

    def value(self, name: str) -> Value:
        if name not in self.values:
            t = self.graph.tensors[name]
            dtype = self.dtype(name)
            if t.data is None:
                self.values[name] = Value(t.shape, dtype, Buffer(name, dtype, t.size, "input"))
            else:
                self.values[name] = self.constant(t.data, name)
        return self.values[name]

    def dtype(self, name: str) -> str:
        dtype = dtype_of(self.graph.tensors[name].dtype)
        if dtype is None:
            raise self.unsupported(f"{name!r} is {self.graph.tensors[name].dtype}", "numbers and bool")
        return dtype

    def shape(self, name: str) -> tuple[int, ...]:
        shape = self.graph.tensors[name].shape
        if shape is None or any(not isinstance(n, (int, np.integer)) or n < 0 for n in shape):
            raise self.unsupported(f"shape of {name!r} is {shape}", "static shapes")
        return tuple(int(n) for n in shape)

    def out_shape(self, i: int = 0) -> tuple[int, ...]:
        return self.shape(self.node.outputs[i])

    def out_dtype(self, i: int = 0) -> str:
        return self.dtype(self.node.outputs[i])

    def constant(self, data: np.ndarray, name: str | None = None, stem: str = "packed") -> Value:
        """A constant as a value: folded when it is one element, baked when small, else passed by pointer.

        Without `name` a large constant becomes a new tensor of the graph.
        """
        dtype = dtype_of(data.dtype)
        if dtype is None:
            raise self.unsupported(f"constant of type {data.dtype}", "numbers and bool")
        shape = tuple(data.shape)
        if data.size == 1:
            v = number_of(data) if dtype in NUMPY or dtype == "bf16" else data.reshape(()).item()
            return Value(shape, dtype, fn=lambda idx: const(v, dtype))
        if data.nbytes <= BAKE_BYTES or self.dry:
            return Value(shape, dtype, Buffer("", dtype, data.size, "baked", data))
        if name is None:
            name = self.packed.name(stem, data)
        buffer = self.consts.setdefault(name, Buffer(name, dtype, data.size, "const", data))
        return Value(shape, dtype, buffer)

    def read(self, v: Value, idx: Sequence[Index]) -> Expr:
        """The element of `v` at `idx`."""
        if v.buffer is not None:
            return load(v.buffer, linear(idx, v.shape))
        if v.acc is not None:
            return Expr("acc", (), v.dtype, (v, tuple(Index.of(i) for i in idx)))
        assert v.fn is not None
        return v.fn([Index.of(i) for i in idx])

    def read_broadcast(self, v: Value, idx: Sequence[Index]) -> Expr:
        """The element of `v` at `idx` with numpy broadcasting to the rank of `idx`."""
        idx = idx[len(idx) - v.rank :]
        return self.read(v, [Index(0) if n == 1 else i for i, n in zip(idx, v.shape)])

    # Methods for making results.

    def define(self, shape: Sequence[int], dtype: str, fn: ElementFn, cost: int, out: int = 0) -> Value:
        """Defines output `out` of the current node, computed element by element by `fn`."""
        return self.bind(Value(tuple(shape), dtype, fn=self._as_node(fn), cost=cost), out)

    def _as_node(self, fn: ElementFn) -> ElementFn:
        """Wraps `fn` to read attributes of the node that defines it, also when it is evaluated inside a later one."""
        node = self.node

        def evaluate(idx: list[Index]) -> Expr:
            current, self.node = self.node, node
            self._met[node.outputs[0]] = node
            try:
                return fn(idx)
            finally:
                self.node = current

        return evaluate

    def bind(self, v: Value, out: int = 0) -> Value:
        """Makes `v` the current node's output `out`."""
        if out >= len(self.node.outputs) or not self.node.outputs[out]:
            return v
        name = self.node.outputs[out]
        v.label = v.label or self.node.op
        self._makers.setdefault(v, self.node)
        self.values[name] = v
        want = self.shape(name)
        if tuple(v.shape) != want:
            raise self.unsupported(f"result has shape {v.shape}, the graph says {want}", "consistent shapes")
        if name in self.outputs:
            self.output(name, v)
        elif (self.uses[name] > 1 and v.cost > CHEAP) or v.cost > MAX_COST:
            self.buffer(v)
        return v

    def output(self, name: str, v: Value) -> None:
        if v.buffer is not None and v.buffer.role == "temp" and v.buffer.size == v.size and not v.buffer.pinned:
            v.buffer.role, v.buffer.name = "output", name
            self.output_buffers[name] = v.buffer
            return
        target = Buffer(name, v.dtype, v.size, "output")
        self.output_buffers[name] = target
        self._store(v, target)

    def lazy(self, shape: Sequence[int], dtype: str, fn: ElementFn, cost: int = 1) -> Value:
        return Value(tuple(shape), dtype, fn=self._as_node(fn), cost=cost, label=self.node.op)

    def temp(self, shape: Sequence[int], dtype: str) -> Value:
        """Allocates memory in the workspace."""
        size = int(np.prod(shape, dtype=np.int64))
        return Value(tuple(shape), dtype, Buffer("", dtype, size, "temp"), label=self.node.op)

    def buffer(self, v: Value) -> Buffer:
        """The memory that holds `v`, which is computed now if it has none yet."""
        if v.buffer is None:
            self._store(v, Buffer("", v.dtype, v.size, "temp"))
        assert v.buffer is not None
        return v.buffer

    def stored(self, v: Value) -> Value:
        self.buffer(v)
        return v

    def assign(self, out: Value, variables: list[Var], body: Expr, at: Sequence[Index] | None = None) -> None:
        """Adds a stage for `out[at] = body` over the variables' domain; `at` defaults to the variables."""
        assert out.buffer is not None
        idx = [Index.of(v) for v in variables] if at is None else at
        self.assign_all([Assignment(variables, body, out.buffer, linear(idx, out.shape))])

    def assign_all(self, parts: Sequence[Assignment], label: str = "") -> None:
        """Adds the assignments as one loop stage where they are not computed with an accumulator."""
        label = label or self.node.op
        self._met[self.node.outputs[0]] = self.node
        plain = []
        for part in parts:
            fused, part = self._settled(part)
            if fused is not None:
                self._stage_fused(fused, part, label)
            else:
                plain.append(part)
        if plain:
            self.add_stage(LoopStage(label, plain))

    def _settled(self, what: Assignment) -> tuple[Value | None, Assignment]:
        """The accumulator that an assignment is computed with, if any; all others are stored and read from memory."""
        met, self._met = self._met, {}  # what is stored for it are stages of their own
        fused = self._resolve(what.variables, what.body)
        settled = what._replace(body=self._settle(what.body))
        self._met = met
        return fused, settled

    def _stage_fused(self, fused: Value, what: Assignment, label: str) -> None:
        assert fused.acc is not None
        maker = self._makers.get(fused, self.node)
        self._met = {maker.outputs[0]: maker} | self._met
        self.add_stage(fused.acc.stage(fused, what, label, self.target))

    def _resolve(self, variables: list[Var], body: Expr) -> Value | None:
        """The accumulator `body` can be the epilogue of; all others are stored now."""
        shape = tuple(v.extent for v in variables)
        waiting = [e for e in walk(body) if e.op == "acc"]
        own = [e for e in waiting if e.value[0].shape == shape and _same_index(e.value[1], variables)]
        fused = own[-1].value[0] if own else None
        if any(e.value[0] is fused and e not in own for e in waiting) or any(e.op == "reduce" for e in walk(body)):
            fused = None
        for e in waiting:
            if e.value[0] is not fused:
                self.buffer(e.value[0])
        return fused if fused is not None and fused.buffer is None else None

    def _settle(self, body: Expr) -> Expr:
        """Replaces accumulators that have memory by now with reads."""

        def settle(e: Expr) -> Expr | None:
            return self.read(e.value[0], e.value[1]) if e.op == "acc" and e.value[0].buffer is not None else None

        return Rewriter({}, settle)(body) if any(e.op == "acc" for e in walk(body)) else body

    def gemm_schedule(self, kind: str, m: int, k: int, columns: Sequence[int], details: str = "") -> GemmSchedule:
        """The schedule of a product [m, k] x [k, columns]."""
        shape = f"m{m} k{k} n{'x'.join(map(str, columns))}"
        return self.schedules.get(f"{kind} {shape} {details}".strip(), GemmSchedule.default(self.target))

    def kernel(
        self, write: Callable[[Function], None], temps: Sequence[Value] = (), label: str = "", threaded: bool = False
    ) -> None:
        """Adds a stage whose kernel the rule writes itself, `threaded` if it divides its work among the threads."""
        buffers = [t.buffer for t in temps if t.buffer is not None]
        self.add_stage(KernelStage(label or self.node.op, write, buffers, threaded))

    def add_stage(self, stage: Stage) -> None:
        """Appends a stage, which computes the nodes evaluated since the one before."""
        self.stages.append(stage)
        self.computed.append([*self._met.values()] or [self.node])
        self._met = {}

    def _store(self, v: Value, target: Buffer) -> None:
        variables = v.vars()
        idx = [Index.of(x) for x in variables]
        label = v.label or self.node.op
        fused, what = self._settled(Assignment(variables, self.read(v, idx), target, linear(idx, v.shape)))
        if fused is not None:
            self._stage_fused(fused, what, label)
        else:
            self.add_stage(LoopStage(label, [what]))
        v.buffer = target

    def alias(self, v: Value, shape: Sequence[int], out: int = 0) -> None:
        """Makes output `out` the value `v` with another shape: the same memory where possible."""
        shape = tuple(shape)
        if v.buffer is None and [n for n in v.shape if n != 1] == [n for n in shape if n != 1]:
            keep = [k for k, n in enumerate(shape) if n != 1]

            def squeezed(idx: list[Index]) -> Expr:
                rest = iter([idx[k] for k in keep])
                return self.read(v, [Index(0) if n == 1 else next(rest) for n in v.shape])

            self.define(shape, v.dtype, squeezed, v.cost, out)
            return
        if v.buffer is None and v.acc is None and v.cost <= CHEAP and v.fn is not None:
            self.define(shape, v.dtype, lambda idx: self.read(v, unravel(linear(idx, shape), v.shape)), v.cost, out)
            return
        self.bind(Value(shape, v.dtype, self.buffer(v)), out)


def _same_index(at: Sequence[Index], variables: Sequence[Var]) -> bool:
    return all(v.extent == 1 or i == Index.of(v) for i, v in zip(at, variables))
