"""Two models that have the same tensors, run in segments: each segment as the one or as the other has it.

A change in one segment leaves everything before it as it was. So a run begins with the first segment that is to differ
from a base, on values that were kept when the base ran. Segments without anything switched on are run as the plain
model has them, without what makes the other one slow.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from tilewright.compiler.onnx.onnx_graphs import reads_of
from tilewright.quantize.memory import trim_heap
from tilewright.quantize.observe import part_of, run, session, tensor_bytes
from tilewright.quantize.recipe import Sample
from tilewright.quantize.stepping import Values

SEGMENTS = 16


@dataclass(frozen=True)
class _Segment:
    """Consecutive nodes of the plain model, and of the other one.

    Attributes:
        nodes: of the plain model, and what the other model has in their place.
        reads: tensors made before that this or a later segment reads, or that are outputs.
        results: tensors it makes that a later one reads, or that are outputs.
        switches: inputs of the other model that its nodes read.
    """

    nodes: tuple[list[onnx.NodeProto], list[onnx.NodeProto]]
    reads: list[str]
    results: list[str]
    switches: frozenset[str]


class Segments:
    """Runs a plain model and one with switches as further inputs, segment by segment.

    Args:
        plain: nodes in topological order.
        other: has all tensors of `plain` under the same names.
        example: a sample, for the sizes of tensors.
        count: of segments, at most.
        base: switches that are on in most runs: only what differs from it is run.
    """

    def __init__(
        self, plain: onnx.ModelProto, other: onnx.ModelProto, example: Sample, count: int = SEGMENTS,
        base: Collection[str] = (),
    ) -> None:  # fmt: skip
        self._base = frozenset(base)
        self._models = (plain, other)
        self._constants = tuple({x.name: x for x in model.graph.initializer} for model in self._models)
        self._outputs = [x.name for x in plain.graph.output]
        self._segments = self._cut(tensor_bytes(plain, example), count)
        self._sessions: dict[tuple[int, bool], Any] = {}
        self._known: list[Sample] = []
        self._values = Values()  # of the base for the known samples

    def run(self, sample: Sample, switches: Mapping[str, np.ndarray], on: Collection[str]) -> dict[str, Any]:
        """The outputs by name.

        Args:
            switches: the further inputs of the other model.
            on: those that are on. Segments without any of them are run as the plain model has them.

        Raises:
            UsageError: onnxruntime cannot run the model on the sample.
        """
        number = self._number(sample, switches)
        changed = self._base.symmetric_difference(on)
        count = len(self._segments)
        first = next((i for i, x in enumerate(self._segments) if not x.switches.isdisjoint(changed)), count)
        needed = self._segments[first].reads if first < count else self._made_outputs
        values = {**sample, **switches, **{name: self._values.get(number, name) for name in needed}}
        for index in range(first, count):
            self._advance(index, not self._segments[index].switches.isdisjoint(on), values)
        trim_heap()
        return {name: self._output(name, values) for name in self._outputs}

    def close(self) -> None:
        self._values.close()

    def _number(self, sample: Sample, switches: Collection[str]) -> int:
        """The number of a sample, whose values in the base are kept under it; computes them on first use."""
        for number, known in enumerate(self._known):
            if known is sample:
                return number
        values: dict[str, Any] = {**sample, **{name: np.array(name in self._base) for name in switches}}
        for index, segment in enumerate(self._segments):
            self._advance(index, not segment.switches.isdisjoint(self._base), values)
            for name in segment.results:
                self._values.put(len(self._known), name, values[name])
            trim_heap()
        self._known.append(sample)
        return len(self._known) - 1

    def _advance(self, index: int, changed: bool, values: dict[str, Any]) -> None:
        """Runs a segment: adds its results to `values`, and drops what is not read any more."""
        segment = self._segments[index]
        nodes, constants, key = segment.nodes[changed], self._constants[changed], (index, changed)
        if segment.results:
            if key not in self._sessions:
                reads = reads_of(nodes)
                feeds = {name: values[name] for name in reads if name not in constants}
                held = [constants[name] for name in reads if name in constants]
                made = part_of(self._models[changed], nodes, feeds, segment.results)
                self._sessions[key] = session(made, constants=held), list(feeds)
            running, names = self._sessions[key]
            values.update(run(running, {name: values[name] for name in names}))
        for name in segment.reads:
            if index + 1 < len(self._segments) and name not in self._segments[index + 1].reads:
                del values[name]

    def _output(self, name: str, values: Mapping[str, Any]) -> Any:
        return values[name] if name in values else numpy_helper.to_array(self._constants[0][name])

    @property
    def _made_outputs(self) -> list[str]:
        return [name for segment in self._segments for name in segment.results if name in self._outputs]

    def _cut(self, sizes: Mapping[str, int], count: int) -> list[_Segment]:
        nodes, others = (list(model.graph.node) for model in self._models)
        maker = {name: index for index, node in enumerate(others) for name in node.output if name}
        switches = {x.name for x in self._models[1].graph.input} - {x.name for x in self._models[0].graph.input}
        alive = _alive(nodes, self._outputs)
        ends = _ends(nodes, alive, sizes, count)
        found = []
        for start, end in zip([0, *ends], ends):
            made = {name for node in nodes[start:end] for name in node.output}
            results = [name for name in alive[end] if name in made]
            places: set[int] = set()  # of the other model's nodes between `alive[start]` and the results
            pending = list(results)
            while pending:
                name = pending.pop()
                if name in maker and maker[name] not in places and name not in alive[start]:
                    places.add(maker[name])
                    pending += reads_of([others[maker[name]]])
            changed = [others[place] for place in sorted(places)]
            own = switches.intersection(reads_of(changed))
            found.append(_Segment((nodes[start:end], changed), alive[start], results, frozenset(own)))
        return found


def _alive(nodes: Sequence[onnx.NodeProto], outputs: Sequence[str]) -> list[list[str]]:
    """Lists, for each position before, between and after the nodes, the tensors made before it and needed after it."""
    made = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    last = {name: len(nodes) for name in outputs if name in made}
    for index, node in enumerate(nodes):
        for name in reads_of([node]):
            if name in made:
                last[name] = max(last.get(name, 0), index)
    return [
        [name for name, until in last.items() if made[name] < position <= until] for position in range(len(nodes) + 1)
    ]


def _ends(
    nodes: Sequence[onnx.NodeProto], alive: Sequence[Sequence[str]], sizes: Mapping[str, int], count: int
) -> list[int]:
    """End positions of segments: each writes about as many bytes, and few bytes are live at its end."""
    written = np.cumsum([sum(sizes.get(name, 1) for name in node.output) for node in nodes])
    found: list[int] = []
    for number in range(1, count):
        low, high = (np.searchsorted(written, written[-1] * (number + side) / count) for side in (-0.4, 0.4))
        start = max(int(low), found[-1] if found else 0) + 1
        places = range(start, min(int(high) + 1, len(nodes) - 1) + 1)
        if places:
            found.append(min(places, key=lambda at: sum(sizes.get(name, 1) for name in alive[at])))
    return [*found, len(nodes)]
