"""Graphs of a dynamic model as items to run: compiled parts, and calls of the host between them."""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import onnx

from tilewright.compiler.errors import UnsupportedError
from tilewright.compiler.graph.graph import Graph
from tilewright.compiler.importer.onnx.bounded import BOUNDED_OPS, bounded_form
from tilewright.compiler.importer.onnx.part import Cut, import_part
from tilewright.compiler.onnx.onnx_graphs import reads_of
from tilewright.compiler.onnx.onnx_ops import Evaluator, attribute_value, dense_of
from tilewright.dynamic.host import HOST, HostNode
from tilewright.dynamic.host.moves import BY_VALUE
from tilewright.dynamic.programs import PartPrograms
from tilewright.dynamic.values import Value, describe, from_proto, is_number
from tilewright.isa.device import Counters
from tilewright.isa.program import Program
from tilewright.runtime.devices import Runner

_STANDARD = ("", "ai.onnx")
_CONTROL = {"If", "Loop", "Scan", "SequenceMap"}
_MOST_PINNED = 1 << 16  # elements of a value that programs are made for
_MOST_KEYS = 1 << 14  # combinations of shapes and values remembered


@dataclass
class ModelRun:
    """One run of a dynamic model: its runner, options and counters.

    Attributes:
        options: for the device.
        programs, seconds: those that ran, and the wall time of each.
    """

    runner: Runner
    options: dict[str, Any]
    counters: list[Counters] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    programs: list[Program] = field(default_factory=list)


class Item(Protocol):
    """A piece of a body.

    Attributes:
        reads: names it takes, constants of the model not among them.
        makes: names it can make; `writes` those that are wanted.
        drops: names nobody needs after it.
    """

    reads: list[str]
    makes: list[str]
    writes: list[str]
    drops: list[str]

    def run(self, run: ModelRun, scope: Scope) -> Mapping[str, Value] | Block:
        """The values of `writes`, or items that make them."""
        ...


class Block:
    """Items to run in order.

    Args:
        outputs: names wanted from them.
    """

    def __init__(self, items: Sequence[Item], outputs: Iterable[str]) -> None:
        self.items = list(items)
        needed = set(outputs)
        made = {name for item in items for name in item.makes}
        for item in reversed(self.items):
            item.writes = [n for n in item.makes if n in needed]
            item.drops = sorted(made.intersection(item.reads) - needed)
            needed.update(item.reads)


class HostCall:
    """A node that runs on the host.

    Args:
        bounded: the node's bounded form, which ran before; what is left is to take the used part of its result.
    """

    def __init__(self, body: Body, node: onnx.NodeProto, bounded: onnx.NodeProto | None = None) -> None:
        self.node = node
        self.domain = "" if node.domain in _STANDARD else node.domain
        self.label = f"{node.op_type} {node.name or (node.output[0] if node.output else '')!r}"
        self.attrs = {a.name: attribute_value(a) for a in node.attribute}
        self.inputs = list(node.input if bounded is None else bounded.output)
        self.reads = body.variables(reads_of([node]) if bounded is None else self.inputs)
        self.makes = [n for n in node.output if n]
        self.writes = self.makes
        self.drops: list[str] = []
        self.version = body.programs.versions.get(self.domain, 1)
        self.function = HOST.get((self.domain if bounded is None else bounded.domain, node.op_type))
        looped = body.looped or node.op_type != "If"
        self.bodies = {id(g): body.inner(g, looped) for g in self.attrs.values() if isinstance(g, onnx.GraphProto)}

    @cached_property
    def evaluator(self) -> Evaluator:
        return Evaluator(self.node, self.version)

    def run(self, run: ModelRun, scope: Scope) -> Mapping[str, Value] | Block:
        values = [scope[name] if name else None for name in self.inputs]
        if self.function is None:
            odd = next((v for v in values if v is not None and not is_number(v)), None)
            raise UnsupportedError(f"{self.label} takes tensors of numbers, not {describe(odd)}")
        call = HostNode(
            self.node.op_type,
            self.domain,
            self.label,
            self.version,
            self.attrs,
            list(self.node.output),
            lambda graph, arguments: self.bodies[id(graph)].run(run, arguments, scope),
            lambda arrays: self.evaluator(arrays),
        )
        found = self.function(call, values)
        results = [v if v is None or isinstance(v, list) else np.asarray(v) for v in found]
        return {n: v for n, v in zip(self.node.output, results) if n in self.writes}


class CompiledNodes:
    """Consecutive nodes, compiled for every combination of shapes they meet.

    Where they cannot be one program for some shapes, other items take their place for those shapes: nodes before, the
    host, nodes after. What was compiled before stays as it is.
    """

    def __init__(self, body: Body, nodes: list[onnx.NodeProto]) -> None:
        self.body, self.nodes = body, nodes
        self.names = reads_of(nodes)
        self.reads = body.variables(self.names)
        self.makes = [o for node in nodes for o in node.output if o]
        self.writes: list[str] = []
        self.drops: list[str] = []
        self._content = body.digest(nodes, [n for n in self.names if n not in self.reads])
        self._pinned: dict[Hashable, set[str]] = {}
        self._blocks: dict[Hashable, Block] = {}
        self._replacements: dict[tuple[int, str], Block] = {}
        self._strings = [n for n in self.names if n not in self.reads and not is_number(body.constant(n))]

    def run(self, run: ModelRun, scope: Scope) -> Mapping[str, Value] | Block:
        if not self.writes:
            return {}
        values: dict[str, np.ndarray] = {n: scope[n] for n in self.reads}  # type: ignore[misc]
        odd = self._strings + [n for n, v in values.items() if not is_number(v)]
        for index, node in enumerate(self.nodes) if odd else ():
            if not {*odd}.isdisjoint(reads_of([node])):
                return self._by_host(index)
        shapes = tuple((v.shape, v.dtype) for v in values.values())
        if len(self._pinned) >= _MOST_KEYS:
            self._pinned.clear()
        pinned = self._pinned.setdefault(shapes, set())
        while True:
            fixed = tuple((n, values[n].tobytes()) for n in sorted(pinned))
            key = (self._content, tuple(self.writes), tuple(self.reads), shapes, fixed)
            if key in self._blocks:
                return self._blocks[key]
            try:
                program = self.body.programs.program(key, lambda: self._import(values, pinned))
            except Cut as cut:
                block = self._learn(cut, values, pinned)
                if block is not None:
                    if len(self._blocks) >= _MOST_KEYS:
                        self._blocks.clear()
                    self._blocks[key] = block
            else:
                return self._call(run, program, values)

    def _call(self, run: ModelRun, program: Program, values: Mapping[str, np.ndarray]) -> Mapping[str, Value]:
        start = time.perf_counter()
        result = run.runner.hold(program).run({t.name: values[t.name] for t in program.inputs}, **run.options)
        run.seconds.append(time.perf_counter() - start)
        run.counters.append(result.counters)
        run.programs.append(program)
        return {name: result.outputs[name] for name in self.writes}

    def _import(self, values: Mapping[str, np.ndarray], pinned: set[str]) -> Graph:
        body = self.body
        constants = {n: body.constant(n) for n in self.names if n not in self.reads}
        constants |= {n: values[n] for n in pinned}
        types = {n: (v.shape, v.dtype) for n, v in values.items()}
        return import_part(body.programs.file, self.nodes, body.programs.versions, types, constants, self.writes)

    def _learn(self, cut: Cut, values: Mapping[str, np.ndarray], pinned: set[str]) -> Block | None:
        """Pins the values that are missing, or finds the items to run instead: values are made first, or the host runs
        the node."""
        node, body = self.nodes[cut.node], self.body
        standard = node.domain in _STANDARD
        if standard and node.op_type in BOUNDED_OPS:
            bounded = bounded_form(node)
            crop = lambda: [HostCall(body, node, bounded)]
            return self._replacement(cut.node, "bounded", [bounded], crop, cut.node + 1)
        by_host = standard and (node.op_type in _CONTROL or (body.looped and node.op_type in BY_VALUE))
        if cut.names and not by_host:
            if not values.keys() >= set(cut.names):
                return self._replacement(cut.node, "before", [], lambda: [], cut.node)
            large = [n for n in cut.names if values[n].size > _MOST_PINNED]
            if large or pinned.issuperset(cut.names):
                raise UnsupportedError(cut.reason)
            pinned.update(cut.names)
            return None
        if ("" if standard else node.domain, node.op_type) not in HOST:
            raise UnsupportedError(cut.reason)
        return self._by_host(cut.node)

    def _by_host(self, index: int) -> Block:
        return self._replacement(index, "host", [], lambda: [HostCall(self.body, self.nodes[index])], index + 1)

    def _replacement(
        self, index: int, kind: str, more: list[onnx.NodeProto], middle: Callable[[], Sequence[Item]], rest: int
    ) -> Block:
        """A block that replaces this part: the nodes before `index` and `more`, `middle`, the nodes from `rest` on."""
        found = self._replacements.get((index, kind))
        if found is None:
            before, after = [*self.nodes[:index], *more], self.nodes[rest:]
            items: list[Item] = [CompiledNodes(self.body, before)] if before else []
            items += middle()
            items += [CompiledNodes(self.body, after)] if after else []
            found = self._replacements[index, kind] = Block(items, self.writes)
        return found


class Scope:
    """Values by name while a body runs: those of a body's run, then those of the runs around it, then constants."""

    def __init__(self, body: Body, values: dict[str, Value], outer: Scope | None) -> None:
        self.body, self.values, self.outer = body, values, outer

    def __getitem__(self, name: str) -> Value:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        return self.body.constant(name)


class Body:
    """The main graph of a dynamic model or one of its subgraphs, as items to run one after the other.

    Args:
        programs: compiles the parts.
        outer: the body around it.
        looped: runs many times in one run of the model.
        given: constants beside the initialisers.
    """

    def __init__(
        self,
        programs: PartPrograms,
        graph: onnx.GraphProto,
        outer: Body | None = None,
        looped: bool = False,
        given: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        self.programs, self.outer, self.looped = programs, outer, looped
        self._protos = {t.name: t for t in graph.initializer}
        self._constants: dict[str, np.ndarray] = dict(given or {})
        for sparse in graph.sparse_initializer:
            self._constants[sparse.values.name] = dense_of(sparse)
        self._digests: dict[str, bytes] = {}
        self.inputs = [i.name for i in graph.input if outer is not None or not self.is_constant(i.name)]
        self.outputs = [o.name for o in graph.output]
        made = {o for node in graph.node for o in node.output}
        self.local = made | set(self.inputs)
        self._block = Block([CompiledNodes(self, list(graph.node))] if graph.node else [], self.outputs)

    def inner(self, graph: onnx.GraphProto, looped: bool) -> Body:
        """The body of a subgraph."""
        return Body(self.programs, graph, self, looped)

    # Constants.

    def is_constant(self, name: str) -> bool:
        """Whether a name is an initialiser, here or around."""
        if name in self._protos or name in self._constants:
            return True
        return self.outer is not None and name not in self.outer.local and self.outer.is_constant(name)

    def constant(self, name: str) -> np.ndarray:
        """The value of an initialiser, here or around."""
        if name not in self._constants:
            if name not in self._protos:
                if self.outer is None:
                    raise KeyError(name)
                return self.outer.constant(name)
            self._constants[name] = from_proto(self._protos[name])
        return self._constants[name]

    def variables(self, names: Iterable[str]) -> list[str]:
        """Returns the `names` that are no constants, each once."""
        return [n for n in dict.fromkeys(names) if n in self.local or not self.is_constant(n)]

    def digest(self, nodes: Sequence[onnx.NodeProto], constants: Sequence[str]) -> str:
        """Hash of nodes and constants."""
        found = hashlib.sha256()
        for node in nodes:
            found.update(node.SerializeToString(deterministic=True))
        for name in constants:
            found.update(name.encode() + self._digest_of(name))
        return found.hexdigest()

    def _digest_of(self, name: str) -> bytes:
        if name not in self._protos and name not in self._constants and self.outer is not None:
            return self.outer._digest_of(name)
        if name not in self._digests:
            value = self.constant(name)
            digest = hashlib.sha256(f"{value.dtype} {value.shape}".encode())
            if value.dtype == np.object_:
                digest.update(repr(value.tolist()).encode())
            else:
                digest.update(value.tobytes())
            self._digests[name] = digest.digest()
        return self._digests[name]

    # Running.

    def run(self, run: ModelRun, arguments: Sequence[Value], outer: Scope | None = None) -> list[Value]:
        """The outputs for arguments in the order of the inputs."""
        scope = Scope(self, dict(zip(self.inputs, arguments)), outer)
        work: deque[Item | list[str]] = deque(self._block.items)  # lists are names to drop
        while work:
            item = work.popleft()
            if isinstance(item, list):
                for name in item:
                    scope.values.pop(name, None)
                continue
            found = item.run(run, scope)
            work.appendleft(item.drops)
            if isinstance(found, Block):
                work.extendleft(reversed(found.items))
            else:
                scope.values.update(found)
        return [scope[name] for name in self.outputs]
