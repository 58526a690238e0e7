"""The register table: AXI4-Lite offsets, access and meaning, for RTL, driver, C header and reference page."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.isa.instructions import REGIONS, Engine

IDENTITY = 0x54574E31  # "TWN1"
VERSION = 1


@dataclass(frozen=True)
class Bit:
    """A named bit range of a register."""

    name: str
    low: int
    bits: int
    doc: str


@dataclass(frozen=True)
class Register:
    """One 32-bit register.

    Attributes:
        access: R (read only), RW, W1C (write 1 to clear) or W (write only, reads 0).
        counts: True if it is half of a counter of the last run.
    """

    name: str
    offset: int
    access: str
    doc: str
    bits: tuple[Bit, ...] = ()
    counts: bool = False

    def bit(self, name: str) -> Bit:
        return next(b for b in self.bits if b.name == name)


def _build() -> tuple[Register, ...]:
    table: list[Register] = []

    def r(name: str, access: str, doc: str, *bits: Bit, counts: bool = False) -> None:
        table.append(Register(name, 4 * len(table), access, doc, bits, counts))

    r("IDENTITY", "R", f"always 0x{IDENTITY:08x}")
    r("VERSION", "R", "version of the instruction and register tables")
    r("FINGERPRINT_LO", "R", "configuration fingerprint, low 32 bits")
    r("FINGERPRINT_HI", "R", "configuration fingerprint, high 32 bits")
    r(
        "CONTROL",
        "W",
        "commands",
        Bit("START", 0, 1, "starts the program if idle"),
        Bit("SOFT_RESET", 1, 1, "drains the bus, then clears engines, queues, semaphores, error and counters"),
    )
    r(
        "STATUS",
        "R",
        "state",
        Bit("BUSY", 0, 1, "a program runs or the bus drains"),
        Bit("DONE", 1, 1, "the last program ended without error"),
        Bit("ERROR", 2, 1, "stopped; see ERROR_CODE"),
        Bit("RESETTING", 3, 1, "a soft reset is under way"),
    )
    r("IRQ_ENABLE", "RW", "interrupt mask", Bit("DONE", 0, 1, "on completion"), Bit("ERROR", 1, 1, "on error"))
    r("IRQ_STATUS", "W1C", "pending interrupts", Bit("DONE", 0, 1, "completed"), Bit("ERROR", 1, 1, "stopped"))
    r("ERROR_CODE", "R", "isa.ErrorCode of the first error", Bit("CODE", 0, 8, "code"), Bit("ENGINE", 8, 4, "engine"))
    r("ERROR_PC", "R", "index of the instruction that failed")
    r("ERROR_ADDRESS_LO", "R", "memory address or scratchpad row, low 32 bits")
    r("ERROR_ADDRESS_HI", "R", "high 32 bits")
    r("PROGRAM_REGION", "RW", "region the program is fetched from")
    r("PROGRAM_OFFSET", "RW", "byte offset of the first instruction in that region, a multiple of 16")
    r("PROGRAM_LENGTH", "RW", "instructions in the program, END included; fetching further is NO_END")
    r("WATCHDOG", "RW", "cycles without progress of any engine before WATCHDOG, 0 = off")
    r("TIMEOUT", "RW", "cycles of a whole run before TIMEOUT, 0 = off")
    for i in range(REGIONS):
        r(f"REGION{i}_BASE_LO", "RW", f"region {i}: base address, low 32 bits, a multiple of the bus width")
        r(f"REGION{i}_BASE_HI", "RW", "high 32 bits")
        r(f"REGION{i}_SIZE", "RW", "size in bytes; 0 = closed")
        r(
            f"REGION{i}_FLAGS",
            "RW",
            "permissions",
            Bit("READ", 0, 1, "LOAD and FETCH may read"),
            Bit("WRITE", 1, 1, "STORE may write"),
        )

    def counter(name: str, doc: str) -> None:
        r(f"{name}_LO", "R", f"{doc}, low 32 bits", counts=True)
        r(f"{name}_HI", "R", "high 32 bits", counts=True)

    counter("CYCLES", "cycles from START to completion")
    counter("MACS", "GEMM and DEPTHWISE steps issued, one array operation each")
    counter("BYTES_READ", "bytes of read beats, FETCH included")
    counter("BYTES_WRITTEN", "bytes of write beats")
    for engine in list(Engine)[1:]:
        counter(f"{engine.name}_BUSY", f"cycles {engine.name} made a step")
        counter(f"{engine.name}_WAIT_SEMAPHORE", f"cycles {engine.name} held an instruction back for a semaphore")
        counter(f"{engine.name}_WAIT_MEMORY", f"cycles {engine.name} could not step for the bus or a bank")
    return tuple(table)  # fmt: skip


REGISTERS: tuple[Register, ...] = _build()
REGISTER: dict[str, Register] = {r.name: r for r in REGISTERS}
#: Bytes of address space the register block takes.
REGISTER_SPACE = 1 << (4 * len(REGISTERS) - 1).bit_length()
