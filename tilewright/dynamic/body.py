"""A graph of a dynamic model and its constants."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx

from compiler.onnx_ops import dense_of
from tilewright.dynamic.part import Block, Item, Part, Run
from tilewright.dynamic.values import Value, from_proto

if TYPE_CHECKING:
    from tilewright.dynamic.model import DynamicModel


class Scope:
    """Values by name: those of a body's run, then those of the runs around it, then constants."""

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
    """The main graph or a subgraph.

    Args:
        outer: the body around it.
        looped: runs many times in one run of the model.
        given: constants beside the initialisers.
    """

    def __init__(
        self,
        model: DynamicModel,
        graph: onnx.GraphProto,
        outer: Body | None = None,
        looped: bool = False,
        given: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        self.model, self.outer, self.looped = model, outer, looped
        self._protos = {t.name: t for t in graph.initializer}
        self._constants: dict[str, np.ndarray] = dict(given or {})
        for sparse in graph.sparse_initializer:
            self._constants[sparse.values.name] = dense_of(sparse)
        self._digests: dict[str, bytes] = {}
        self.inputs = [i.name for i in graph.input if outer is not None or not self.is_constant(i.name)]
        self.outputs = [o.name for o in graph.output]
        made = {o for node in graph.node for o in node.output}
        self.local = made | set(self.inputs)
        self._block = Block([Part(self, list(graph.node))] if graph.node else [], self.outputs)

    def inner(self, graph: onnx.GraphProto, looped: bool) -> Body:
        """The body of a subgraph."""
        return Body(self.model, graph, self, looped)

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
        """Those of `names` that are no constants, each once."""
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

    def run(self, run: Run, arguments: Sequence[Value], outer: Scope | None = None) -> list[Value]:
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
