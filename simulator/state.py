"""State shared by the functional paths: scratchpads, the view of external memory, faults and their messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from msgspec import Struct, field

from tilewright.isa.assembler import disassemble_one
from tilewright.isa.config import NpuConfig
from tilewright.isa.device import DeviceError, Launch, Region
from tilewright.isa.encoding import DecodeError, Op, check, decode
from tilewright.isa.error_codes import ErrorCode
from tilewright.isa.fields import INSTRUCTION_BYTES
from tilewright.isa.host import check_run
from tilewright.isa.instructions import Engine

#: Memories in the order the native status names them; the first four are those of `tilewright.isa.instructions.Memory`.
#: STAT is what ROW keeps of rows.
MEMORIES = ("ACT", "WGT", "PRM", "LUT", "ACC", "STAT")


class Scratchpads:
    """The on-chip memories of one NPU; all zero at first, kept from run to run.

    Attributes:
        act: int8 [act_rows, block_in].
        wgt: int8 [wgt_tiles, block_out, block_in].
        acc: int32, flat; GEMM, DEPTHWISE and VECTOR see it as rows of different length.
        prm: uint32 [prm_rows, block_in, 2]: bias (two's complement) and scale (float32 pattern).
        lut: uint8 [lut_tables, 256].
        maxima: int8 [prm_rows]: MAX of ROW.
        norms: int32 [prm_rows, 3]: STAT of ROW, a `RowNorm` each.
    """

    def __init__(self, config: NpuConfig) -> None:
        self.config = config
        self.act = np.zeros((config.act_rows, config.block_in), np.int8)
        self.wgt = np.zeros((config.wgt_tiles, config.block_out, config.block_in), np.int8)
        self.acc = np.zeros(config.acc_rows * config.block_out, np.int32)
        self.prm = np.zeros((config.prm_rows, config.block_in, 2), np.uint32)
        self.lut = np.zeros((config.lut_tables, 256), np.uint8)
        self.maxima = np.zeros(config.prm_rows, np.int8)
        self.norms = np.zeros((config.prm_rows, 3), np.int32)

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays of the scratchpads by memory name."""
        return {"ACT": self.act, "WGT": self.wgt, "PRM": self.prm, "LUT": self.lut, "ACC": self.acc}


class Fault(Exception):
    """A fault that stops an engine, before its instruction is known.

    Attributes:
        code: reason.
        address: scratchpad row or memory address.
        memory: scratchpad name for SCRATCHPAD_RANGE.
        region, offset, nbytes: the access for WINDOW, BUS_READ and BUS_WRITE.
    """

    def __init__(
        self, code: ErrorCode, address: int = 0, memory: str = "", region: int = 0, offset: int = 0, nbytes: int = 0
    ) -> None:
        super().__init__(code.name)
        self.code, self.address, self.memory = code, address, memory
        self.region, self.offset, self.nbytes = region, offset, nbytes


class Blocked(Struct):
    """The state of a run that can make no progress.

    Attributes:
        heads: index of the instruction at the head of every engine's queue that waits for a semaphore.
        fetch: the engine on whose full queue FETCH waits, and the index of the instruction to dispatch; None after END.
    """

    heads: dict[Engine, int] = field(default_factory=dict)
    fetch: tuple[Engine, int] | None = None


class ExternalMemory:
    """External memory in the machine's view: through regions.

    Args:
        data: uint8, the whole device memory.
        regions: region i at index i; missing ones are closed.
    """

    def __init__(self, data: np.ndarray, regions: Sequence[Region]) -> None:
        self.data, self.regions = data, regions

    def span(self, region: int, offset: int, nbytes: int, write: bool) -> np.ndarray:
        """The bytes offset..offset+nbytes of a region. Raises `Fault` WINDOW, BUS_READ or BUS_WRITE."""
        r = self.regions[region] if region < len(self.regions) else Region()
        address = r.base + offset
        if offset + nbytes > r.size or not (r.write if write else r.read):
            raise Fault(ErrorCode.WINDOW, address, region=region, offset=offset, nbytes=nbytes)
        if address + nbytes > self.data.size:
            code = ErrorCode.BUS_WRITE if write else ErrorCode.BUS_READ
            raise Fault(code, address, region=region, offset=offset, nbytes=nbytes)
        return self.data[address : address + nbytes]


def bus_beats(offset: int, nbytes: int, config: NpuConfig) -> int:
    """Data beats of a contiguous transfer; regions start at a multiple of the bus width."""
    return -(-(offset + nbytes) // config.bus_bytes) - offset // config.bus_bytes if nbytes else 0


def check_call(config: NpuConfig, launch: Launch) -> None:
    """Raises `DeviceError` ILLEGAL_OPERAND for a launch whose values do not fit the registers. Limits of time may be
    longer here: below 2**64.
    """
    check_run(config, replace(launch, watchdog=0, timeout=0))
    for name, value in (("watchdog", launch.watchdog), ("timeout", launch.timeout)):
        if not 0 <= value < 1 << 64:
            raise DeviceError(f"{name} must be below 2**64, not {value}", ErrorCode.ILLEGAL_OPERAND)


class Explainer:
    """Turns faults into `DeviceError` with a readable message.

    Args:
        memory: external memory and regions.
        program_region, program_offset: region and offset of the program.
        scratchpads: scratchpads, for their sizes.
    """

    def __init__(
        self, memory: ExternalMemory, program_region: int, program_offset: int, scratchpads: Scratchpads
    ) -> None:
        self.memory, self.region, self.offset, self.scratchpads = memory, program_region, program_offset, scratchpads

    def word(self, pc: int) -> int:
        """The instruction word at index `pc`. Raises `Fault`."""
        raw = self.memory.span(self.region, self.offset + INSTRUCTION_BYTES * pc, INSTRUCTION_BYTES, False)
        return int.from_bytes(raw.tobytes(), "little")

    def _at(self, pc: int) -> str:
        try:
            return f"instruction {pc} `{disassemble_one(decode(self.word(pc)))}`"
        except (Fault, DecodeError):
            return f"instruction {pc}"

    def error(self, fault: Fault, engine: Engine, pc: int) -> DeviceError:
        """The `DeviceError` of a fault of `engine` at instruction `pc`."""
        code = fault.code
        if code == ErrorCode.NO_END:
            text = f"FETCH reached instruction {pc}, the end of the program, without END"
        else:
            text = f"{engine.name} at {self._at(pc)}: {self._reason(fault, pc)}"
        return DeviceError(f"{code.name}: {text}", code, engine, pc, fault.address)

    def _reason(self, fault: Fault, pc: int) -> str:
        if fault.code == ErrorCode.SCRATCHPAD_RANGE:
            rows = self._rows(fault.memory)
            return f"{fault.memory} row {fault.address} must be below {rows}"
        if fault.code in (ErrorCode.WINDOW, ErrorCode.BUS_READ, ErrorCode.BUS_WRITE):
            regions = self.memory.regions
            r = regions[fault.region] if fault.region < len(regions) else Region()
            access = f"bytes 0x{fault.offset:x}..0x{fault.offset + fault.nbytes:x} of region {fault.region}"
            if fault.code != ErrorCode.WINDOW:
                return f"{access} (address 0x{fault.address:x}) lie outside the device's memory"
            rights = "+".join(n for n, has in (("read", r.read), ("write", r.write)) if has) or "no access"
            return f"{access}, which has 0x{r.size:x} bytes with {rights}"
        if fault.code in (ErrorCode.ILLEGAL_OPCODE, ErrorCode.ILLEGAL_OPERAND):
            try:
                check(decode(self.word(pc)), self.scratchpads.config)
            except DecodeError as error:
                return str(error)
            except Fault:
                return "there is no such program"
            return "the box has no rows"
        if fault.code == ErrorCode.SEMAPHORE_OVERFLOW:
            return fault.code.reason.format(fault.address)
        if fault.code == ErrorCode.TIMEOUT:
            return "the instruction takes more steps than are left"
        if fault.code == ErrorCode.CODE:
            return fault.code.reason
        return fault.code.name

    def _rows(self, memory: str) -> str:
        config = self.scratchpads.config
        if memory == "ACC":
            return f"{config.acc_rows} (GEMM), {config.acc_dw_rows} (DEPTHWISE), {config.acc_vectors} (VECTOR)"
        return str(config.prm_rows if memory == "STAT" else self.scratchpads.arrays()[memory].shape[0])

    def deadlock(self, blocked: Blocked, semaphores: Sequence[int]) -> DeviceError:
        """The WATCHDOG error of a run in which nothing can proceed."""
        parts = []
        for engine, pc in blocked.heads.items():
            waits = decode(self.word(pc)).waits
            missing = [f"{s}" for s in waits if semaphores[s] == 0]
            parts.append(f"{engine.name} waits for semaphore {' and '.join(missing)} at {self._at(pc)}")
        if blocked.fetch:
            engine, pc = blocked.fetch
            parts.append(f"FETCH waits for room in the queue of {engine.name} at {self._at(pc)}")
        first = min(blocked.heads, key=lambda e: blocked.heads[e])
        text = "WATCHDOG: no engine can make progress: " + "; ".join(parts)
        return DeviceError(text, ErrorCode.WATCHDOG, first, blocked.heads[first])


class RunCounts(Struct):
    """Counts of a run in both paths."""

    instructions: int = 0
    macs: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


def read_program_checked(memory: ExternalMemory, region: int, offset: int, length: int) -> None:
    """Raises `Fault` unless the whole program lies in its region."""
    memory.span(region, offset, INSTRUCTION_BYTES * length, False)


def check_operands(operation: Op, config: NpuConfig) -> None:
    """Checks operands by `tilewright.isa.encoding.check`; an error becomes a `Fault`."""
    try:
        check(operation, config)
    except DecodeError as error:
        raise Fault(error.code) from None
