"""A run as the host sees it: the values written to the registers before it and read from them after it.

Register values travel as dictionaries of name to number, so that a host with a slow link moves whole blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.isa.config import PRESETS, NpuConfig
from tilewright.isa.device import Counters, DeviceError, EngineCounters, Launch, Region
from tilewright.isa.encoding import DecodeError, decode
from tilewright.isa.error_codes import ErrorCode
from tilewright.isa.fields import INSTRUCTION_BYTES
from tilewright.isa.instructions import REGIONS, Engine
from tilewright.isa.registers import IDENTITY, REGISTER, VERSION, Register

#: WATCHDOG of a run that asks for none: a program that waits for ever ends with a diagnosis. With any memory timing, a
#: machine that can go on does so sooner.
WATCHDOG_CYCLES = 1 << 16


def mask(register: str, *bits: str) -> int:
    """The register value with these one-bit fields set."""
    return sum(1 << REGISTER[register].bit(name).low for name in bits)


def fields(register: str, value: int) -> dict[str, int]:
    """The named bits of a register's value."""
    return {b.name: value >> b.low & ((1 << b.bits) - 1) for b in REGISTER[register].bits}


def pair(values: Mapping[str, int], name: str) -> int:
    """A 64-bit value from its two registers."""
    return values[f"{name}_LO"] | values[f"{name}_HI"] << 32


def check_regions(config: NpuConfig, regions: Sequence[Region]) -> None:
    """Raises `DeviceError` ILLEGAL_OPERAND for regions the registers cannot express."""
    if len(regions) > REGIONS:
        raise DeviceError(f"there must be at most {REGIONS} regions, not {len(regions)}", ErrorCode.ILLEGAL_OPERAND)
    size, end = config.offset_bits, config.axi_address_bits
    for i, r in enumerate(regions):
        if r.base % config.bus_bytes or r.base < 0 or not 0 <= r.size < 1 << size:
            text = f"region {i}: base must be a multiple of {config.bus_bytes} and size below 2**{size}, not {r}"
            raise DeviceError(text, ErrorCode.ILLEGAL_OPERAND)
        if r.base + r.size > 1 << end:
            raise DeviceError(f"region {i} must end below 2**{end}, not {r}", ErrorCode.ILLEGAL_OPERAND)


def check_run(config: NpuConfig, launch: Launch) -> None:
    """Raises `DeviceError` ILLEGAL_OPERAND for a launch whose values do not fit the registers."""
    check_regions(config, launch.regions)
    text = ""
    if not 0 <= launch.program_region < REGIONS:
        text = f"program region must be 0..{REGIONS - 1}, not {launch.program_region}"
    bits = config.offset_bits
    if launch.program_offset % INSTRUCTION_BYTES or not 0 <= launch.program_offset < 1 << bits:
        text = f"program offset must be a multiple of {INSTRUCTION_BYTES} below 2**{bits}, not {launch.program_offset}"
    for name, value in (
        ("program length", launch.program_length),
        ("watchdog", launch.watchdog),
        ("timeout", launch.timeout),
    ):
        if not 0 <= value < 1 << 32:
            text = f"{name} must be below 2**32, not {value}"
    if text:
        raise DeviceError(text, ErrorCode.ILLEGAL_OPERAND)


def run_values(launch: Launch) -> dict[str, int]:
    """Register values of a run, all but START: program, limits in cycles, all regions, interrupts."""
    values = {
        "PROGRAM_REGION": launch.program_region,
        "PROGRAM_OFFSET": launch.program_offset,
        "PROGRAM_LENGTH": launch.program_length,
        "WATCHDOG": launch.watchdog or WATCHDOG_CYCLES,
        "TIMEOUT": launch.timeout,
    }
    for i, r in enumerate([*launch.regions, *[Region()] * (REGIONS - len(launch.regions))]):
        permissions = [name for name, given in (("READ", r.read), ("WRITE", r.write)) if given]
        values |= {
            f"REGION{i}_BASE_LO": r.base & 0xFFFFFFFF,
            f"REGION{i}_BASE_HI": r.base >> 32,
            f"REGION{i}_SIZE": r.size,
            f"REGION{i}_FLAGS": mask(f"REGION{i}_FLAGS", *permissions),
        }
    values["IRQ_STATUS"] = values["IRQ_ENABLE"] = mask("IRQ_STATUS", "DONE", "ERROR")
    return values


def blocks(values: Mapping[str, int]) -> list[tuple[int, list[int]]]:
    """Groups register values into blocks of neighbours: (byte offset of the first, values in order)."""
    found: list[tuple[int, list[int]]] = []
    for register in sorted((REGISTER[name] for name in values), key=lambda r: r.offset):
        if found and found[-1][0] + 4 * len(found[-1][1]) == register.offset:
            found[-1][1].append(values[register.name])
        else:
            found.append((register.offset, [values[register.name]]))
    return found


def readable() -> list[Register]:
    """The registers that can be read, by offset."""
    return sorted((r for r in REGISTER.values() if r.access != "W"), key=lambda r: r.offset)


def counters_of(values: Mapping[str, int], config: NpuConfig, instructions: int) -> Counters:
    """The counters after a run. The machine counts array steps and no instructions."""
    macs = pair(values, "MACS") * config.macs_per_cycle
    counters = Counters(
        pair(values, "CYCLES"), macs, pair(values, "BYTES_READ"), pair(values, "BYTES_WRITTEN"), instructions
    )
    for engine in list(Engine)[1:]:
        kinds = (pair(values, f"{engine.name}_{kind}") for kind in ("BUSY", "WAIT_SEMAPHORE", "WAIT_MEMORY"))
        counters.engines[engine.name] = EngineCounters(*kinds)
    return counters


def error_of(values: Mapping[str, int], word: int | None = None) -> DeviceError:
    """The recorded error. `word` is the instruction at ERROR_PC, if it is known."""
    found = fields("ERROR_CODE", values["ERROR_CODE"])
    pc, address = values["ERROR_PC"], pair(values, "ERROR_ADDRESS")
    try:
        code, engine = ErrorCode(found["CODE"]), Engine(found["ENGINE"])
    except ValueError:
        return DeviceError(f"error registers hold no error: {found}", ErrorCode.NONE)
    where = f"{engine.name} at instruction {pc}"
    if word is not None:
        try:
            where += f" ({decode(word).name})"
        except DecodeError:
            where += f" (0x{word:032x})"
    return DeviceError(f"{code.name}: {where}: {code.reason.format(address)}", code, engine, pc, address)


def state_of(status: int) -> str:
    """The state in STATUS as a word: resetting, busy, error, done or idle."""
    bits = fields("STATUS", status)
    for name in ("RESETTING", "BUSY", "ERROR", "DONE"):
        if bits[name]:
            return name.lower()
    return "idle"


def fingerprint_of(values: Mapping[str, int]) -> str:
    """The fingerprint in the registers, in the form of `NpuConfig.fingerprint`."""
    return f"{pair(values, 'FINGERPRINT'):016x}"


def preset_of(fingerprint: str) -> NpuConfig | None:
    """The preset with this fingerprint; None if there is none."""
    return next((c for c in PRESETS.values() if c.fingerprint == fingerprint), None)


def identity_problem(values: Mapping[str, int]) -> str:
    """The reason why the registers are not those of an NPU this version drives; empty if they are."""
    if values["IDENTITY"] != IDENTITY:
        return f"no Tilewright NPU answers: IDENTITY reads 0x{values['IDENTITY']:08x}, not 0x{IDENTITY:08x}"
    if values["VERSION"] != VERSION:
        return f"its register table has version {values['VERSION']}, this driver is for version {VERSION}"
    return ""
