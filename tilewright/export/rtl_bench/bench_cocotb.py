"""The bench in cocotb with cocotbext-axi: `python bench/bench_cocotb.py` builds and runs it under Verilator.

The bytes are those of `bench.txt`, which `bench.cpp` explains; cycles depend on the memory, so they are only printed.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiRam

HERE = Path(__file__).resolve().parent
TOP = "@TOP@"
HEADER = (HERE.parent / "driver" / "tilewright_npu_registers.h").read_text()
REGISTER = {name: int(offset, 16) for name, offset in re.findall(r"#define TW_NPU_REG_(\w+) (0x\w{3})\n", HEADER)}
#: Start, and both kinds of interrupts.
START, DONE, BOTH = 1, 2, 3


@cocotb.test()
async def bytes_are_equal(dut: Any) -> None:
    """Every run leaves the bytes in memory that it should, and no others."""
    Clock(dut.aclk, 10, "ns").start()
    dut.aresetn.value = 0
    records = [line.split() for line in (HERE / "bench.txt").read_text().splitlines() if not line.startswith("#")]
    size = next(int(record[1]) for record in records if record[0] == "memory")
    reset = {"reset_active_level": False}
    registers = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axi"), dut.aclk, dut.aresetn, **reset)
    memory = AxiRam(AxiBus.from_prefix(dut, "m_axi"), dut.aclk, dut.aresetn, size=size, **reset)
    await ClockCycles(dut.aclk, 4)
    dut.aresetn.value = 1
    await ClockCycles(dut.aclk, 4)
    wanted, runs = bytearray(size), 0
    for kind, *values in records:
        if kind in ("write", "expect"):
            address, data = int(values[0]), bytes.fromhex(values[1])
            wanted[address : address + len(data)] = data
            if kind == "write":
                memory.write(address, data)
        elif kind == "region":
            number, base, nbytes, flags = map(int, values)
            for name, value in (("BASE_LO", base & 0xFFFFFFFF), ("BASE_HI", base >> 32), ("SIZE", nbytes)):
                await registers.write_dword(REGISTER[f"REGION{number}_{name}"], value)
            await registers.write_dword(REGISTER[f"REGION{number}_FLAGS"], flags)
        elif kind == "run":
            named = zip(("PROGRAM_REGION", "PROGRAM_OFFSET", "PROGRAM_LENGTH"), map(int, values))
            for name, value in (*named, ("IRQ_STATUS", BOTH), ("IRQ_ENABLE", BOTH), ("CONTROL", START)):
                await registers.write_dword(REGISTER[name], value)
            await with_timeout(RisingEdge(dut.irq), 10 * (100 * int(values[3]) + 100_000), "ns")
            assert await registers.read_dword(REGISTER["STATUS"]) == DONE
            wrong = [i for i, (a, b) in enumerate(zip(memory.read(0, size), wanted)) if a != b]
            assert not wrong, f"{len(wrong)} bytes differ, the first at {wrong[:8]}"
            runs += 1
            dut._log.info("run %d: %d cycles", runs, await registers.read_dword(REGISTER["CYCLES_LO"]))
    assert runs


def main() -> None:
    """Builds the simulation in `build/cocotb` and runs the test; the exit code is 1 if it fails."""
    from cocotb_tools.check_results import get_results
    from cocotb_tools.runner import Verilator

    class PortsOnly(Verilator):
        """Verilator without --public-flat-rw, which makes every signal visible, slow to build and slow to run."""

        def _build_command(self) -> Any:
            return [[str(part) for part in each if part != "--public-flat-rw"] for each in super()._build_command()]

    root, runner = HERE.parent, PortsOnly()
    sources = [root / line for line in (root / "npu.f").read_text().split()]
    build = root / "build" / "cocotb"
    ports = build / "ports.vlt"
    build.mkdir(parents=True, exist_ok=True)
    ports.write_text(f'`verilator_config\npublic_flat_rw -module "{TOP}" -port "*"\n')
    runner.build(
        sources=[ports, *sources], hdl_toplevel=TOP, build_dir=build, build_args=["-Wno-fatal", "-O3"], always=True
    )
    results = runner.test(
        hdl_toplevel=TOP, test_module=Path(__file__).stem, build_dir=build, test_dir=build,
        extra_env={"PYTHONPATH": str(HERE)}, results_xml=str(build / "results.xml"),
    )  # fmt: skip
    sys.exit(bool(get_results(results)[1]))


if __name__ == "__main__":
    main()
