"""`compile_graph`: the whole compiler as one readable sequence, from imported graph to program."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from compiler import cpu
from compiler.errors import CompileError, UnsupportedError
from compiler.graph import Graph, Node, Tensor
from compiler.npu.emit.context import ConstantPool, Context
from compiler.npu.emit.emitter import Emitter
from compiler.npu.emit.plan import Plans
from compiler.npu.partition import Partition
from compiler.npu.schedule.bands import Group
from compiler.npu.schedule.emission import emit_step
from compiler.npu.schedule.search import MAX_EFFORT, Measure, Schedule, Scheduler, misfits, search
from compiler.npu.steps import Arena, Step, group_steps, split_at_borders
from compiler.npu.views import View
from compiler.passes import FRONTEND, run_passes
from isa.config import NpuConfig
from isa.encoding import to_bytes
from isa.program import Buffer, CpuStep, Layer, NpuStep, Program, TensorInfo

#: Float ops that only move or select values: they cannot differ from the reference in the last bit.
_EXACT = {
    "DequantizeLinear", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Slice", "Concat",
    "Split", "Gather", "Pad", "Expand", "Tile", "Relu", "Clip", "Max", "Min", "MaxPool", "Where", "Neg", "Abs",
}  # fmt: skip
#: Stages after the front end that `print_after` knows.
BACKEND = ("partition", "schedule", "allocate", "emit")


def compile_graph(
    graph: Graph,
    config: NpuConfig,
    *,
    keep: str = "outputs",
    effort: int = 1,
    print_after: Collection[str] = (),
    progress: Callable[[str, float], None] | None = None,
    cpu_only: bool = False,
    host: cpu.Target | None = None,
    threads: int = 1,
    measure: Measure | None = None,
    scheduler: Scheduler | None = None,
    out: Callable[[str], object] = print,
) -> Program:
    """Compiles an imported graph (changed in place).

    Args:
        keep: "outputs", or "all" to store every quantised tensor in memory: nothing is fused away, nothing reused.
        effort: of the schedule search: 0 no fusion, 1 fusion by counting, 2 and 3 several schedules by `measure`.
        print_after: names of passes or back-end stages to print after ("all" for every one).
        progress: called with a stage name and the fraction done.
        cpu_only: leave the NPU out.
        host: the machine the CPU kernels are for; None for this one.
        threads: that share the work of every CPU kernel.
        measure: exact cycles of an instruction image, for efforts 2 and 3.
        scheduler: asked first for the schedule of every NPU step; None from it leaves the step to the search.

    Raises:
        CompileError: the graph cannot be compiled.
    """
    started = time.perf_counter()
    report = progress or (lambda stage, fraction: None)
    front = [n for n in print_after if n not in BACKEND]
    for name in front:
        if name != "all" and name not in {p.name for p in FRONTEND}:
            known = ", ".join([*(p.name for p in FRONTEND), *BACKEND])
            raise CompileError(f"unknown pass {name!r}; the passes are {known} (or all)")
    if not 0 <= effort <= MAX_EFFORT:
        raise CompileError(f"effort must be 0..{MAX_EFFORT}, not {effort!r}")
    report("front end", 0.0)
    run_passes(graph, FRONTEND, front, out)
    report("partition", 0.1)
    excluded: dict[str, str] = {}
    while True:
        parts = Partition.of(graph, config, keep_all=keep == "all", cpu_only=cpu_only, excluded=excluded)
        more = misfits(config, [item.layer for item in parts.items if item.layer is not None])
        if not more.keys() - excluded.keys():
            break
        excluded |= more
    available = set(graph.inputs) | {n for n, t in graph.tensors.items() if t.is_const} | set(parts.constants)
    steps = group_steps(parts.items, available)
    if keep == "all":
        steps = split_at_borders(steps, {n.outputs[0] for n in graph.nodes if n.reason})
    if _wanted("partition", print_after):
        out(_describe(steps, parts))
    builder = _Builder(graph, config, parts, steps, keep == "all", host or cpu.Target.host(), threads)
    report("schedule", 0.1)
    builder.schedule(effort, measure, scheduler, report)
    builder.place_memory()
    if _wanted("allocate", print_after):
        out(builder.describe_memory())
    program = builder.build(report)
    if _wanted("schedule", print_after):
        out("\n".join(f"{row.name}: {row.op}, {row.tile or row.where}" for row in program.layers))
    if _wanted("emit", print_after):
        from isa.assembler import disassemble

        out(disassemble(program.ops()))
    program.compile_seconds = time.perf_counter() - started
    report("done", 1.0)
    return program


def _wanted(stage: str, print_after: Collection[str]) -> bool:
    return stage in print_after or "all" in print_after


def _describe(steps: list[Step], parts: Partition) -> str:
    lines = []
    for number, step in enumerate(steps):
        lines.append(f"step {number}: {'NPU' if step.on_npu else 'CPU'}")
        for item in step.items:
            what = item.layer.describe() if item.layer is not None else _brief(item.node)
            lines.append(f"  {what}")
    lines += [f"on the CPU: {name}: {reason}" for name, reason in parts.cpu_reasons.items()]
    return "\n".join(lines)


def _brief(node: Node | None) -> str:
    assert node is not None
    if _internal(node):
        return f"{', '.join(node.outputs)} = {node.op}({', '.join(node.inputs)})"
    return str(node)


class _Builder:
    """Places memory and builds the program from ordered steps."""

    def __init__(
        self,
        graph: Graph,
        config: NpuConfig,
        parts: Partition,
        steps: list[Step],
        keep_all: bool,
        host: cpu.Target,
        threads: int,
    ) -> None:
        self.graph, self.config, self.parts, self.steps, self.keep_all = graph, config, parts, steps, keep_all
        self.target, self.threads = host, threads
        self.arena, self.host = Arena(), Arena()
        self.constants = ConstantPool()
        self.offsets: dict[str, int] = {}
        self.sections: dict[str, bytes] = {}
        self.host_constants: dict[str, str] = {}
        self.segments: dict[int, Any] = {}
        self.plans: Plans = {}
        self.schedules: dict[int, Schedule] = {}

    def schedule(
        self,
        effort: int,
        measure: Measure | None,
        scheduler: Scheduler | None,
        report: Callable[[str, float], None],
    ) -> None:
        """Chooses what stays in ACT and which layers run together."""
        for index, step in enumerate(self.steps):
            layers = [item.layer for item in step.items if item.layer is not None]
            if not step.on_npu:
                continue
            if self.keep_all:
                self.schedules[index] = Schedule([], list(layers))
                continue
            outside = self._read_outside(index)

            def done(fraction: float, index: int = index) -> None:
                report("schedule", 0.1 + 0.4 * (index + fraction) / len(self.steps))

            given = scheduler(self.config, layers, outside) if scheduler is not None else None
            self.schedules[index] = given or search(self.config, layers, outside, effort, measure, self.plans, done)

    # Memory.

    def _read_outside(self, index: int) -> set[str]:
        return {n for i, s in enumerate(self.steps) if i != index for item in s.items for n in item.reads()}

    def place_memory(self) -> None:
        """Compiles the CPU segments (their constants need places too) and places every buffer."""
        graph, parts = self.graph, self.parts
        position = 0
        end = sum(len(s.items) for s in self.steps) + 1
        for name, data in parts.constants.items():
            self.offsets[name] = self.constants.place(data)
        for name in graph.inputs:
            self.host.want(name, graph.tensor(name).nbytes, 0, end)
        for index, step in enumerate(self.steps):
            first = position
            if not step.on_npu:
                self._compile_segment(index, step, first, end)
                position += len(step.items)
                continue
            # Layers of a group run at the same time: what any of them touches lives as long as the group.
            inside = {stay.view.buffer for stay in self.schedules[index].stays}
            items = iter(step.items)
            for unit in self.schedules[index].units:
                count = len(unit.layers) if isinstance(unit, Group) else 1
                if isinstance(unit, Group):
                    inside |= {t.view.buffer for t in unit.between}
                for item in itertools.islice(items, count):
                    for name in (*item.reads(), *item.writes()):
                        if name in parts.blocked and name not in inside:
                            self.arena.want(name, parts.blocked[name], position, position + count - 1)
                position += count
        for name in graph.outputs:
            if graph.tensor(name).is_const:
                self._host_constant(name, end)
            else:
                self.host.want(name, graph.tensor(name).nbytes, 0 if name in graph.inputs else end, end)
        if self.keep_all:
            for name, nbytes in parts.blocked.items():
                self.arena.want(name, nbytes, 0, end)
        self.arena.place()
        self.host.place()
        self.offsets |= self.arena.offsets

    def _compile_segment(self, index: int, step: Step, first: int, end: int) -> None:
        graph, parts = self.graph, self.parts
        nodes = [item.node for item in step.items if item.node is not None]
        made = {name for node in nodes for name in node.outputs if name}
        inputs = list(dict.fromkeys(
            n for node in nodes for n in node.inputs if n and n not in made and not graph.tensor(n).is_const
        ))  # fmt: skip
        elsewhere = self._read_outside(index) | set(graph.outputs)
        outputs = [n for node in nodes for n in node.outputs if n in elsewhere or (n in made and self._kept(n))]
        last = first + len(step.items) - 1
        for node in nodes:
            reason = cpu.unsupported_reason(graph, node)
            if reason is not None:
                raise UnsupportedError(reason)
        segment = cpu.compile_segment(
            graph, nodes, inputs, outputs, f"tw_segment_{index}", self.target, threads=self.threads
        )
        self.segments[index] = segment
        self.sections[f"cpu{index}"] = segment.object_code
        for name in (*inputs, *outputs):
            arena = self.arena if name in parts.blocked else self.host
            nbytes = parts.blocked.get(name, graph.tensor(name).nbytes)
            arena.want(name, nbytes, first, last)
            if self._kept(name):
                arena.want(name, nbytes, 0, end)
        for name in segment.constants:
            self._host_constant(name, end)

    def _host_constant(self, name: str, end: int) -> None:
        data = self.graph.tensor(name).data
        assert data is not None
        raw = np.ascontiguousarray(data)
        self.host.want(name, raw.nbytes, 0, end)
        if name not in self.host_constants:
            section = f"constant{len(self.host_constants)}"
            self.sections[section] = raw.tobytes()
            self.host_constants[name] = section

    def _kept(self, name: str) -> bool:
        t = self.graph.tensors.get(name)
        return self.keep_all and t is not None and t.quant is not None and "@" not in name

    def describe_memory(self) -> str:
        lines = [
            f"arena {self.arena.size} bytes (separate places would take {self.arena.total}), "
            f"host {self.host.size} bytes (separately {self.host.total})"
        ]
        for space, arena in (("arena", self.arena), ("host", self.host)):
            lines += [
                f"  {space} {arena.offsets[n]:>10} +{arena.nbytes(n):<9} {n}"
                for n in sorted(arena.offsets, key=lambda n: arena.offsets[n])
            ]
        return "\n".join(lines)

    # Program.

    def build(self, report: Callable[[str, float], None]) -> Program:
        graph, config = self.graph, self.config
        emitter = Emitter(config, self.arena.size)
        context = Context(config, emitter, self.constants, self.offsets, plans=self.plans)
        steps: list[NpuStep | CpuStep] = []
        layers: list[Layer] = []
        for index, step in enumerate(self.steps):
            report("emit", 0.5 + 0.5 * index / len(self.steps))
            if step.on_npu:
                first = emitter.position
                schedule = self.schedules[index]
                schedule.use_tiles(context, [item.layer for item in step.items if item.layer is not None])
                layers += emit_step(context, schedule.units, schedule.stays)
                steps.append(NpuStep(first, emitter.position - first))
            else:
                segment = self.segments[index]
                nodes = [item.node for item in step.items if item.node is not None]
                names = [*segment.inputs, *segment.constants, *segment.outputs]
                ops = [f"{n.op} {n.name or n.outputs[0]}" for n in nodes]
                steps.append(
                    CpuStep(segment.symbol, f"cpu{index}", names, segment.workspace_bytes, ops, segment.description)
                )
                layers += [
                    Layer(n.name or n.outputs[0], n.op, "cpu", macs=graph.macs(n)) for n in nodes if not _internal(n)
                ]
        constants = self.constants.blob()
        return Program(
            name=graph.name,
            config=config,
            instructions=to_bytes(emitter.image),
            constants=constants,
            arena_bytes=self.arena.size,
            host_bytes=self.host.size,
            buffers=self._buffers(),
            inputs=[self._info(n) for n in graph.inputs],
            outputs=[self._info(n) for n in graph.outputs],
            tensors=self._tensors(),
            steps=steps,
            layers=layers,
            sections=self.sections,
            compiler=compiler_version(),
            options={
                "keep": "all" if self.keep_all else "outputs",
                "host": self.target.triple,
                "host_features": self.target.needed,
                "threads": self.threads,
            },
            notes=[f"{name} runs on the CPU: {reason}" for name, reason in self.parts.cpu_reasons.items()],
        )

    def _buffers(self) -> list[Buffer]:
        buffers = [Buffer(n, "arena", at, self.arena.nbytes(n)) for n, at in self.arena.offsets.items()]
        for name, at in self.host.offsets.items():
            buffers.append(Buffer(name, "host", at, self.host.nbytes(name), self.host_constants.get(name, "")))
        return buffers

    def _info(self, name: str) -> TensorInfo:
        t = self.graph.tensor(name)
        return TensorInfo(
            name, t.shape, t.dtype.name, name if name in self.host.offsets else "", *_quant(t), where="cpu"
        )

    def _reasons(self) -> dict[str, str]:
        """Tensors that may be off by a step: those quantised from computed floats, where a last-bit difference can flip
        a rounding, and those whose node says why."""
        producers = self.graph.producers()
        reasons = {}
        for node in self.graph.nodes:
            if node.reason:
                reasons[node.outputs[0]] = node.reason
            if node.op != "QuantizeLinear":
                continue
            ops, stack, seen = set(), [node.inputs[0]], set()
            while stack:
                name = stack.pop()
                producer = producers.get(name)
                if producer is None or name in seen or self.graph.tensor(name).dtype.kind != "f":
                    continue
                seen.add(name)
                if producer.op not in _EXACT:
                    ops.add(producer.op)
                    stack += [i for i in producer.inputs if i]
            if ops:
                reasons[node.outputs[0]] = (
                    f"quantised from float {', '.join(sorted(ops))}: last-bit differences can flip it"
                )
        return reasons

    def _tensors(self) -> list[TensorInfo]:
        infos = []
        reasons = self._reasons()
        for name, t in self.graph.tensors.items():
            if t.quant is None or t.is_const or "@" in name or t.dtype not in (np.dtype(np.int8), np.dtype(np.uint8)):
                continue
            native = self.parts.native.get(name)
            view = native.view if native is not None else None
            if native is not None and view is not None and view.buffer in self.arena.offsets and _dense(view):
                relayout = {
                    "shape": [view.n, view.cb, view.h, view.w, view.block], "block": view.block,
                    "xor": 128 if t.dtype == np.uint8 else 0, "convention": native.convention,
                }  # fmt: skip
                reason = reasons.get(name, "")
                infos.append(TensorInfo(name, t.shape, t.dtype.name, view.buffer, *_quant(t), relayout, "npu", reason))
            elif name in self.host.offsets:
                reason = reasons.get(name, "")
                infos.append(TensorInfo(name, t.shape, t.dtype.name, name, *_quant(t), None, "cpu", reason))
            elif native is not None:
                infos.append(TensorInfo(name, t.shape, t.dtype.name, "", *_quant(t), None, "npu"))
        return infos


def _dense(view: View) -> bool:
    sh = view.w * view.block
    return view.offset == 0 and (view.sh == sh or view.h == 1) and view.sc == view.h * sh and view.sn in (
        view.cb * view.sc, 0,
    )  # fmt: skip


def _quant(t: Tensor) -> tuple[Any, Any]:
    if t.quant is None:
        return None, None
    if t.quant.per_tensor:
        return float(t.quant.scale), int(t.quant.zero_point)
    return t.quant.scale.astype(float).tolist(), t.quant.zero_point.tolist()


def _internal(node: Node) -> bool:
    return node.op in ("Relayout", "PackMatMulParams")


def compiler_version() -> str:
    """ "tilewright VERSION"."""
    try:
        return f"tilewright {version('tilewright')}"
    except PackageNotFoundError:
        return "tilewright"
