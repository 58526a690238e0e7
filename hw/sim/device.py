"""`RtlDevice`: the Verilated NPU with the test memory of `docs/machine.md`, driven through its registers."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.common.errors import TilewrightError
from tilewright.common.native import Owner
from tilewright.hw.sim.build import BuildError, Progress, build
from tilewright.isa.assembler import disassemble_one
from tilewright.isa.config import NpuConfig
from tilewright.isa.device import Counters, DeviceError, HostMemory, InProcess, Launch
from tilewright.isa.encoding import DecodeError, decode
from tilewright.isa.error_codes import ErrorCode
from tilewright.isa.fields import INSTRUCTION_BYTES
from tilewright.isa.host import (
    check_run,
    counters_of,
    error_of,
    fingerprint_of,
    identity_problem,
    mask,
    readable,
    run_values,
)
from tilewright.isa.instructions import BY_NAME, Engine
from tilewright.isa.registers import REGISTER, REGISTERS
from tilewright.isa.timing import DEFAULT_MEMORY, MemoryTiming

#: Cycles a soft reset may take.
RESET_CYCLES = 1 << 20
#: Cycles of a run that may take as long as it takes.
NO_LIMIT = (1 << 64) - 1
#: Cycles that reading a register takes, about.
_READ_CYCLES = 8
EVENT_KINDS = ("step", "start", "end")


class RtlError(TilewrightError):
    """The RTL behaves as no program can make it behave: it is wrong."""


@dataclass(frozen=True, order=True)
class Event:
    """One debug strobe. `cycle` counts from 1, the first cycle of BUSY; `pc` is -1 for steps."""

    cycle: int
    engine: Engine
    kind: str
    pc: int = -1


class _Event(ctypes.Structure):
    _fields_ = [
        ("cycle", ctypes.c_uint64), ("pc", ctypes.c_uint32), ("engine", ctypes.c_uint8), ("kind", ctypes.c_uint8),
        ("unused", ctypes.c_uint16),
    ]  # fmt: skip


@functools.cache
def load_library(path: Path) -> ctypes.CDLL:
    """Loads the C interface of `harness.cpp`. Calls raise `DeviceError` for registers that are not answered, and
    `RtlError`
    for what no master of AXI may do."""
    library = ctypes.CDLL(str(path))
    handle, u32, u64 = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
    for name, result, *arguments in (
        ("create", handle),
        ("destroy", None, handle),
        ("timing", None, handle, u32, u32, ctypes.c_double, ctypes.c_double),
        ("write", None, handle, u32, u32),
        ("read", u32, handle, u32),
        ("unanswered", ctypes.c_int64, handle),
        ("broken", ctypes.c_char_p, handle),
        ("run", u32, handle, ctypes.c_void_p, u64, u32, u64),
        ("tick", u32, handle, u64),
        ("reset", None, handle),
        ("fault", None, handle, u32),
        ("memory", None, handle, ctypes.c_void_p, u64),
        ("origin", None, handle, u64),
        ("stall", None, handle, u64),
        ("stuck", None, handle, u32),
        ("events", ctypes.POINTER(_Event), handle, ctypes.POINTER(u64)),
        ("trace", u32, handle, ctypes.c_char_p, u32, u64, u64),
        ("texts", None, handle, ctypes.POINTER(ctypes.c_char_p), u32),
        ("coverage", u32, handle, ctypes.c_char_p),
        ("close_trace", None, handle),
    ):
        function = getattr(library, f"tw_rtl_{name}")
        function.restype, function.argtypes = result, arguments

    def answered(result: Any, function: Any, arguments: tuple[Any, ...]) -> Any:
        if rule := library.tw_rtl_broken(arguments[0]):
            raise RtlError(f"the RTL breaks a rule of AXI: {rule.decode()}")
        offset = library.tw_rtl_unanswered(arguments[0])
        if offset >= 0:
            name = next((r.name for r in REGISTERS if r.offset == offset), f"at {offset:#x}")
            problem = f"the RTL does not answer an access to register {name}, or answers it twice"
            raise DeviceError(problem, ErrorCode.WATCHDOG)
        return result

    for name in ("write", "read", "run", "tick"):
        getattr(library, f"tw_rtl_{name}").errcheck = answered
    return library


class RtlDevice(Owner, InProcess):
    """The RTL of one configuration, simulated. Built on first use.

    Args:
        config: the NPU.
        timing: timing of the external memory.
        trace_file: write a waveform of every run here; needs a slower build of its own. VCD, or FST where the name ends
            in .fst, which also shows the instruction that each engine works on.
        trace_window: cycles of the run to record, from..to-1; all by default.
        progress: called with what is being done and the fraction done while the simulation is built; by default a line
            on standard error says so.
        library: another build of the same machine, perhaps with faults; `fault` turns on one of them.
        limit: cycles after which a run, or a reset, has failed, whatever the watchdog says; a faulty one may not.
        origin: address of the memory's first byte, a multiple of 4096.

    Attributes:
        memory: external memory.
        events: debug strobes of the last run with `log`.
        limit: cycles after which a run has failed.

    Raises:
        BuildError: no Verilator or no C++ compiler.
    """

    name = "rtl"
    _shows_instructions = False  # in the waveform

    def __init__(
        self,
        config: NpuConfig,
        timing: MemoryTiming | None = None,
        *,
        trace_file: str | Path | None = None,
        trace_window: tuple[int, int] | None = None,
        progress: Progress | None = None,
        library: Path | None = None,
        fault: int = 0,
        limit: int = NO_LIMIT,
        origin: int = 0,
    ) -> None:
        self.config, self.timing = config, timing or DEFAULT_MEMORY
        self.limit = limit
        self.memory = HostMemory(origin=origin)
        self.events: list[Event] = []
        self._library = load_library(library or build(config, trace=trace_file is not None, progress=progress))
        self._own(self._library.tw_rtl_create(), self._library.tw_rtl_destroy)
        self._library.tw_rtl_origin(self._handle, origin)
        if fault:
            self._library.tw_rtl_fault(self._handle, fault)
        found = {r.name: self.read_register(r.name) for r in readable()}
        if identity_problem(found) or fingerprint_of(found) != config.fingerprint:
            raise BuildError(f"the simulated registers do not belong to configuration {config.name!r}")
        if trace_file is not None:
            first, last = trace_window or (0, NO_LIMIT)
            self._shows_instructions = Path(trace_file).suffix == ".fst"
            name = str(trace_file).encode()
            if not self._library.tw_rtl_trace(self._handle, name, self._shows_instructions, first, last):
                raise BuildError(f"cannot write waveform {trace_file}")

    # Registers.

    def read_register(self, name: str) -> int:
        """Reads a register, as the host does."""
        return int(self._library.tw_rtl_read(self._handle, REGISTER[name].offset))

    def write_register(self, name: str, value: int) -> None:
        """Writes a register, as the host does."""
        self._library.tw_rtl_write(self._handle, REGISTER[name].offset, value)

    def stall(self, seed: int) -> None:
        """Makes the bus take addresses, and the host answers, at random cycles of this seed; 0: at once, as usual."""
        self._library.tw_rtl_stall(self._handle, seed)

    def restart(self) -> None:
        """Resets the whole machine, as after power-up."""
        self._library.tw_rtl_reset(self._handle)

    def start(self, values: Mapping[str, int], level: int = 0) -> bool:
        """Writes registers and START, and waits for the interrupt, `limit` cycles at most. Returns whether it came.

        Args:
            values: values of registers, by name.
            level: 1 keeps starts and ends of instructions, 2 steps as well.
        """
        for name, value in values.items():
            self.write_register(name, value)
        t = self.timing
        self._library.tw_rtl_timing(self._handle, t.read_latency, t.write_latency, t.read_interval, t.write_interval)
        data = self.memory.data
        return bool(self._library.tw_rtl_run(self._handle, data.ctypes.data, data.size, level, self.limit))

    # Running.

    def execute(self, launch: Launch, *, log: str = "", **options: Any) -> Counters:
        """Runs a program, see `tilewright.isa.device.Device.run`.

        Args:
            watchdog: cycles without progress before WATCHDOG, 0 = `tilewright.isa.host.WATCHDOG_CYCLES`.
            timeout: cycles of the run before TIMEOUT, 0 = none.
            log: "events" keeps starts and ends of instructions in `events`, "steps" the steps as well.
        """
        check_run(self.config, launch)
        level = ("", "events", "steps").index(log)
        if self._shows_instructions:
            self._name_instructions(launch)
        if not self.start(run_values(launch), level):
            raise DeviceError("the RTL raised no interrupt", ErrorCode.TIMEOUT)
        self.events = self._events() if level else []
        values = {r.name: self.read_register(r.name) for r in readable()}
        if values["STATUS"] & mask("STATUS", "ERROR"):
            first = launch.region.base + launch.program_offset
            error = error_of(values, self._word(first + INSTRUCTION_BYTES * values["ERROR_PC"]))
            self.reset()
            raise error
        instructions = self._instructions(launch)
        return counters_of(values, self.config, instructions)

    def _name_instructions(self, launch: Launch) -> None:
        """Gives the waveform the text of every instruction of a program."""
        first, texts = launch.region.base + launch.program_offset, []
        for number in range(launch.program_length):
            word = self._word(first + INSTRUCTION_BYTES * number)
            try:
                texts.append(disassemble_one(decode(word)).encode() if word is not None else b"")
            except DecodeError:
                texts.append(f"0x{word:032x}".encode())
        self._library.tw_rtl_texts(self._handle, (ctypes.c_char_p * len(texts))(*texts), len(texts))

    def write_coverage(self, path: Path) -> None:
        """Writes the coverage of all runs of this device, in Verilator's format.

        Raises:
            BuildError: its library was built without.
        """
        if not self._library.tw_rtl_coverage(self._handle, str(path).encode()):
            raise BuildError("this simulation does not count what is covered")

    def _instructions(self, launch: Launch) -> int:
        """Counts the instructions up to END, which the machine does not count itself: programs are straight lines."""
        size = INSTRUCTION_BYTES * launch.program_length
        words = self.memory.view(launch.region.base + launch.program_offset, size).reshape(-1, INSTRUCTION_BYTES)
        ends = np.flatnonzero(words[:, 0] == BY_NAME["END"].opcode)
        return int(ends[0]) + 1 if ends.size else launch.program_length

    def _events(self) -> list[Event]:
        count = ctypes.c_uint64()
        found = self._library.tw_rtl_events(self._handle, ctypes.byref(count))
        events = []
        for i in range(count.value):
            e = found[i]
            events.append(Event(e.cycle, Engine(e.engine), EVENT_KINDS[e.kind], e.pc if e.kind else -1))
        return events

    def _word(self, address: int) -> int | None:
        """Returns the instruction at an address, None outside the memory."""
        if not self.memory.holds(address, INSTRUCTION_BYTES):
            return None
        return int.from_bytes(self.memory.read(address, INSTRUCTION_BYTES).tobytes(), "little")

    def reset(self) -> None:
        """Makes a soft reset: drains the bus, clears error and counters."""
        self.write_register("CONTROL", mask("CONTROL", "SOFT_RESET"))
        for _ in range(min(RESET_CYCLES, self.limit // _READ_CYCLES)):
            if not self.read_register("STATUS") & mask("STATUS", "RESETTING", "BUSY"):
                return
        raise DeviceError("the soft reset does not end: AXI is not drained", ErrorCode.WATCHDOG)
