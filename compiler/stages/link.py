"""Several computations of one model as one program: entry points that share constants and states.

The programs were compiled with one pool of constants, so their instructions name the same region. Their arenas, and
what they have in host memory besides constants and states, lie over each other: one run ends before the next begins.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import replace

from msgspec import Struct, field

from tilewright.compiler.errors import CompileError
from tilewright.isa.fields import INSTRUCTION_BYTES
from tilewright.isa.program import Buffer, CpuStep, EntryPoint, NpuStep, Program, StateInfo, TensorInfo

_ALIGN = 64  # bytes; buffers of host memory begin at multiples of it


def link(name: str, programs: Mapping[str, Program], constants: bytes) -> Program:
    """The program whose entry points are `programs`.

    Args:
        programs: by the name of the entry point, compiled for one machine; states of one name are one.
        constants: the pool's, after the last of them.

    Raises:
        CompileError: programs that keep a state of one name in different ways.
    """
    shared = _Shared()
    parts = [_Part(entry, program, shared) for entry, program in programs.items()]
    base = shared.size  # scratch memory begins behind what is shared
    first = next(iter(programs.values()))
    linked = Program(
        name=name, config=first.config, instructions=b"", constants=constants,
        arena_bytes=max(p.arena_bytes for p in programs.values()), host_bytes=base + max(p.scratch for p in parts),
        buffers=list(shared.buffers.values()), inputs=[], outputs=[], tensors=[], steps=[], layers=[],
        sections=shared.sections, states=list(shared.states.values()), compiler=first.compiler, host=first.host,
        metadata=first.metadata, notes=[f"{part.entry}: {note}" for part in parts for note in part.program.notes],
    )  # fmt: skip
    for part in parts:
        part.add_to(linked, base)
        linked.windows += [window for window in part.program.windows if window not in linked.windows]
        linked.rising += [tensor for tensor in part.program.rising if tensor not in linked.rising]
        for tensor, (low, high) in part.program.input_ranges.items():
            lowest, highest = linked.input_ranges.get(tensor, (low, high))
            linked.input_ranges[tensor] = max(low, lowest), min(high, highest)  # what every entry point can represent
    linked.compile_seconds = sum(p.compile_seconds for p in programs.values())
    return linked


class _Shared(Struct):
    """Memory that entry points share: constants of the host once, by their bytes, and states by their names."""

    size: int = 0
    buffers: dict[str, Buffer] = field(default_factory=dict)
    sections: dict[str, bytes] = field(default_factory=dict)
    states: dict[str, StateInfo] = field(default_factory=dict)

    def constant(self, data: bytes, nbytes: int) -> str:
        """The buffer with these bytes."""
        name = f"constant.{hashlib.sha256(data).hexdigest()[:32]}"
        if name not in self.buffers:
            self.sections[name] = data
            self._place(name, nbytes, name)
        return name

    def state(self, entry: str, state: StateInfo, place: Buffer, initial: bytes) -> tuple[str, str]:
        """The buffers with a state: where it begins a run, and where it ends one. In blocks it stays at its place."""
        begin = f"state.{state.name}"
        known = self.states.get(state.name)
        if known is None:
            self.sections[begin] = initial
            if place.space == "host":
                self._place(begin, place.nbytes, begin)
            else:
                self.buffers[begin] = replace(place, name=begin, data=begin)
            self.states[state.name] = replace(
                state, begin=replace(state.begin, buffer=begin), end=replace(state.end, buffer=begin)
            )
        elif _kind(known.begin, self.buffers[begin]) != _kind(state.begin, place):
            raise CompileError(
                f"entry point {entry!r} keeps state {state.name!r} as {_described(state.begin)}, another one as "
                f"{_described(known.begin)}"
            )
        return begin, begin

    def _place(self, name: str, nbytes: int, section: str) -> None:
        self.buffers[name] = Buffer(name, "host", self.size, nbytes, section)
        self.size += -(-nbytes // _ALIGN) * _ALIGN


def _kind(t: TensorInfo, place: Buffer) -> tuple[object, ...]:
    """Everything in which two entry points must agree on a state; in the device's memory its place, too."""
    where = None if place.space == "host" else place.offset
    return t.dtype, tuple(t.shape), t.scale, t.zero_point, t.relayout, where


def _described(t: TensorInfo) -> str:
    scale = "" if t.scale is None else f" of scale {t.scale:g} and zero point {t.zero_point}"
    return f"{t.dtype}{list(t.shape)}{scale}{'' if t.relayout is None else ' in blocks'}"


class _Part:
    """An entry point, and where its buffers go.

    Attributes:
        scratch: bytes of host memory that are neither constants nor states.
    """

    def __init__(self, entry: str, program: Program, shared: _Shared) -> None:
        self.entry, self.program, self.shared = entry, program, shared
        self.names: dict[str, str] = {}
        gone: list[Buffer] = []  # of host memory
        for state in program.states:
            begin, end = program.buffer(state.begin.buffer), program.buffer(state.end.buffer)
            if begin.offset != end.offset:
                raise CompileError(f"entry point {entry!r} cannot change state {state.name!r} in place")
            places = shared.state(entry, state, begin, program.sections[begin.data])
            self.names[begin.name], self.names[end.name] = places
            if begin.space == "host":
                gone.append(begin)
        for b in program.buffers:
            if b.space == "host" and b.data and b.name not in self.names:
                self.names[b.name] = shared.constant(program.sections[b.data], b.nbytes)
                gone.append(b)
        gone.sort(key=lambda b: b.offset)
        self._ends = [b.offset + -(-b.nbytes // _ALIGN) * _ALIGN for b in gone]
        self._freed = [0]
        for b in gone:
            self._freed.append(self._freed[-1] + -(-b.nbytes // _ALIGN) * _ALIGN)
        self.scratch = program.host_bytes - self._freed[-1]

    def add_to(self, linked: Program, base: int) -> None:
        """Appends instructions, steps and layers, and the buffers that are this entry point's alone."""
        program, instructions = self.program, len(linked.instructions) // INSTRUCTION_BYTES
        first_step, first_layer = len(linked.steps), len(linked.layers)
        linked.instructions += program.instructions
        for b in program.buffers:
            if b.name in self.names:
                continue
            offset = b.offset if b.space == "arena" else base + b.offset - self._freed[self._before(b.offset)]
            self.names[b.name] = f"{self.entry}.{b.name}"
            linked.buffers.append(Buffer(self.names[b.name], b.space, offset, b.nbytes))
        for step in program.steps:
            linked.steps.append(self._step(step, instructions, linked.sections))
        linked.layers += [replace(row, first=row.first + instructions if row.count else 0) for row in program.layers]
        linked.host_work += [replace(work, step=work.step + first_step) for work in program.host_work]
        linked.lookups += [replace(rows, buffer=self.names[rows.buffer], entry=self.entry) for rows in program.lookups]
        inputs, outputs = self._infos(program.inputs), self._infos(program.outputs)
        steps, layers = (first_step, len(program.steps)), (first_layer, len(program.layers))
        linked.entries.append(EntryPoint(self.entry, inputs, outputs, *steps, *layers))

    def _before(self, offset: int) -> int:
        """Returns the number of shared buffers before this offset."""
        return bisect_left(self._ends, offset + 1)

    def _step(self, step: NpuStep | CpuStep, instructions: int, sections: dict[str, bytes]) -> NpuStep | CpuStep:
        if isinstance(step, NpuStep):
            return replace(step, first=step.first + instructions)
        section = f"{self.entry}.{step.section}"
        sections[section] = self.program.sections[step.section]
        return replace(step, section=section, buffers=[self.names[name] for name in step.buffers])

    def _infos(self, tensors: Iterable[TensorInfo]) -> list[TensorInfo]:
        return [replace(t, buffer=self.names.get(t.buffer, "")) for t in tensors]
