"""Package: everything into one `Program`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.common.version import tilewright_version
from tilewright.compiler import cpu
from tilewright.compiler.errors import CompileError
from tilewright.compiler.graph.graph import Graph, State, Tensor
from tilewright.compiler.graph.ops.put import QPut
from tilewright.compiler.graph.ops.row import QRow
from tilewright.compiler.graph.states import blocked_shape
from tilewright.compiler.npu.blocks.blocked import Blocked
from tilewright.compiler.npu.views import is_dense
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.stages.emission import Emission
from tilewright.compiler.stages.exactness import dynamic_tensors, inexact_tensors
from tilewright.compiler.stages.memory import MemoryMap, constant_bytes
from tilewright.compiler.stages.note_forms import notes_of
from tilewright.compiler.stages.notes import notes_on
from tilewright.compiler.stages.partition import Partition
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import (
    WINDOW_REGION,
    BlockedLayout,
    Buffer,
    HostFacts,
    KernelWork,
    Layout,
    Lookup,
    Program,
    StateInfo,
    TensorInfo,
    Window,
)

_STEPS = (np.dtype(np.int8), np.dtype(np.uint8), np.dtype(np.int16))


def package(
    graph: Graph,
    config: NpuConfig,
    partition: Partition,
    segments: dict[int, cpu.Segment],
    memory: MemoryMap,
    emission: Emission,
    options: CompileOptions,
    input_ranges: dict[str, tuple[float, float]],
) -> Program:
    """The program: what the stages before it made, and what a user may want to know of the model's tensors.

    Raises:
        CompileError: it needs more memory than the machine has addresses for.
    """
    target = options.target()
    instructions, constants = emission.image, memory.constants.blob()
    _check_reach(config, len(instructions) + len(constants) + memory.arena.size)
    states = {name for state in graph.states for name in (state.begin, state.end)}
    windows = _windows(graph, config, partition)
    for window in windows:
        if window.space == "constant":  # a negative number is no row of a table
            low, high = input_ranges.get(window.tensor, (0, window.period - 1))
            input_ranges |= {window.tensor: (max(low, 0.0), min(high, window.period - 1.0))}
    return Program(
        name=graph.name,
        config=config,
        instructions=instructions,
        constants=constants,
        arena_bytes=memory.arena.size,
        host_bytes=memory.host.size,
        buffers=_buffers(graph, memory),
        inputs=[_info(graph, memory, name) for name in graph.inputs if name not in states],
        outputs=[_output(graph, partition, memory, name) for name in graph.outputs if name not in states],
        states=[_state(graph, memory, state) for state in graph.states],
        tensors=_quantised_tensors(graph, partition, memory, options.keep_all),
        steps=emission.steps,
        later=emission.later,
        windows=windows,
        lookups=[
            Lookup(
                rows.tensor, rows.buffer, memory.blocked_constants[rows.table], rows.rows, rows.stride, config.block_in
            )
            for rows in partition.lookups
        ],
        rising=sorted({window.tensor for window in windows if graph.tensor(window.tensor).size > 1}),
        layers=emission.layers,
        sections=_sections(graph, segments, memory),
        compiler=tilewright_version(),
        keep_all=options.keep_all,
        host=HostFacts(target.triple, tuple(target.needed), options.threads),
        input_ranges=input_ranges,
        metadata=dict(graph.metadata),
        host_work=_host_work(segments),
        notes=[
            *graph.notes,
            *(
                f"{name}: the runtime makes floats of {graph.tensor(name).size} bytes as it reads them"
                for name in partition.steps_of
            ),
            *(
                f"{rows.tensor}: the runtime copies {graph.tensor(rows.tensor).size} rows of {rows.stride} bytes as it "
                "writes them"
                for rows in partition.lookups
            ),
            *notes_on(graph, emission.layers, config, options.cpu_only),
            *([emission.coder.describe()] if emission.coder is not None and emission.coder.plain else []),
            *notes_of(partition.placement.reasons),
        ],
    )


def _check_reach(config: NpuConfig, needed: int) -> None:
    reached = 1 << config.axi_address_bits
    if needed > reached:
        raise CompileError(
            f"instructions, constants and tensors take {needed / 2**20:.1f} MiB; {config.name} reaches "
            f"{reached / 2**20:.0f} MiB of memory: axi_address_bits must be at least {(needed - 1).bit_length()}, "
            f"not {config.axi_address_bits}"
        )


def _host_work(segments: dict[int, cpu.Segment]) -> list[KernelWork]:
    """Returns the work of the kernels of every CPU step."""
    found = []
    for number, segment in segments.items():
        for cost in segment.costs:
            names = " + ".join(node.name or node.outputs[0] for node in cost.nodes)
            ops = " + ".join(dict.fromkeys(node.op for node in cost.nodes))
            work = {kind: round(amount) for kind, amount in vars(cost.work).items() if round(amount)}
            found.append(KernelWork(number, names, ops, work, cost.nbytes))
    return found


def _sections(graph: Graph, segments: dict[int, cpu.Segment], memory: MemoryMap) -> dict[str, bytes]:
    """Object code and constants of the CPU steps, constants that are outputs of the model, first values of states."""
    sections: dict[str, bytes] = {}

    def add_constants(names: list[str]) -> None:
        for name in names:
            if name in memory.host_constants and memory.host_constants[name] not in sections:
                sections[memory.host_constants[name]] = constant_bytes(graph, name)

    for number, segment in segments.items():
        sections[f"cpu{number}"] = segment.object_code
        add_constants(segment.constants)
    add_constants(graph.outputs)
    for number, state in enumerate(graph.states):
        sections[f"state{number}"] = np.ascontiguousarray(state.initial).tobytes()
    return sections


def _buffers(graph: Graph, memory: MemoryMap) -> list[Buffer]:
    arena, host = memory.arena, memory.host
    data = memory.host_constants | {state.begin: f"state{number}" for number, state in enumerate(graph.states)}
    buffers = [Buffer(name, "arena", at, arena.nbytes(name), data.get(name, "")) for name, at in arena.offsets.items()]
    for name, at in host.offsets.items():
        buffers.append(Buffer(name, "host", at, host.nbytes(name), data.get(name, "")))
    return buffers


def _windows(graph: Graph, config: NpuConfig, partition: Partition) -> list[Window]:
    """The windows in which the NPU puts rows into states, and reads those of tables."""
    found: list[Window] = []
    for node in graph.nodes:
        if not partition.placement.on_npu(node):
            continue
        match node.quantized:
            case QPut(position=position):
                _, length, lanes = graph.tensor(node.inputs[0]).shape
                found.append(Window(WINDOW_REGION, position, length, lanes))
            case QRow(region=region, period=period):
                table, y = graph.tensor(node.inputs[0]), graph.tensor(node.outputs[0])
                stride, rows = QRow.stride(table, config.block_in), QRow.starts(table, y, period)
                found.append(Window(region, node.inputs[1], period, stride, rows, "constant"))
    return sorted(dict.fromkeys(found), key=lambda window: window.region)


def _state(graph: Graph, memory: MemoryMap, state: State) -> StateInfo:
    """A state, in its own shape where its tensors are its blocks."""
    ends = [_info(graph, memory, name) for name in (state.begin, state.end)]
    if state.plain:
        shape = blocked_shape(graph, state)
        blocks = BlockedLayout(shape, shape[-1], 0, Layout.CHANNELS_LAST)
        own = state.shape or graph.tensor(state.plain).shape
        ends = [replace(info, shape=own, buffer=info.name, relayout=blocks, where="npu") for info in ends]
    return StateInfo(state.name, *ends)


def _output(graph: Graph, partition: Partition, memory: MemoryMap, name: str) -> TensorInfo:
    """An output of the model; of floats that the runtime makes, the steps in blocks."""
    source = partition.steps_of.get(name)
    if source is None:
        return _info(graph, memory, name)
    t, steps = graph.tensor(name), graph.tensor(source)
    blocked = partition.layouts.blocked[source]
    layout = _layout_in(blocked, steps)
    return TensorInfo(name, t.shape, t.dtype.name, blocked.view.buffer, *_quantisation(steps), relayout=layout)


def _info(graph: Graph, memory: MemoryMap, name: str) -> TensorInfo:
    """An input or output of the model."""
    t = graph.tensor(name)
    buffer = name if name in memory.host.offsets else ""
    return TensorInfo(name, t.shape, t.dtype.name, buffer, *_quantisation(t), where="cpu")


def _quantised_tensors(graph: Graph, partition: Partition, memory: MemoryMap, keep_all: bool) -> list[TensorInfo]:
    """The model's quantised tensors that are in memory, or that the NPU keeps on the chip."""
    infos = []
    dynamic = dynamic_tensors(graph) if keep_all else set()
    reasons = inexact_tensors(graph)
    for name, t in graph.tensors.items():
        if (
            name not in partition.tensors
            or t.is_const
            or t.dtype not in _STEPS
            or (t.quant is None and name not in dynamic)
        ):
            continue
        info = TensorInfo(name, t.shape, t.dtype.name, "", *_quantisation(t), reason=reasons.get(name, ""))
        blocked = partition.layouts.blocked.get(name)
        if blocked is not None and blocked.view.buffer in memory.arena.offsets and is_dense(blocked.view):
            info.buffer, info.relayout = blocked.view.buffer, _layout_in(blocked, t)
        elif name in memory.host.offsets:
            info.buffer, info.where = name, "cpu"
        elif blocked is not None:
            info.reason = ""
        else:
            continue
        infos.append(info)
    return infos


def _layout_in(blocked: Blocked, t: Tensor) -> BlockedLayout:
    """The layout of a quantised tensor in a buffer that has nothing but its blocks."""
    v = blocked.view
    return BlockedLayout((v.n, v.cb, v.h, v.w, v.block), v.block, 128 if t.dtype == np.uint8 else 0, blocked.layout)


def _quantisation(t: Tensor) -> tuple[float | list[float] | None, int | list[int] | None]:
    if t.quant is None:
        return None, None
    if t.quant.per_tensor:
        return float(t.quant.scale), int(t.quant.zero_point)
    return t.quant.scale.astype(float).tolist(), t.quant.zero_point.tolist()
