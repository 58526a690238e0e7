"""Search of schedules by measurement: products and convolutions first, then loops, each kernel by itself.

Kernels are timed alone on random data, the candidate in turns with the best so far, so that a busy machine slows both;
a candidate at least a few percent faster becomes the best. Kernels that take longest are searched first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from msgspec import Struct

from tilewright.compiler.cpu.expr import Buffer
from tilewright.compiler.cpu.findings import Finding, processor
from tilewright.compiler.cpu.ir.module import Module
from tilewright.compiler.cpu.object.compiler import compile_module
from tilewright.compiler.cpu.object.loader import load
from tilewright.compiler.cpu.schedule import Schedule, Schedules
from tilewright.compiler.cpu.segment import compile_segment, run_rules
from tilewright.compiler.cpu.stages.context import Context
from tilewright.compiler.cpu.stages.entry import entry_point
from tilewright.compiler.cpu.stages.memory import SLACK
from tilewright.compiler.cpu.stages.stage import Emission, LoopStage, RowStage, describe
from tilewright.compiler.cpu.target import Target
from tilewright.compiler.errors import CompileError
from tilewright.compiler.graph.graph import Graph, Node, Tensor

GAIN = 0.97  # a schedule must need less than this of the time
_SHARE = 0.02  # seconds of measuring per comparison
_ROUNDS = (5, 60)


class Tunable(Struct):
    """A kernel whose schedule is searched.

    Attributes:
        signature: signature of the schedule.
        label: name for people.
        default: default schedule.
        count: number of its occurrences in the model.
        compile: makes a call that runs it once by the schedules given; None if that changes nothing.
    """

    signature: str
    label: str
    default: Schedule
    count: int
    compile: Callable[[Schedules], Callable[[], None] | None]
    seconds: float = 0.0


class Tuned(Struct):
    """The result of one kernel; times are of one run of it alone."""

    label: str
    signature: str
    count: int
    default: Schedule
    best: Schedule
    default_seconds: float
    seconds: float
    tried: int

    @property
    def changes(self) -> dict[str, Any]:
        """The fields in which the best schedule differs from the default."""
        return changes(self.best, self.default)

    def finding(self, target: Target) -> Finding:
        return Finding(processor(target), self.signature, self.changes, self.default_seconds, self.seconds)


class Outcome(Struct):
    """The result of a search; `left` kernels were not searched for want of time."""

    kernels: list[Tuned]
    left: int = 0

    @property
    def default_seconds(self) -> float:
        return sum(k.default_seconds * k.count for k in self.kernels)

    @property
    def seconds(self) -> float:
        return sum(k.seconds * k.count for k in self.kernels)

    def to_dict(self) -> dict[str, Any]:
        fields = ("label", "signature", "count", "default_seconds", "seconds", "tried", "changes")
        return {
            "default_seconds": self.default_seconds,
            "seconds": self.seconds,
            "left": self.left,
            "kernels": [{name: getattr(k, name) for name in fields} for k in self.kernels],
        }


def changes(schedule: Schedule, default: Schedule) -> dict[str, Any]:
    """The fields of a schedule that differ from the default."""
    return {k: v for k, v in asdict(schedule).items() if v != getattr(default, k)}


def tune(
    graph: Graph,
    target: Target,
    budget: float,
    progress: Callable[[str, float], None] = lambda *_: None,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Searches the kernels of a graph of CPU nodes. Ctrl-C ends the search and keeps what was found.

    Args:
        graph: after the front end's passes; nothing in it is changed.
        budget: seconds; products get up to three quarters of them.
        progress: called with the name of the measured kernel and the fraction of the budget used.
        clock: seconds, by which the budget is used up.
    """
    started = clock()
    used = lambda: (clock() - started) / budget
    outcome = Outcome([])
    try:
        for collect, share in ((_products, 0.75), (_loops, 1.0)):
            kernels = list(collect(graph, target, outcome.kernels))
            outcome.left += len(kernels)
            for kernel in kernels:
                if used() < share:
                    progress(f"measuring {kernel.label}", used())
                    run = kernel.compile(Schedules())
                    kernel.seconds = _once(run) if run is not None else 0.0
            for kernel in sorted(kernels, key=lambda k: -k.seconds * k.count):
                if used() >= share:
                    break
                progress(f"tuning {kernel.label}", used())
                outcome.kernels.append(_search(kernel, target, lambda share=share: used() >= share))  # type: ignore[misc]
                outcome.left -= 1
    except KeyboardInterrupt:
        pass
    return outcome


def _search(kernel: Tunable, target: Target, over: Callable[[], bool]) -> Tuned:
    best, best_run = kernel.default, kernel.compile(Schedules())
    assert best_run is not None
    default_run, tried = best_run, 0
    for candidate in kernel.default.candidates(target):
        if over():
            break
        proposal = replace(best, **changes(candidate, kernel.default))
        run = kernel.compile(Schedules({kernel.signature: changes(proposal, kernel.default)}))
        if proposal == best or run is None:
            continue
        tried += 1
        old, new = _compare(best_run, run)
        if new < GAIN * old:
            best, best_run = proposal, run
    seconds = default_seconds = kernel.seconds
    if best != kernel.default:
        default_seconds, seconds = _compare(default_run, best_run)
        if seconds >= GAIN * default_seconds:  # what seemed faster was not
            best, seconds = kernel.default, default_seconds
    return Tuned(kernel.label, kernel.signature, kernel.count, kernel.default, best, default_seconds, seconds, tried)


def _once(run: Callable[[], None]) -> float:
    run()
    return min(_timed(run) for _ in range(3))


def _timed(run: Callable[[], None]) -> float:
    start = time.thread_time()
    run()
    return time.thread_time() - start


def _compare(a: Callable[[], None], b: Callable[[], None]) -> tuple[float, float]:
    """The shortest times in seconds of two calls made in turns."""
    once = max(_once(a), 1e-7)
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(min(max(int(_SHARE / once), _ROUNDS[0]), _ROUNDS[1])):
        for run, found in zip((a, b), times):
            found.append(_timed(run))
    return min(times[0]), min(times[1])


def _products(graph: Graph, target: Target, known: Sequence[Tuned]) -> Iterator[Tunable]:
    """One kernel per signature of a matrix product or convolution, measured with the packing around it."""
    found: dict[str, Tunable] = {}
    for node in graph:
        part = _part(graph, node)
        requested = Schedules()
        ctx = Context(part, [node], part.outputs, target, dry=True, schedules=requested)
        try:
            run_rules(ctx, [node])
        except CompileError:
            continue
        for signature, default in requested.requested.items():
            if signature in found:
                found[signature].count += 1
                continue

            def make(schedules: Schedules, node: Node = node) -> Callable[[], None]:
                part = _part(graph, node)
                segment = compile_segment(part, [node], part.inputs, part.outputs, "tuned", target, schedules)
                arrays = [_random(part.tensor(n).size, part.tensor(n).dtype) for n in segment.inputs]
                arrays += [np.ascontiguousarray(part.tensor(n).data) for n in segment.constants]
                arrays += [_random(part.tensor(n).size, part.tensor(n).dtype) for n in segment.outputs]
                return _call(segment.object_code, "tuned", arrays, segment.workspace_bytes)

            found[signature] = Tunable(signature, signature, default, 1, make)
    yield from found.values()


def _part(graph: Graph, node: Node) -> Graph:
    """A graph of one node."""
    part = Graph(graph.name, graph.opset)
    for name in (*node.inputs, *node.outputs):
        if name:
            t = graph.tensor(name)
            part.add(Tensor(t.name, t.shape, t.dtype, t.data, t.quant))
    part.nodes = [node]
    part.inputs = [n for n in dict.fromkeys(node.inputs) if n and not part.tensor(n).is_const]
    part.outputs = [n for n in node.outputs if n]
    return part


def _loops(graph: Graph, target: Target, known: Sequence[Tuned]) -> Iterator[Tunable]:
    """One kernel per different loop nest of the whole graph."""
    schedules = Schedules({k.signature: changes(k.best, k.default) for k in known})
    whole = Graph(graph.name, graph.opset)
    whole.tensors, whole.nodes = dict(graph.tensors), list(graph.nodes)
    ctx = Context(whole, whole.nodes, graph.outputs, target, schedules=schedules)
    run_rules(ctx, whole.nodes)
    found: dict[str, Tunable] = {}
    for stage in ctx.stages:
        if not isinstance(stage, LoopStage | RowStage):
            continue
        requested = Schedules()
        plain = stage.emit(Emission(Module(target), requested)).name
        ((signature, default),) = requested.requested.items()
        if signature in found:
            found[signature].count += 1
            continue

        def make(schedules: Schedules, stage: Any = stage, plain: str = plain) -> Callable[[], None] | None:
            module = Module(target)
            call = stage.emit(Emission(module, schedules))
            if schedules.found and call.name == plain:
                return None
            entry = entry_point(module, "tuned", [call], {b: k for k, b in enumerate(call.buffers)}, {})
            return _call(compile_module(module, "tuned", entry), "tuned", [_memory(b) for b in call.buffers], 0)

        found[signature] = Tunable(signature, describe(stage), default, 1, make)
    yield from found.values()


def _memory(buffer: Buffer) -> np.ndarray:
    if buffer.data is not None:
        return np.ascontiguousarray(buffer.data)
    memory = np.zeros(buffer.nbytes + SLACK, np.uint8)  # integers may be indices
    if buffer.dtype == "f32":
        memory[: buffer.nbytes] = _random(buffer.size, np.dtype(np.float32)).view(np.uint8)
    return memory


def _random(size: int, dtype: np.dtype) -> np.ndarray:
    rng = np.random.default_rng(0)
    if dtype.kind == "f":
        return rng.standard_normal(size).astype(dtype)
    return rng.integers(0, 2 if dtype.kind == "b" else 100, size).astype(dtype)


def _call(code: bytes, symbol: str, arrays: list[np.ndarray], workspace: int) -> Callable[[], None]:
    kernel = load(code, symbol)
    placed = [_aligned(a) for a in arrays]
    memory = _aligned(np.zeros(workspace, np.uint8))
    addresses = [a.ctypes.data for a in placed]

    def run(kept: object = (placed, memory)) -> None:
        kernel(addresses, memory.ctypes.data)

    return run


def _aligned(a: np.ndarray) -> np.ndarray:
    raw = np.empty(a.nbytes + 64, np.uint8)
    place = raw[-raw.ctypes.data % 64 :][: a.nbytes]
    place[...] = a.reshape(-1).view(np.uint8)
    return place
