"""Traces: a kernel's function runs once, and what it does on the chip becomes a program with one step of the NPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.common.version import tilewright_version
from tilewright.compiler.npu.coding.coder import WeightCoder
from tilewright.compiler.npu.emit.assembler import AssemblyError, assemble
from tilewright.compiler.npu.emit.context import ConstantPool, Context
from tilewright.compiler.npu.emit.emitter import Emitter
from tilewright.compiler.npu.emit.plan import TilePlans
from tilewright.compiler.npu.views import dense_view, plane_shape
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import ARENA_REGION, BlockedLayout, Buffer, Layer, Layout, NpuStep, Program, TensorInfo
from tilewright.isa.timing import DEFAULT_MEMORY, MemoryTiming
from tilewright.kernel.chip import Chip
from tilewright.kernel.errors import KernelError, Line
from tilewright.kernel.machine import Mark
from tilewright.kernel.places import Tensor

#: The boundary in bytes at which tensors in DRAM begin: they share no entry of the hazards.
_ALIGN = 256
Function = Callable[..., Any]


@dataclass
class Trace:
    """A kernel's function after its run.

    Attributes:
        program: the program.
        tiles: the tile program, an operation a line.
    """

    program: Program
    tiles: list[str]


class _Arena:
    """Places of tensors in DRAM, one behind the other."""

    def __init__(self, config: NpuConfig) -> None:
        self.config, self.size = config, 0
        self.offsets: dict[str, int] = {}
        self.tensors: list[Tensor] = []

    def add(self, name: str, shape: Sequence[int], line: Line | None, written: bool = False) -> Tensor:
        """Returns a new tensor of [N, C, H, W] or [rows, channels].

        Raises:
            KernelError: another tensor has its name.
        """
        if name in self.offsets:
            raise KernelError(f"two tensors are called {name!r}")
        dims = plane_shape(tuple(shape), layout_of(shape))
        assert dims is not None
        view = dense_view(name, name, ARENA_REGION, dims, self.config.block_in)
        self.offsets[name] = self.size
        self.size += -(-view.nbytes // _ALIGN) * _ALIGN
        made = Tensor(name, shape, view, line=line, written=written)
        self.tensors.append(made)
        return made


def layout_of(shape: Sequence[int]) -> Layout:
    """Returns the layout of a tensor of a kernel by its rank."""
    return Layout.CHANNELS_LAST if len(shape) == 2 else Layout.CHANNELS_FIRST


def trace(
    function: Function,
    name: str,
    config: NpuConfig,
    shapes: Mapping[str, Sequence[int]],
    constants: Mapping[str, Any],
    memory: MemoryTiming = DEFAULT_MEMORY,
) -> Trace:
    """Runs a kernel's function and returns its program.

    On a machine that decodes weights it runs twice: tables and streams need all weights before the first is loaded.

    Args:
        function: takes a `Chip`, a tensor for each of `shapes` in their order, and `constants` by name.
        name: name of the kernel.
        config: the machine.
        shapes: shapes of the inputs, by name.
        constants: constants and numbers, by name.
        memory: timing of the memory that loads are moved ahead for.

    Raises:
        KernelError: the kernel cannot be right; the message names the line.
    """
    coder = WeightCoder(config, memory=memory) if config.weight_codes else None
    if coder is not None:
        _run(function, config, shapes, constants, memory, coder)
        coder.plan()
    chip, arena, inputs, outputs = _run(function, config, shapes, constants, memory, coder)
    context = chip.context
    emitter = context.emitter
    emitter.arena_bytes = arena.size
    marks = [*chip.sections, chip.mark_of("")]
    begins = assembled(chip)
    program = Program(
        name=name, config=config, instructions=bytes(emitter.image), constants=context.constants.blob(),
        arena_bytes=arena.size, host_bytes=0,
        buffers=[Buffer(t.name, "arena", arena.offsets[t.name], t.view.nbytes) for t in arena.tensors],
        inputs=[_info(t) for t in inputs], outputs=[_info(t) for t in outputs], tensors=[],
        steps=[NpuStep(0, emitter.length)], layers=_rows(name, chip.start, marks, begins),
        compiler=tilewright_version(),
    )  # fmt: skip
    whole = program.layers[0] if len(program.layers) == 1 else None
    if whole is not None:  # what no schedule can avoid
        whole.minimum_writes = sum(t.view.nbytes for t in outputs)
        whole.minimum_bytes = whole.minimum_writes + len(program.constants) + sum(t.view.nbytes for t in inputs)
    return Trace(program, emitter.listing or [])


def _run(
    function: Function,
    config: NpuConfig,
    shapes: Mapping[str, Sequence[int]],
    constants: Mapping[str, Any],
    memory: MemoryTiming,
    coder: WeightCoder | None,
) -> tuple[Chip, _Arena, list[Tensor], list[Tensor]]:
    """Runs a kernel's function; returns the chip, the places of tensors, the inputs and the outputs."""
    arena = _Arena(config)
    inputs = [arena.add(name, shape, None, written=True) for name, shape in shapes.items()]
    emitter = Emitter(config, 0, memory=memory)
    emitter.listing = []
    collects = coder is not None and coder.collects
    context = Context(
        config, emitter, ConstantPool(), arena.offsets, plans=TilePlans(memory), timing_only=collects, coder=coder
    )
    chip = Chip(context, lambda name, shape, line: arena.add(name, shape, line))
    returned = function(chip, *inputs, **constants)
    outputs = [returned] if isinstance(returned, Tensor) else list(returned or ())
    require_outputs(outputs, chip)
    return chip, arena, inputs, outputs


def require_outputs(outputs: Sequence[Any], chip: Chip) -> None:
    """Raises `KernelError` unless the results are tensors of the kernel that are stored as a whole."""
    if not outputs:
        raise KernelError("the kernel returns no tensor: return what is to be read after a run")
    for found in outputs:
        if not isinstance(found, Tensor) or found not in chip.tensors:
            raise KernelError(f"a kernel returns tensors that it made by tensor(...), not {found!r}")
        if not found.written.all():
            missing = np.argwhere(~found.written)
            image, block, row, column = missing[0]
            raise KernelError(
                f"{found!r} is returned, but {len(missing)} of its {found.written.size} vectors are never stored, the "
                f"first at image {image}, block {block}, row {row}, column {column}", found.line,
            )  # fmt: skip


def assembled(chip: Chip) -> list[int]:
    """Assembles what was done on the chip; returns the first instruction of each operation, and of END.

    Raises:
        KernelError: a number fits no field of an instruction; the message names the line.
    """
    emitter = chip.context.emitter
    tape = emitter.tape
    try:
        return chip.context.end_step()
    except AssemblyError as error:
        raise KernelError(str(error), _line_of(chip, tape)) from None


def _line_of(chip: Chip, tape: np.ndarray) -> Line | None:
    """Returns the user's line whose operations cannot be assembled, found by halving the tile program."""
    ends = [end for _, end, _ in chip.lines]
    good, bad = 0, len(ends) - 1
    while good < bad:
        middle = (good + bad) // 2
        try:
            assemble(chip.context.emitter.machine, tape[: ends[middle]])
            good = middle + 1
        except AssemblyError:
            bad = middle
    return chip.lines[good][2] if chip.lines else None


def _rows(name: str, before: Mark, marks: Sequence[Mark], begins: Sequence[int]) -> list[Layer]:
    """Returns the rows of the reports: one for each section, and one for what lies between sections."""
    rows = []
    for mark in marks:
        if mark.position > before.position:
            first = begins[before.position]
            rows.append(Layer(
                name=before.name or name, op="kernel", where="npu", first=first, count=begins[mark.position] - first,
                macs=mark.macs - before.macs, read_bytes=mark.read_bytes - before.read_bytes,
                write_bytes=mark.write_bytes - before.write_bytes, minimum_steps=mark.products - before.products,
            ))  # fmt: skip
        before = mark
    return rows


def _info(tensor: Tensor) -> TensorInfo:
    """Returns an input or output of a program."""
    view = tensor.view
    blocks = BlockedLayout((view.n, view.cb, view.h, view.w, view.block), view.block, 0, layout_of(tensor.shape))
    return TensorInfo(tensor.name, tensor.shape, "int8", tensor.name, relayout=blocks)
