"""Emission: the instructions of every NPU step, and the rows of the reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from msgspec import Struct, field

from tilewright.compiler import cpu
from tilewright.compiler.errors import CompileError
from tilewright.compiler.graph.graph import Graph
from tilewright.compiler.npu.blocks.tasks import is_conversion
from tilewright.compiler.npu.bound import LowerBound, lower_bounds
from tilewright.compiler.npu.coding.coder import WeightCoder
from tilewright.compiler.npu.emit.context import ConstantPool, Context
from tilewright.compiler.npu.emit.emitter import Emitter
from tilewright.compiler.npu.emit.mlir_listing import TileWriter
from tilewright.compiler.npu.emit.staying import require_staying
from tilewright.compiler.npu.schedule.emission import emit_step
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.stages.memory import MemoryMap
from tilewright.compiler.stages.order import LayerStep, NodeStep, Step
from tilewright.compiler.stages.schedule import Schedules
from tilewright.isa.config import NpuConfig
from tilewright.isa.encoding import from_bytes
from tilewright.isa.fields import INSTRUCTION_BYTES
from tilewright.isa.program import CpuStep, Layer, NpuStep


class Emission(Struct):
    """The instructions of a program, and what reports say of them.

    Attributes:
        image: all instructions, `INSTRUCTION_BYTES` each.
        steps: of the program, in order.
        layers: rows of the reports, in order.
        later: in place of the NPU step, for runs that find the weights in WGT; empty where they do not stay there.
        coder: what it did to the weights, None where there is no decoder.
        tiles: lines of the tile programs, where they are to be printed.
    """

    image: bytes
    steps: list[NpuStep | CpuStep]
    layers: list[Layer]
    later: list[NpuStep] = field(default_factory=list)
    coder: WeightCoder | None = None
    tiles: list[str] = field(default_factory=list)

    def describe_layers(self) -> str:
        """One line per layer, with its tiles."""
        return "\n".join(f"{row.name}: {row.op}, {row.tile or row.where}" for row in self.layers)

    def describe_instructions(self) -> str:
        """The whole image as assembly."""
        from tilewright.isa.assembler import disassemble

        return disassemble(from_bytes(self.image))

    def verify(self) -> None:
        """Raises `CompileError` unless the NPU steps are slices that cover the image, each with END as its last."""
        at, end = 0, len(self.image) // INSTRUCTION_BYTES
        for step in (*self.steps, *self.later):
            if isinstance(step, NpuStep):
                if step.first != at or step.count < 1:
                    raise CompileError(f"emission broken: a step starts at instruction {step.first}, not {at}")
                at += step.count
                last = self.image[(at - 1) * INSTRUCTION_BYTES : at * INSTRUCTION_BYTES]
                if at > end or from_bytes(last)[0].name != "END":
                    raise CompileError(f"emission broken: instruction {at - 1} is not the END of its step")
        if at != end:
            raise CompileError(f"emission broken: the steps have {at} instructions, the image {end}")


def emit(
    graph: Graph,
    config: NpuConfig,
    steps: list[Step],
    schedules: Schedules,
    segments: dict[int, cpu.Segment],
    memory: MemoryMap,
    options: CompileOptions,
    *,
    read_behind: set[str],
    progress: Callable[[float], None] = lambda done: None,
) -> Emission:
    """Emits all steps; what the layers need of weights, parameters and tables goes to the memory's constants."""
    emitter = Emitter(config, memory.arena.size, memory=options.memory)
    if options.prints("tiles"):
        emitter.listing = []
        if options.print_form == "mlir":
            emitter.lines = TileWriter().lines
    if options.keep_weights:
        emitter.later = bytearray()
    context = Context(config, emitter, memory.constants, memory.device_offsets, plans=schedules.plans)
    context.coder = _coder(config, steps, schedules, memory, options) if config.weight_codes else None
    bounds = layer_bounds(graph, config, steps, read_behind)
    ran: list[NpuStep | CpuStep] = []
    rows: list[Layer] = []
    for number, step in enumerate(steps):
        progress(number / len(steps))
        if isinstance(step, LayerStep):
            first = emitter.length
            schedule = schedules.of[number]
            schedule.use_tiles(context, step.tasks)
            made = emit_step(context, schedule.units, schedule.stays)
            rows += [with_bound(row, bounds[id(layer)]) for row, layer in zip(made, step.tasks, strict=True)]
            ran.append(NpuStep(first, emitter.length - first))
        else:
            ran.append(_cpu_step(number, step, segments[number]))
            rows += [
                Layer(node.name or node.outputs[0], node.op, "cpu", macs=graph.macs(node))
                for node in step.tasks
                if not is_conversion(node)
            ]
    later = _later(emitter, [step for step in ran if isinstance(step, NpuStep)])
    emission = Emission(bytes(emitter.image), ran, rows, later, context.coder, emitter.listing or [])
    emission.verify()
    return emission


def _later(emitter: Emitter, steps: list[NpuStep]) -> list[NpuStep]:
    """Appends the instructions of runs that find the weights in WGT, where they stay there; returns the steps of these.

    Raises:
        CompileError: they do not stay, or there is not one step.
    """
    if emitter.later is None:
        return []
    if len(steps) != 1:
        raise CompileError(f"weights stay in WGT if one turn of the NPU runs all layers; this program has {len(steps)}")
    require_staying(from_bytes(bytes(emitter.image)), emitter.config)
    first = emitter.length
    emitter.image += emitter.later
    return [NpuStep(first, emitter.length - first)]


def _coder(
    config: NpuConfig, steps: list[Step], schedules: Schedules, memory: MemoryMap, options: CompileOptions
) -> WeightCoder:
    """Returns the coder of the weights, which knows all loads from a first emission whose instructions are dropped."""
    coder = WeightCoder(config, options.small_weights, options.memory)
    pool = ConstantPool(memory.constants.shared)
    context = Context(
        config, Emitter(config, memory.arena.size), pool, memory.device_offsets, plans=schedules.plans,
        timing_only=True, coder=coder,
    )  # fmt: skip
    for number, step in enumerate(steps):
        if isinstance(step, LayerStep):
            schedule = schedules.of[number]
            schedule.use_tiles(context, step.tasks)
            emit_step(context, schedule.units, schedule.stays)
    coder.plan()
    return coder


def layer_bounds(graph: Graph, config: NpuConfig, steps: list[Step], read_behind: set[str]) -> dict[int, LowerBound]:
    """Returns the lower bound of every layer of the NPU, by `id` of the layer.

    Args:
        read_behind: buffers that are read behind a run.
    """
    layers = [step.tasks for step in steps if isinstance(step, LayerStep)]
    on_cpu = {name for step in steps if isinstance(step, NodeStep) for node in step.tasks for name in node.inputs}
    return lower_bounds(config, layers, on_cpu | read_behind, {name: t.nbytes for name, t in graph.tensors.items()})


def with_bound(row: Layer, bound: LowerBound) -> Layer:
    """Returns the row of a report with a layer's lower bound."""
    return replace(
        row, minimum_bytes=bound.reads + bound.writes, minimum_writes=bound.writes, minimum_steps=bound.steps,
        after_all=bound.after_all,
    )  # fmt: skip


def _cpu_step(number: int, step: NodeStep, segment: cpu.Segment) -> CpuStep:
    buffers = [*segment.inputs, *segment.constants, *segment.outputs]
    ops = [f"{node.op} {node.name or node.outputs[0]}" for node in step.tasks]
    return CpuStep(segment.symbol, f"cpu{number}", buffers, segment.workspace_bytes, ops, segment.description)
