"""`RtlDevice`: the Verilated NPU with the test memory of `docs/machine.md`, driven through its registers."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hw.sim.build import BuildError, build
from isa.config import NpuConfig
from isa.device import Counters, DeviceError, EngineCounters, HostMemory, InProcess, Region
from isa.encoding import DecodeError, decode
from isa.instructions import BY_NAME, INSTRUCTION_BYTES, REGIONS, Engine, ErrorCode
from isa.registers import IDENTITY, REGISTER
from isa.timing import MemoryTiming

#: WATCHDOG of a run that asks for none, so that a program that waits for ever is diagnosed and not waited for. No
#: memory timing makes a machine that can go on stand still for so long.
WATCHDOG_CYCLES = 1 << 16
#: Cycles a soft reset may take.
RESET_CYCLES = 1 << 20
EVENT_KINDS = ("step", "start", "end")


@dataclass(frozen=True, order=True)
class Event:
    """What a debug strobe said. `cycle` counts from 1, the first cycle of BUSY; `pc` is -1 for steps."""

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
def _load(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    handle, u32, u64 = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
    for name, result, *arguments in (
        ("create", handle),
        ("destroy", None, handle),
        ("timing", None, handle, u32, u32, u32, u32),
        ("write", None, handle, u32, u32),
        ("read", u32, handle, u32),
        ("run", u32, handle, ctypes.c_void_p, u64, u32, u64),
        ("tick", u32, handle, u64),
        ("reset", None, handle),
        ("memory", None, handle, ctypes.c_void_p, u64),
        ("stuck", None, handle, u32),
        ("events", ctypes.POINTER(_Event), handle, ctypes.POINTER(u64)),
        ("trace", u32, handle, ctypes.c_char_p, u64, u64),
        ("close_trace", None, handle),
    ):
        function = getattr(library, f"tw_rtl_{name}")
        function.restype, function.argtypes = result, arguments
    return library


class RtlDevice(InProcess):
    """The RTL of one configuration, simulated. Built on first use.

    Args:
        config: the NPU.
        timing: of the external memory.
        trace_file: write a waveform (VCD) of every run here; needs a slower build of its own.
        trace_window: cycles of the run to record, from..to-1; all by default.

    Attributes:
        memory: external memory.
        events: debug strobes of the last run with `log`.

    Raises:
        BuildError: no Verilator or no C++ compiler.
    """

    name = "rtl"

    def __init__(
        self,
        config: NpuConfig,
        timing: MemoryTiming | None = None,
        *,
        trace_file: str | Path | None = None,
        trace_window: tuple[int, int] | None = None,
    ) -> None:
        self.config, self.timing = config, timing or MemoryTiming()
        self.memory = HostMemory()
        self.events: list[Event] = []
        self._library = _load(build(config, trace=trace_file is not None))
        self._handle = self._library.tw_rtl_create()
        if self._read("IDENTITY") != IDENTITY or self._pair("FINGERPRINT") != int(config.fingerprint, 16):
            raise BuildError(f"the simulated registers do not belong to configuration {config.name!r}")
        if trace_file is not None:
            first, last = trace_window or (0, (1 << 64) - 1)
            if not self._library.tw_rtl_trace(self._handle, str(trace_file).encode(), first, last):
                raise BuildError(f"cannot write waveform {trace_file}")

    def close(self) -> None:
        """Ends the simulation and completes the waveform."""
        if getattr(self, "_handle", None):
            self._library.tw_rtl_destroy(self._handle)
            self._handle = None

    def __del__(self) -> None:
        self.close()

    # Registers.

    def _read(self, name: str) -> int:
        return int(self._library.tw_rtl_read(self._handle, REGISTER[name].offset))

    def _pair(self, name: str) -> int:
        return self._read(f"{name}_LO") | self._read(f"{name}_HI") << 32

    def _write(self, name: str, value: int) -> None:
        self._library.tw_rtl_write(self._handle, REGISTER[name].offset, value)

    def _bit(self, register: str, name: str) -> int:
        return 1 << REGISTER[register].bit(name).low

    # Running.

    def run(
        self,
        regions: Sequence[Region],
        program_region: int,
        program_offset: int,
        program_length: int,
        *,
        watchdog: int = 0,
        timeout: int = 0,
        log: str = "",
        **options: Any,
    ) -> Counters:
        """See `isa.device.Device.run`.

        Args:
            watchdog: cycles without progress before WATCHDOG, 0 = `WATCHDOG_CYCLES`.
            timeout: cycles of the run before TIMEOUT, 0 = none.
            log: "events" keeps starts and ends of instructions in `events`, "steps" the steps as well.
        """
        self._set_up(regions, program_region, program_offset, program_length)
        self._write("WATCHDOG", watchdog or WATCHDOG_CYCLES)
        self._write("TIMEOUT", timeout)
        t = self.timing
        self._library.tw_rtl_timing(self._handle, t.read_latency, t.write_latency, t.read_interval, t.write_interval)
        data = self.memory.data
        level = ("", "events", "steps").index(log)
        done = self._library.tw_rtl_run(self._handle, data.ctypes.data, data.size, level, (1 << 64) - 1)
        if not done:
            raise DeviceError("the RTL raised no interrupt", ErrorCode.TIMEOUT)
        self.events = self._events() if level else []
        if self._read("STATUS") & self._bit("STATUS", "ERROR"):
            error = self._error(regions, program_region, program_offset)
            self.reset()
            raise error
        counters = self._counters()
        counters.instructions = self._instructions(regions, program_region, program_offset, program_length)
        return counters

    def _set_up(self, regions: Sequence[Region], region: int, offset: int, length: int) -> None:
        if len(regions) > REGIONS:
            raise DeviceError(f"there must be at most {REGIONS} regions, not {len(regions)}", ErrorCode.ILLEGAL_OPERAND)
        for i, r in enumerate(regions):
            if r.base % self.config.bus_bytes or r.base < 0 or not 0 <= r.size < 1 << 32:
                text = f"region {i}: base must be a multiple of {self.config.bus_bytes} and size below 2**32, not {r}"
                raise DeviceError(text, ErrorCode.ILLEGAL_OPERAND)
        if offset % INSTRUCTION_BYTES or not 0 <= offset < 1 << 32:
            text = f"program offset must be a multiple of {INSTRUCTION_BYTES}, not {offset}"
            raise DeviceError(text, ErrorCode.ILLEGAL_OPERAND)
        for i, r in enumerate([*regions, *[Region()] * (REGIONS - len(regions))]):
            self._write(f"REGION{i}_BASE_LO", r.base & 0xFFFFFFFF)
            self._write(f"REGION{i}_BASE_HI", r.base >> 32)
            self._write(f"REGION{i}_SIZE", r.size)
            flags = r.read * self._bit("REGION0_FLAGS", "READ") | r.write * self._bit("REGION0_FLAGS", "WRITE")
            self._write(f"REGION{i}_FLAGS", flags)
        self._write("PROGRAM_REGION", region)
        self._write("PROGRAM_OFFSET", offset)
        self._write("PROGRAM_LENGTH", length)
        both = self._bit("IRQ_STATUS", "DONE") | self._bit("IRQ_STATUS", "ERROR")
        self._write("IRQ_STATUS", both)
        self._write("IRQ_ENABLE", both)

    def _counters(self) -> Counters:
        macs = self._pair("MACS") * self.config.macs_per_cycle
        counters = Counters(self._pair("CYCLES"), macs, self._pair("BYTES_READ"), self._pair("BYTES_WRITTEN"))
        for engine in list(Engine)[1:]:
            values = (self._pair(f"{engine.name}_{kind}") for kind in ("BUSY", "WAIT_SEMAPHORE", "WAIT_MEMORY"))
            counters.engines[engine.name] = EngineCounters(*values)
        return counters

    def _instructions(self, regions: Sequence[Region], region: int, offset: int, length: int) -> int:
        """Up to END, which the machine does not count itself: programs are straight lines."""
        words = self.memory.view(regions[region].base + offset, INSTRUCTION_BYTES * length).reshape(
            -1, INSTRUCTION_BYTES
        )
        ends = np.flatnonzero(words[:, 0] == BY_NAME["END"].opcode)
        return int(ends[0]) + 1 if ends.size else length

    def _events(self) -> list[Event]:
        count = ctypes.c_uint64()
        found = self._library.tw_rtl_events(self._handle, ctypes.byref(count))
        events = []
        for i in range(count.value):
            e = found[i]
            events.append(Event(e.cycle, Engine(e.engine), EVENT_KINDS[e.kind], e.pc if e.kind else -1))
        return events

    def _error(self, regions: Sequence[Region], region: int, offset: int) -> DeviceError:
        value = self._read("ERROR_CODE")
        fields = {b.name: value >> b.low & ((1 << b.bits) - 1) for b in REGISTER["ERROR_CODE"].bits}
        code, engine, pc = ErrorCode(fields["CODE"]), Engine(fields["ENGINE"]), self._read("ERROR_PC")
        address = self._pair("ERROR_ADDRESS")
        where = f"{engine.name} at instruction {pc}"
        start = (regions[region].base if region < len(regions) else 0) + offset + INSTRUCTION_BYTES * pc
        if start + INSTRUCTION_BYTES <= self.memory.data.size:
            word = int.from_bytes(self.memory.read(start, INSTRUCTION_BYTES).tobytes(), "little")
            with contextlib.suppress(DecodeError):
                where += f" ({decode(word).name})"
        return DeviceError(f"{code.name}: {where}: {_REASONS[code].format(address)}", code, engine, pc, address)

    def reset(self) -> None:
        """Soft reset: drains the bus, clears error and counters."""
        self._write("CONTROL", self._bit("CONTROL", "SOFT_RESET"))
        for _ in range(RESET_CYCLES):
            if not self._read("STATUS") & (self._bit("STATUS", "RESETTING") | self._bit("STATUS", "BUSY")):
                return
        raise DeviceError("the soft reset does not end: AXI is not drained", ErrorCode.WATCHDOG)


_REASONS: dict[ErrorCode, str] = {
    ErrorCode.NONE: "no reason recorded",
    ErrorCode.ILLEGAL_OPCODE: "no such instruction",
    ErrorCode.ILLEGAL_OPERAND: "an operand is out of its limits",
    ErrorCode.SCRATCHPAD_RANGE: "row {} lies beyond its scratchpad",
    ErrorCode.WINDOW: "address 0x{:x} begins an access its region does not permit",
    ErrorCode.BUS_READ: "address 0x{:x} was answered with an error",
    ErrorCode.BUS_WRITE: "address 0x{:x} was answered with an error",
    ErrorCode.SEMAPHORE_OVERFLOW: "semaphore {} would exceed its limit",
    ErrorCode.WATCHDOG: "nothing makes progress; it waits for semaphore {} (0 = none)",
    ErrorCode.TIMEOUT: "the run takes longer than it may",
    ErrorCode.NO_END: "the program has no END",
}
