"""`Executor`: runs the steps of a `Program` on a `Device`, CPU steps in this process.

Nothing is computed here: constants and instructions are copied into device memory once, inputs at each run; NPU steps
run on the device, CPU steps are native kernels that get addresses. Where the host shares the device's memory the
kernels work in it directly, elsewhere a step's buffers are copied over and back.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.common.allocator import MemoryFull
from tilewright.common.shown import Shown, listed
from tilewright.errors import UsageError
from tilewright.isa.assembler import disassemble_one
from tilewright.isa.device import Counters, Device, DeviceError, Region, TakesLaunches
from tilewright.isa.encoding import DecodeError, decode
from tilewright.isa.fields import INSTRUCTION_BYTES
from tilewright.isa.program import (
    ARENA_REGION,
    CONSTANT_REGION,
    PROGRAM_REGION,
    Buffer,
    CpuStep,
    Lookup,
    NpuStep,
    Program,
    TensorInfo,
)
from tilewright.runtime.binding import Binding, ExpectedInputs, bound
from tilewright.runtime.checks import check_config, check_host
from tilewright.runtime.counters import add_counters
from tilewright.runtime.forcing import Forcing
from tilewright.runtime.inputs import check_inputs
from tilewright.runtime.layout import nbytes_of, put_tensor, to_tensor
from tilewright.store import trust

ALIGNMENT = 64  # bytes; what kernels may assume of every buffer that is at a multiple of it in its arena


def aligned_zeros(nbytes: int) -> np.ndarray:
    """Zeroed host bytes at an aligned address."""
    raw = np.zeros(nbytes + ALIGNMENT, np.uint8)
    return raw[-raw.ctypes.data % ALIGNMENT :][:nbytes]


def load_kernel(object_code: bytes, symbol: str, threads: int) -> Callable[..., None]:
    """The CPU step's entry point."""
    from tilewright.compiler.cpu.object import (
        loader,  # LLVM takes 0.2 s to import; programs without CPU steps need none
    )

    return loader.load(object_code, symbol, threads)


def initial_states(program: Program) -> dict[str, np.ndarray]:
    """The values with which the first run of a program begins, by the name of the state."""
    found = {}
    for state in program.states:
        data = program.sections[program.buffer(state.begin.buffer).data]
        found[state.name] = to_tensor(np.frombuffer(data, np.uint8), state.begin)
    return found


@dataclass(repr=False)
class RunResult(Shown):
    """The results of a run: outputs, what the device counted, and times.

    Attributes:
        outputs: graph outputs by name.
        counters: the device's, summed over the NPU steps.
        seconds: wall time of each step, in the program's order.
        observed: with forcing, each forced tensor as the program computed it.
        unwritten: with forcing, bytes of each forced tensor that no step wrote.
        step_of: with forcing, the last step that wrote each forced tensor.
    """

    outputs: dict[str, np.ndarray]
    counters: Counters
    seconds: list[float]
    observed: dict[str, np.ndarray] = field(default_factory=dict)
    unwritten: dict[str, int] = field(default_factory=dict)
    step_of: dict[str, int] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """Returns facts, for `repr` and notebooks."""
        shapes = (f"{name} {np.shape(value)}" for name, value in self.outputs.items())
        return {"outputs": listed(shapes), "cycles": self.counters.cycles, "seconds": sum(self.seconds)}


class Executor:
    """A program loaded into a device.

    Args:
        program: what to run.
        device: where; everything allocated on it before is given back, unless it goes `beside` that.
        states: what the next run begins with of what the program keeps from one run to the next, by name; None for
            the values of a first run.

    Raises:
        ConfigMismatchError: the program is for another configuration, or its CPU kernels for another machine.
        UntrustedError: it has CPU kernels of somebody whom the user does not trust.
        UsageError: parts of it contradict each other. MemoryFull: no memory for it.
    """

    def __init__(
        self, program: Program, device: Device, beside: bool = False, states: Mapping[str, np.ndarray] | None = None
    ) -> None:
        check_config(program, device)
        check_host(program)
        trust.require(program)
        self.program, self.device = program, device
        self.buffers = {b.name: b for b in program.buffers}
        try:
            program.check()
        except ValueError as error:
            raise UsageError(f"{program.name}: {error}") from None
        if not beside:
            device.free_all()
        self.bases: dict[str, int] = {}
        sizes = {"program": len(program.instructions), "constant": len(program.constants), "arena": program.arena_bytes}
        try:
            for space, nbytes in sizes.items():
                self.bases[space] = device.allocate(max(nbytes, ALIGNMENT))
        except MemoryFull as error:
            self.unload()
            raise MemoryFull(f"{program.name} needs {sum(sizes.values())} bytes of device memory: {error}") from None
        if program.instructions:
            device.write(self.bases["program"], program.instructions)
        if program.constants:
            device.write(self.bases["constant"], program.constants)
        self.host = self._zeros(program.host_bytes)
        for buffer in program.buffers:
            if not buffer.data:
                continue
            data = np.frombuffer(program.sections[buffer.data], np.uint8)
            if buffer.space == "host":
                self.host[buffer.offset : buffer.offset + data.size] = data
            else:  # a state in blocks
                device.write(self.bases[buffer.space] + buffer.offset, data)
        cpu_steps = [s for s in program.steps if isinstance(s, CpuStep)]
        self.workspace = self._zeros(max((s.workspace for s in cpu_steps), default=0))
        self._kernels = {
            (s.section, s.symbol): load_kernel(program.sections[s.section], s.symbol, program.host.threads)
            for s in cpu_steps
        }
        self.regions = self._regions()
        self._entries: dict[str | None, tuple[Program, ExpectedInputs]] = {}
        self._moving = [s for s in program.states if not self._same_place(s.begin, s.end)]
        self._binding: Binding | None = None
        self._bound_at = 0
        self._ended = False
        self._weights_at: int | None = None  # launches of the device when the weights were in WGT last
        if states:
            self.set_states(states)

    def unload(self) -> None:
        """Gives the device memory back; the program cannot run any more."""
        while self.bases:
            self.device.free(self.bases.popitem()[1])

    def _zeros(self, nbytes: int) -> np.ndarray:
        """Host memory. Raises `MemoryFull`."""
        try:
            return aligned_zeros(nbytes)
        except MemoryError:
            self.unload()
            raise MemoryFull(f"{self.program.name} needs {nbytes} bytes of this machine's memory") from None

    def _regions(self) -> list[Region]:
        program = self.program
        regions = [Region()] * (1 + max([ARENA_REGION, *(window.region for window in program.windows)]))
        regions[PROGRAM_REGION] = Region(self.bases["program"], len(program.instructions), read=True)
        regions[CONSTANT_REGION] = Region(self.bases["constant"], len(program.constants), read=True)
        regions[ARENA_REGION] = Region(self.bases["arena"], program.arena_bytes, read=True, write=True)
        return regions

    def _entry(self, name: str | None) -> tuple[Program, ExpectedInputs]:
        """The program of an entry point, and its inputs; made on first use."""
        if name not in self._entries:
            program = self.program.entry(name)
            self._entries[name] = program, ExpectedInputs(program)
        return self._entries[name]

    def _bind(self) -> Binding:
        """Addresses of buffers, looked up again where the device's memory has moved: it grows as a whole."""
        arena = self.device.view(self.bases["arena"], 1)
        place = arena.__array_interface__["data"][0] if arena is not None else 0  # ctypes takes five times as long
        if self._binding is None or place != self._bound_at:
            steps = [step for step in self.program.steps if isinstance(step, CpuStep)]
            infos = [*self.program.inputs, *self.program.outputs]
            infos += [info for state in self.program.states for info in (state.begin, state.end)]
            infos += [info for entry in self.program.entries for info in (*entry.inputs, *entry.outputs)]
            self._binding = Binding(
                steps, infos, lambda name: self._memory(self.buffers[name]), self._kernels, self.workspace
            )
            self._bound_at = place
        return self._binding

    # Memory.

    def _memory(self, buffer: Buffer, nbytes: int | None = None) -> np.ndarray | None:
        """The buffer's bytes themselves, None where they are behind a link."""
        size = buffer.nbytes if nbytes is None else nbytes
        if buffer.space == "host":
            return self.host[buffer.offset : buffer.offset + size]
        return self.device.view(self.bases[buffer.space] + buffer.offset, size)

    def read_buffer(self, buffer: Buffer) -> np.ndarray:
        """The bytes of a buffer, uint8: a view where it lies in this process's memory, else a copy."""
        memory = self._memory(buffer)
        if memory is not None:
            return memory
        if buffer.space == "constant":  # nobody changes it, so it need not cross the link
            return np.frombuffer(self.program.constants, np.uint8)[buffer.offset :][: buffer.nbytes]
        return self.device.read(self.bases[buffer.space] + buffer.offset, buffer.nbytes)

    def get(self, info: TensorInfo) -> np.ndarray:
        """The value of a tensor kept in memory, as a fresh array."""
        return to_tensor(self.read_buffer(self.buffers[info.buffer]), info)

    def put(self, info: TensorInfo, value: np.ndarray) -> None:
        """Overwrites a tensor kept in memory."""
        buffer = self.buffers[info.buffer]
        memory = self._memory(buffer, nbytes_of(info))
        if memory is not None:
            put_tensor(memory, info, value)
            return
        padded = info.relayout is not None  # bytes between the values, which stay
        raw = self.read_buffer(buffer)[: nbytes_of(info)] if padded else np.zeros(nbytes_of(info), np.uint8)
        put_tensor(raw, info, value)
        self.device.write(self.bases[buffer.space] + buffer.offset, raw)

    # States: each lies where it begins a run; after a run, where it ends one, which may be the same place.

    def states(self) -> dict[str, np.ndarray]:
        """Copies of what the next run begins with, by name."""
        return {s.name: self.get(s.end if self._ended else s.begin) for s in self.program.states}

    def set_states(self, values: Mapping[str, np.ndarray]) -> None:
        """Makes the next run begin with these values."""
        for state in self.program.states:
            self.put(state.begin, values[state.name])
        self._ended = False

    def _begin_run(self, binding: Binding) -> None:
        """Copies the states of the last run to the inputs of this one; those changed in place are there."""
        moved = [(s.begin, self._value(s.end, binding)) for s in self._moving] if self._ended else []
        for info, value in moved:  # only now: where one state ends another may begin
            self._place(info, value, binding)
        self._ended = False

    def _value(self, info: TensorInfo, binding: Binding) -> np.ndarray:
        """The value of a tensor, by its view where there is one."""
        view = binding.view(info)
        return self.get(info) if view is None else view.copy()

    def _place(self, info: TensorInfo, value: np.ndarray, binding: Binding) -> None:
        """Overwrites a tensor, by its view where there is one."""
        view = binding.view(info)
        if view is None:
            self.put(info, value)
        else:
            view[...] = value

    def _same_place(self, a: TensorInfo, b: TensorInfo) -> bool:
        first, second = self.buffers[a.buffer], self.buffers[b.buffer]
        return (first.space, first.offset) == (second.space, second.offset)

    # Running.

    def run(
        self,
        inputs: Mapping[str, Any] | np.ndarray,
        *,
        force: Mapping[str, np.ndarray] | None = None,
        entry: str | None = None,
        watchdog: int = 0,
        timeout: int = 0,
        **options: Any,
    ) -> RunResult:
        """Runs the program once.

        Args:
            inputs: by name.
            entry: of the program's entry points, where it has some.
            force: values that replace tensors kept in memory, each as soon as a step has written it, before the next
                step reads it; see `tilewright.runtime.forcing`.
            watchdog, timeout: cycles, 0 for none; see `Device.run`.
            options: handed to the device.

        Raises:
            InputError: inputs that do not fit. DeviceError: the machine stopped; names layer and instruction.
        """
        program, expected = self._entry(entry)
        arrays = inputs if isinstance(inputs, dict) and expected.fit(inputs) else check_inputs(program, inputs)
        binding = self._bind()
        forcing = Forcing(self, force) if force else None
        if forcing:
            forcing.prepare()
        self._begin_run(binding)
        for info in program.inputs:
            if info.buffer:
                self._place(info, arrays[info.name], binding)
        if forcing:
            forcing.after_step(-1)
        counters: list[Counters] = []
        seconds: list[float] = []
        run_npu: Callable[..., Counters] = self._run_npu
        if self.program.later and isinstance(self.device, TakesLaunches) and self.device.launches is not None:
            run_npu = functools.partial(self._run_keeping, self.device)
        if program.windows:
            self._move_windows(program, arrays)
        for rows in program.lookups:
            self._look_up(rows, arrays[rows.tensor])
        for index, step in enumerate(program.steps):
            start = time.perf_counter()
            if isinstance(step, NpuStep):
                counters.append(run_npu(step, watchdog=watchdog, timeout=timeout, **options))
            elif (call := binding.call(step)) is not None:
                call()
            else:
                self._run_cpu(step)
            seconds.append(time.perf_counter() - start)
            if forcing:
                forcing.after_step(index)
        outputs = {info.name: self._value(info, binding) for info in program.outputs}
        self._ended = True
        result = RunResult(outputs, add_counters(counters), seconds)
        if forcing:
            result.observed, result.unwritten, result.step_of = forcing.observed, forcing.unwritten(), forcing.step_of
        return result

    def _move_windows(self, program: Program, arrays: Mapping[str, Any]) -> None:
        """Moves the regions that begin at another row in every run."""
        for window in program.windows:
            value = arrays.get(window.tensor)
            offset = 0 if value is None else window.offset(int(np.asarray(value).reshape(-1)[0]))
            arena = window.space == "arena"
            size = program.arena_bytes if arena else len(program.constants)
            self.regions[window.region] = Region(
                self.bases[window.space] + offset, size - offset, read=True, write=arena
            )

    def _look_up(self, lookup: Lookup, values: np.ndarray) -> None:
        """Copies the rows of a table for the values of an input to where the NPU reads them."""
        size = lookup.rows * lookup.stride
        table = np.frombuffer(self.program.constants, np.uint8, size, lookup.offset)
        rows = table.reshape(lookup.rows, -1, lookup.block)[values.reshape(-1) % lookup.rows]
        buffer = self.buffers[lookup.buffer]
        blocks = np.ascontiguousarray(rows.transpose(1, 0, 2)).reshape(-1)
        self.device.write(self.bases[buffer.space] + buffer.offset, blocks)

    def _run_npu(self, step: NpuStep, **options: Any) -> Counters:
        try:
            offset = step.first * INSTRUCTION_BYTES
            return self.device.run(self.regions, PROGRAM_REGION, offset, step.count, **options)
        except DeviceError as error:
            raise self._located(error, step) from error

    def _run_keeping(self, device: TakesLaunches, step: NpuStep, **options: Any) -> Counters:
        """Runs the NPU step of a program whose weights stay: that of later runs if nothing ran since the one before."""
        with device.turn:
            if device.launches == self._weights_at:
                (step,) = self.program.later
            self._weights_at = None
            counters = self._run_npu(step, **options)
            self._weights_at = device.launches
            return counters

    def _located(self, error: DeviceError, step: NpuStep) -> DeviceError:
        """Adds to an error the layer and the instruction it happened in, all indices from the program's start."""
        name = self.program.name
        reason = re.sub(r"\binstruction (\d+)", lambda m: f"instruction {step.first + int(m[1])}", str(error))
        if error.pc is None:
            return DeviceError(f"{name}: {reason}", error.code, error.engine, None, error.address)
        pc = step.first + error.pc
        word = self.program.instructions[pc * INSTRUCTION_BYTES : (pc + 1) * INSTRUCTION_BYTES]
        try:
            text = disassemble_one(decode(int.from_bytes(word, "little")))
        except DecodeError:
            text = f"0x{int.from_bytes(word, 'little'):032x}"
        found = next((x for x in self.program.layers if x.first <= pc < x.first + x.count), None)
        layer = f"layer {found.name!r} ({found.op}): " if found else ""
        shown = "" if f"instruction {pc} `{text}`" in reason else f"instruction {pc} `{text}`: "
        return DeviceError(f"{name}: {layer}{shown}{reason}", error.code, error.engine, pc, error.address)

    def kernels(self, step: CpuStep) -> Callable[[], None]:
        """A call that runs a CPU step's kernels on what the memory holds now, for measuring them.

        Raises:
            UsageError: the device's memory is behind a link.
        """
        kernel = self._kernels[step.section, step.symbol]
        memories = [self._memory(self.buffers[name]) for name in step.buffers]
        if any(memory is None for memory in memories):
            raise UsageError(f"the memory of {self.device.name} is behind a link: kernels cannot be measured there")
        addresses = [memory.ctypes.data for memory in memories if memory is not None]
        workspace = self.workspace.ctypes.data if step.workspace else None
        return bound(kernel, addresses, workspace)

    def _run_cpu(self, step: CpuStep) -> None:
        kernel = self._kernels[step.section, step.symbol]
        workspace = self.workspace.ctypes.data if step.workspace else None
        named = {name: self.buffers[name] for name in step.buffers}
        memories = {name: self._memory(b) for name, b in named.items()}
        copies: dict[str, np.ndarray] = {}
        for name, memory in memories.items():
            if memory is None:
                copies[name] = aligned_zeros(named[name].nbytes)
                copies[name][...] = self.read_buffer(named[name])
        before = {name: copy.copy() for name, copy in copies.items() if named[name].space == "arena"}
        places = {name: copies[name] if memory is None else memory for name, memory in memories.items()}
        kernel([places[name].ctypes.data for name in step.buffers], workspace)
        for name, old in before.items():
            if not np.array_equal(old, copies[name]):
                self.device.write(self.bases["arena"] + named[name].offset, copies[name])
