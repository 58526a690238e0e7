"""A model run piece by piece over several samples, whose constants may change between the pieces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from tilewright.common import temporary
from tilewright.compiler.onnx.onnx_graphs import reads_of
from tilewright.quantize.memory import trim_heap
from tilewright.quantize.observe import part_of, run, session
from tilewright.quantize.recipe import Sample

BUDGET = 8 << 20
"""Bytes of values kept in memory; others go to temporary files."""


_MANY = 8
"""Minimum of nodes of a piece for which onnxruntime's optimisations pay."""


class Values:
    """Tensors by sample and name, in memory up to a budget and in temporary files beyond it."""

    def __init__(self, budget: int = BUDGET) -> None:
        self.budget = budget
        self.used = 0
        self._folder = temporary.Folder(prefix="tilewright-quantize-")
        self._held: dict[tuple[int, str], Any] = {}
        self._files = 0

    def put(self, sample: int, name: str, value: Any) -> None:
        size = value.nbytes if isinstance(value, np.ndarray) else 0
        if size > 4096 and self.used + size > self.budget and not value.dtype.hasobject:
            path = Path(self._folder.name) / f"{self._files}.npy"
            self._files += 1
            np.save(path, value)
            self._held[sample, name] = path
        else:
            self.used += size
            self._held[sample, name] = value

    def get(self, sample: int, name: str) -> Any:
        value = self._held[sample, name]
        return np.load(value) if isinstance(value, Path) else value

    def drop(self, sample: int, name: str) -> None:
        value = self._held.pop((sample, name), None)
        if isinstance(value, Path):
            value.unlink()
        elif isinstance(value, np.ndarray):
            self.used -= value.nbytes

    def close(self) -> None:
        self._held.clear()
        self._folder.cleanup()


class Stepper:
    """A model that is run for all samples up to one node, then to the next, and so on.

    Nodes that read constants only are run with the nodes that read their results, so that a changed constant counts
    from the next piece on.

    Args:
        model: nodes in topological order.
        samples: inputs of the runs.
        keep: tensors that are never dropped.
    """

    def __init__(self, model: onnx.ModelProto, samples: list[Sample], keep: frozenset[str] = frozenset()) -> None:
        self.model = model
        self.count = len(samples)
        self.keep = keep
        self.constants = {x.name: x for x in model.graph.initializer}
        self._changed: set[str] = set()
        self._source: dict[str, onnx.NodeProto] = {}  # what is made of constants alone
        self.nodes: list[onnx.NodeProto] = []
        for node in model.graph.node:
            names = reads_of([node])
            if names and all(name in self.constants or name in self._source for name in names):
                self._source.update((name, node) for name in node.output)
            else:
                self.nodes.append(node)
        self.at = 0
        self.values = Values()
        self._last: dict[str, int] = {}
        for index, node in enumerate(self.nodes):
            self._last.update((name, index) for name in self._needs(node))
        for index, sample in enumerate(samples):
            for name, value in sample.items():
                self.values.put(index, name, value)

    def index(self, name: str) -> int:
        """Returns the position of a node, for `run_to`."""
        return next(i for i, node in enumerate(self.nodes) if node.name == name)

    def value(self, sample: int, name: str) -> Any:
        """Returns a tensor that later nodes still read."""
        return self.values.get(sample, name)

    def set(self, name: str, value: np.ndarray) -> None:
        """Changes a constant that one node reads."""
        self._changed.add(name)
        self.constants[name] = numpy_helper.from_array(value, name)

    def run_to(self, index: int) -> None:
        """Runs all nodes before position `index`.

        Raises:
            UsageError: onnxruntime cannot load or run them.
        """
        nodes = self.nodes[self.at : index]
        if not nodes:
            return
        made = {name for node in nodes for name in node.output if name}
        read = list(dict.fromkeys(name for node in nodes for name in self._needs(node) if name not in made))
        kept = [n for n in made if self._last.get(n, -1) >= index or n in self.keep]
        first = {name: self.values.get(0, name) for name in read}
        running = None
        if kept:
            before, constants = self._read_by(nodes)
            part = part_of(self.model, [*before, *nodes], first, kept)
            running = session(part, optimise=len(nodes) > _MANY, integers=False, constants=constants)
            del part, constants
        for sample in range(self.count):
            if running is not None:
                feeds = {name: self.values.get(sample, name) for name in read}
                for name, value in run(running, feeds).items():
                    self.values.put(sample, name, value)
            for name in read:
                if self._last[name] < index and name not in self.keep:
                    self.values.drop(sample, name)
            trim_heap()
        for name in self._changed.intersection(reads_of(nodes)):  # nothing reads it again
            self._changed.remove(name)
            del self.constants[name]
        self.at = index

    def close(self) -> None:
        self.values.close()

    def _needs(self, node: onnx.NodeProto) -> list[str]:
        return [name for name in reads_of([node]) if name not in self.constants and name not in self._source]

    def _read_by(self, nodes: list[onnx.NodeProto]) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
        """Nodes that compute constants from constants alone and have to run before `nodes`, and all constants read."""
        before: list[onnx.NodeProto] = []
        constants: dict[str, onnx.TensorProto] = {}

        def want(name: str) -> None:
            if name in self.constants:
                constants[name] = self.constants[name]
            elif name in self._source and not any(self._source[name] is node for node in before):
                for inner in reads_of([self._source[name]]):
                    want(inner)
                before.append(self._source[name])

        for node in nodes:
            for name in reads_of([node]):
                want(name)
        return before, list(constants.values())
