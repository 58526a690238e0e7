"""Trials of the bus: addresses that are not taken at once, answers that are not, and what the host must not change."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

from tilewright.isa.config import NpuConfig
from tilewright.isa.device import DeviceError, Launch
from tilewright.isa.encoding import op, to_bytes
from tilewright.isa.fields import INSTRUCTION_BYTES
from tilewright.isa.host import mask, run_values
from tilewright.isa.registers import REGISTERS
from tilewright.simulator.functional import FunctionalDevice
from verification.programs.equality import WATCHDOG, case
from verification.programs.error_cases import prepare
from verification.programs.generator import generate
from verification.trials.trial import SIZES, Make, Trial


def bus(config: NpuConfig) -> Iterator[Trial]:
    """Yields the trials, cheapest first."""
    yield Trial("fixed", 0, _fixed, fresh=False)
    yield Trial("anew", 0, _registers_after_reset)
    yield Trial("status", 0, _status)
    for number in range(4):
        yield _refused_addresses(config, number)


def _fixed(make: Make) -> str:
    """Writes to registers that can only be read change nothing, nor do those to where no register is."""
    device = make(0)
    before = {r.name: device.read_register(r.name) for r in REGISTERS}
    fixed = [r.name for r in REGISTERS if r.access == "R"]
    for value, names in ((0xFFFF_FFFF, fixed), (0, fixed[::-1])):
        for name in names:
            device.write_register(name, value)
    after = {r.name: device.read_register(r.name) for r in REGISTERS}
    return "".join(
        f"{name}: 0x{after[name]:x}, not 0x{before[name]:x}" for name in after if after[name] != before[name]
    )


def _registers_after_reset(make: Make) -> str:
    """A reset makes all registers 0 that the host can write, whatever they were."""
    device = make(0)
    names = [r.name for r in REGISTERS if r.access == "RW"]
    for name in names:
        device.write_register(name, 0xFFFF_FFFF)
    device.restart()
    found = {name: device.read_register(name) for name in names}
    return "".join(f"{name}: 0x{value:x} after a reset" for name, value in found.items() if value)


def _status(make: Make) -> str:
    """STATUS says of every run what has become of it, from the start to the end and after a reset."""
    device = make(0)
    device.limit = 3000
    regions = prepare(device)
    forever, ends, fails = ([op("VECTOR_SYNC", wait0=1)], [op("VECTOR_SYNC")], [op("GEMM", reduce=15)])
    wanted = ((ends, "DONE"), (forever, "BUSY"), (ends, "DONE"), (fails, "ERROR"), (ends, "DONE"), (ends, "DONE"))
    for ops, name in wanted:
        device.write(regions[0].base, to_bytes([*ops, op("END")]))
        device.start(run_values(Launch(regions, 0, 0, 2)))
        if (found := device.read_register("STATUS")) != mask("STATUS", name):
            return f"STATUS 0x{found:x}, not {name}"
        if name != "DONE":
            device.reset()
            if found := device.read_register("STATUS"):
                return f"STATUS 0x{found:x} after a reset"
    return ""


def _refused_addresses(config: NpuConfig, number: int) -> Trial:
    """A program on a bus that takes addresses late, and at random: the same bytes, whatever the cycles."""
    program = generate(number, config, instructions=SIZES[2][0], max_steps=SIZES[2][1])
    timing = case(number, config)[1]
    expected = functools.cache(lambda: program.run(FunctionalDevice(config)))

    def run(make: Make) -> str:
        device = make(0)
        device.timing = timing
        device.stall(number + 1)
        base, regions = program.install(device)
        try:
            device.run(regions, 0, 0, len(program.ops), watchdog=WATCHDOG)
        except DeviceError as error:
            return str(error)
        finally:
            device.stall(0)
        first = len(program.ops) * INSTRUCTION_BYTES
        found = device.read(base, program.memory.size)
        return "" if np.array_equal(found[first:], expected()[first:]) else "bytes"

    return Trial("stalled", number, run)
