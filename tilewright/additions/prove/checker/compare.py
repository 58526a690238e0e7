"""Compares a program with its quantised graph: both are evaluated on names, for all inputs at once."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from tilewright.isa.encoding import DecodeError, from_bytes
from tilewright.isa.fields import INSTRUCTION_BYTES
from tilewright.isa.program import BlockedLayout, Buffer, CpuStep, Layout, Lookup, NpuStep, Program, TensorInfo, Window
from tilewright.prove.checker import elements, norms, products, wide  # noqa: F401  # they register the rules
from tilewright.prove.checker.cells import CELL, VALUE
from tilewright.prove.checker.evaluate import evaluate, numbers
from tilewright.prove.checker.fields import FIELDS, Array
from tilewright.prove.checker.graph import Finding, NoRule, QuantisedGraph, Step, Value
from tilewright.prove.checker.machine import Machine
from tilewright.prove.checker.memories import Moved
from tilewright.prove.checker.names import Names
from tilewright.prove.checker.rules import quantisation


@dataclass
class Difference:
    """The first output element whose names differ.

    Attributes:
        output, place: output tensor, and the index of the element in it.
        tensor, layer, index: what `difference` beside this folder finds: the first tensor of the graph, in its order,
            with an element that the program never computes, the node that makes it, and the first such element.
        differing: number of differing elements of all outputs.
    """

    output: str
    place: tuple[int, ...]
    differing: int
    tensor: str = ""
    layer: str = ""
    index: tuple[int, ...] = ()


@dataclass
class Verdict:
    """The result of a proof.

    Attributes:
        proved: every element of every output has one name on both sides, and nothing is wrong with the program.
        reason: of a proof that failed, one sentence.
        difference: where names differ.
        elements: elements of the outputs.
        instructions, cpu_steps, conversions, opaque: how much was evaluated; opaque ones are CPU nodes that are unknown
            functions.
        accesses: units of memory whose order was checked.
        rules: how often each rule was used.
        assumed: rows of Softmax and norms on the NPU. The graph's are those of ROW in docs/numerics.md, which round
            otherwise than the frameworks next to ties.
    """

    proved: bool = False
    reason: str = ""
    difference: Difference | None = None
    elements: int = 0
    instructions: int = 0
    cpu_steps: int = 0
    conversions: int = 0
    opaque: list[str] = field(default_factory=list)
    accesses: int = 0
    rules: dict[str, int] = field(default_factory=dict)
    assumed: dict[str, int] = field(default_factory=dict)
    seed: int = 0


_CONVERSIONS = ("Relayout", "PackMatMulParams", "SplitBytes", "JoinBytes")


def prove(
    graph: QuantisedGraph, program: Program, seed: int, entry: str = "", kind: Callable[[int], Names] = Names
) -> Verdict:
    """Proves that a program computes a graph, for all inputs.

    Args:
        graph: the network and the nodes of the program's CPU steps.
        seed: of the names; another seed is another, independent proof.
        entry: entry point of the program, "" for one without.
        kind: of names, which may know more of them.

    Raises:
        ProgramError: the program has no such entry point.
    """
    program = program.entry(entry or None)
    names = kind(seed)
    verdict = Verdict(seed=seed, rules=names.used, assumed=names.assumed)
    try:
        wanted = graph_outputs(names, graph, program)
        verdict.elements = sum(int(np.prod(graph.values[name].shape)) for name in graph.outputs)
        side = ProgramSide(names, graph, program, verdict, entry)
        side.run()
        side.compare(wanted)
        if program.later and verdict.difference is None:
            again = ProgramSide(names, graph, program.of_later_runs(), verdict, entry)
            again.run(side.weights)
            again.compare(wanted)
            if (again.weights != side.weights).any():
                raise Finding("a later run does not leave the weights that it began with")
        if verdict.difference is not None:
            verdict.reason = "not proved: outputs have other names in the program than in the graph"
    except (DecodeError, Finding, NoRule) as error:
        verdict.reason = ("not proved: " if isinstance(error, NoRule) else "") + str(error)
    verdict.proved = not verdict.reason
    return verdict


def _inputs(names: Names, graph: QuantisedGraph, program: Program) -> _Cells:
    """Cells of a graph's inputs and constants. Values that rise by one all follow from the first of them."""
    cells, known = _Cells(names, graph.values), numbers(graph)
    for name in graph.inputs:
        shape, rises, n = graph.values[name].shape, name in program.rising, known.get(name, 0)
        cells[name] = names.random(shape, "input", name)
        values = cells[name].reshape(-1, CELL)[:, VALUE]
        if rises:
            values = names.run(values[0], len(values), _unparted(program, name))
            cells[name] = names.cells(values).reshape(*shape, CELL)
        firsts = np.arange(n - len(values) + 1) if rises else np.arange(n)
        if len(firsts) and rises:
            names.follows[values.tobytes()] = values[0], firsts[:, None] + np.arange(len(values))
        for i, element in enumerate(values if len(firsts) else ()):
            names.follows[element.tobytes()] = (values[0], firsts + i) if rises else (element, firsts)
    return cells


def _unparted(program: Program, name: str) -> int:
    """The number no multiple of which lies between the values of an input that rises, as the runtime sees to it."""
    return min((w.period for w in program.windows if w.tensor == name and w.space == "arena"), default=0)


class _Cells(dict[str, Array]):
    """Cells by name; those of constants are made when they are asked for, and not kept."""

    def __init__(self, names: Names, values: Mapping[str, Value]) -> None:
        super().__init__()
        self.names, self.values_of = names, values

    def __missing__(self, name: str) -> Array:
        value, names = self.values_of[name], self.names
        if (data := value.data) is None:
            raise Finding(f"{name!r} is read before it is made")
        if data.dtype.kind in "iub" and (not data.size or abs(data.astype(np.int64)).max() < 1 << 30):
            return names.constants(data.astype(np.int64) - value.shift)
        return names.random(data.shape, "constant", str(data.dtype), data.tobytes())


def graph_outputs(
    names: Names, graph: QuantisedGraph, program: Program, each: Callable[[Step, str, Array], None] | None = None
) -> dict[str, Array]:
    """Cells of a graph's outputs; `each` is called with every result."""
    cells: dict[str, Array] = _inputs(names, graph, program)
    on_cpu = {(node.op, node.name) for nodes in graph.work.values() for node in nodes}
    readers = Counter(name for step in graph.steps for name in step.inputs)
    for step in graph.steps:
        results = evaluate(names, step, graph.values, cells, on_cpu)
        for name, found in zip((n for n in step.outputs if n), results, strict=True):
            cells[name] = found
            if each is not None:
                each(step, name, found)
        for name in step.inputs:
            readers[name] -= 1
            if not readers[name] and name not in graph.outputs:
                cells.pop(name, None)
    return {name: cells[name] for name in graph.outputs}


class ProgramSide:
    """The memories of a program, and its steps."""

    def __init__(self, names: Names, graph: QuantisedGraph, program: Program, verdict: Verdict, entry: str) -> None:
        self.names, self.graph, self.program, self.verdict = names, graph, program, verdict
        self.arena = names.random((program.arena_bytes,), "arena")
        begins, self.outputs = _ends(graph, program)
        self.buffers = {b.name: b for b in program.buffers}
        self.buffers |= {n.removeprefix(f"{entry}."): b for n, b in self.buffers.items() if n.startswith(f"{entry}.")}
        for name, info in (*begins.items(), *self.outputs.items()):
            self.buffers[name] = self.buffers[info.name] = self.buffers[info.buffer]
        self.host: dict[str, Array] = {}
        cells = _inputs(names, graph, program)
        self.windows = {w.region: self._moved(w, cells) for w in program.windows}
        for name, info in begins.items():
            self.write(name, graph.values[name], cells[name], info.relayout)
        for rows in program.lookups:
            self._look_up(rows, cells[rows.tensor])

    def _look_up(self, rows: Lookup, cells: Array) -> None:
        """Copies rows of a table of the constants to a buffer, in blocks, one for each value of an input."""
        table = np.frombuffer(self.program.constants, np.int8, rows.rows * rows.stride, rows.offset)
        found = self.names.rows_of(cells.reshape(-1, CELL)[:, VALUE], table.reshape(rows.rows, -1, rows.block))
        if found is None:
            raise NoRule(f"no rule for rows that are looked up by {rows.tensor!r}, whose values may be any integers")
        found, offset = found.swapaxes(0, 1).reshape(-1, CELL), self._buffer(rows.buffer).offset
        self.arena[offset : offset + len(found)] = found

    def _moved(self, window: Window, cells: Mapping[str, Array]) -> Moved:
        """Rows of the arena are those of all numbers modulo the period; of the constants, those that an input has."""
        if window.tensor not in cells:
            return Moved(window.space, np.zeros(1, np.int64), np.zeros(FIELDS, np.uint32))
        values = cells[window.tensor].reshape(-1, CELL)[:, VALUE]
        number, firsts = self.names.follows.get(values[0].tobytes(), (values[0], np.arange(0)))
        if window.space == "arena":
            rises = window.tensor in self.program.rising and window.period == _unparted(self.program, window.tensor)
            firsts = np.arange(window.period - (len(values) - 1) * rises)
            number = self.names.modulo(values[:1], window.period)[0]
            if window.rows not in (0, window.period):
                raise NoRule("no rule for a window with fewer rows than its period")
        return Moved(window.space, np.array([window.offset(value) for value in firsts], np.int64), number)

    def run(self, weights: Array | None = None) -> None:
        """Runs all steps.

        Args:
            weights: in WGT since an earlier run, as `weights` has them then.
        """
        for number, step in enumerate(self.program.steps):
            if isinstance(step, NpuStep):
                image = self.program.instructions[step.first * INSTRUCTION_BYTES :][: step.count * INSTRUCTION_BYTES]
                machine = Machine(self.names, self.program, self.arena, self.windows, from_bytes(image), number)
                if weights is not None:
                    machine.wgt[:] = weights
                machine.run(step.first)
                self.weights = machine.constant_weights()
                self.verdict.instructions += step.count
                self.verdict.accesses += machine.order.checked
            else:
                self._cpu_step(number, step)

    def _cpu_step(self, number: int, step: CpuStep) -> None:
        nodes = self.graph.work.get(number, ())
        if step.ops != [f"{node.op} {node.name or node.outputs[0]}" for node in nodes]:
            raise Finding(f"CPU step {number} has other nodes than the compiler's: {', '.join(step.ops)[:200]}")
        values = self.graph.work_values
        cells: dict[str, Array] = _Cells(self.names, values)
        made = {name for node in nodes for name in node.outputs if name}
        for name in {name for node in nodes for name in node.inputs if name} - made:
            if values[name].data is None:
                cells[name] = self.read(name, values[name])
        for node in nodes:
            results = evaluate(self.names, node, values, cells, [(node.op, node.name)])
            cells.update(zip((n for n in node.outputs if n), results, strict=True))
            if node.op in _CONVERSIONS:
                self.verdict.conversions += 1
            else:
                self.verdict.opaque.append(f"{node.op} {node.name or node.outputs[0]}")
        for name in sorted(made & self.buffers.keys()):
            if self.buffers[name].name in step.buffers:
                self.write(name, values[name], cells[name])
        self.verdict.cpu_steps += 1

    def read(self, name: str, value: Value, layout: BlockedLayout | None = None) -> Array:
        """Cells of a tensor in a buffer.

        Raises:
            Finding: there is none of this name, or something else has been written over it.
        """
        buffer = self._buffer(name)
        if buffer.space == "arena":
            if layout is None and value.dtype.itemsize > 1:
                raise NoRule(f"no rule for reads of {name!r}, {value.dtype} in the arena")
            return np.asarray(self.arena[buffer.offset + _places(value.shape, layout, buffer)])
        if buffer.name not in self.host:
            raise Finding(f"buffer {name!r} is read, but nothing wrote it or something wrote over it")
        return self.host[buffer.name].reshape(*value.shape, CELL)

    def write(self, name: str, value: Value, cells: Array, layout: BlockedLayout | None = None) -> None:
        buffer = self._buffer(name)
        if buffer.space == "arena":
            if layout is None and cells[..., 0].size != math.prod(value.shape) * value.dtype.itemsize:
                raise NoRule(f"no rule for writes of {name!r}, {value.dtype} in the arena")
            self.arena[buffer.offset + _places(cells.shape[:-1], layout, buffer)] = cells
            return
        others = [(other, self.buffers[other]) for other in self.host]
        for other, b in others:  # what lies over it is gone
            if b.offset < buffer.offset + buffer.nbytes and buffer.offset < b.offset + b.nbytes:
                del self.host[other]
        self.host[buffer.name] = cells

    def _buffer(self, name: str) -> Buffer:
        if name not in self.buffers:
            raise Finding(f"the program has no buffer {name!r}")
        return self.buffers[name]

    def compare(self, wanted: Mapping[str, Array]) -> None:
        """Says in the verdict where outputs have other names."""
        for name in self.graph.outputs:
            value, info, data = self.graph.values[name], self.outputs[name], self.buffers[name].data
            if value.data is not None and data:
                if self.program.sections[data] != np.ascontiguousarray(value.data).tobytes():
                    raise Finding(f"constant output {name!r} has other bytes")
                continue
            found = self.read(name, value, info.relayout)
            if info.relayout is not None and value.dtype == np.float32:
                found = _dequantized(self.names, self.graph, info, found)
            differs = np.argwhere((found[..., VALUE] != wanted[name][..., VALUE]).any(axis=-1))
            if len(differs):
                first = self.verdict.difference or Difference(name, tuple(differs[0].tolist()), 0)
                self.verdict.difference = replace(first, differing=first.differing + len(differs))


def _ends(graph: QuantisedGraph, program: Program) -> tuple[dict[str, TensorInfo], dict[str, TensorInfo]]:
    """The program's inputs and outputs by the names of the graph's, states among them."""
    begins, ends = {t.name: t for t in program.inputs}, {t.name: t for t in program.outputs}
    if {state.name for state in program.states} != set(graph.states):
        raise Finding(f"the program's states are {[s.name for s in program.states]}, the graph's {list(graph.states)}")
    for state in program.states:
        begin, end, initial = graph.states[state.name]
        begins[begin], ends[end] = state.begin, state.end
        buffer, layout = program.buffer(state.begin.buffer), state.begin.relayout
        first = np.frombuffer(program.sections.get(buffer.data, b""), np.uint8)
        if layout is not None and len(first) == buffer.nbytes:
            first = first[_places(initial.shape, layout, buffer)] ^ np.uint8(layout.xor)
        if first.tobytes() != np.ascontiguousarray(initial).tobytes():
            raise Finding(f"state {state.name!r} begins with other values")
    for kind, found, wanted in (("inputs", begins, graph.inputs), ("outputs", ends, graph.outputs)):
        if set(found) != set(wanted):
            raise Finding(f"the program's {kind} are {sorted(found)}, the graph's {sorted(wanted)}")
    return begins, ends


def _places(shape: tuple[int, ...], layout: BlockedLayout | None, buffer: Buffer) -> Array:
    """The byte of every element of a tensor in a buffer, where it is in C order or in blocks of lanes."""
    found: Array = np.arange(math.prod(shape if layout is None else layout.shape))
    if len(found) > buffer.nbytes:
        raise Finding(f"buffer {buffer.name!r} has {buffer.nbytes} bytes, a tensor in it {len(found)}")
    if layout is not None:
        n, blocks, h, w, lanes = layout.shape
        last = layout.convention == Layout.CHANNELS_LAST
        channels = shape[-1 if last else 1]
        beside = math.prod(shape) // (n * channels * h * w)  # images that fill a block
        if blocks != -(-channels // lanes):
            raise NoRule("no rule for tensors of 16 bits in blocks")
        found = np.moveaxis(found.reshape(layout.shape), 4, 2).reshape(n, -1, h, w)[:, : beside * channels]
        found = np.moveaxis(found, 1, 3).reshape(n, -1, beside, channels).swapaxes(1, 2) if last else found
    return found.reshape(shape)


def _dequantized(names: Names, graph: QuantisedGraph, info: TensorInfo, cells: Array) -> Array:
    """Cells of floats that the runtime makes of an output's bytes, as the graph's DequantizeLinear does."""
    step = next(step for step in graph.steps if info.name in step.outputs)
    given = graph.values[step.inputs[0]]
    if step.op != "DequantizeLinear" or quantisation(given)[:2] != (info.scale, info.zero_point):
        raise Finding(f"output {info.name!r} is floats of {info.scale} and {info.zero_point}, which the graph's is not")
    operands = _Cells(names, graph.values)
    operands[step.inputs[0]] = cells
    return evaluate(names, step, graph.values, operands, ())[0]
