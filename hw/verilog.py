"""Verilog of one configuration, with a README that lists its ports and registers."""

from __future__ import annotations

from pathlib import Path

from amaranth.back import verilog
from amaranth.lib.wiring import Out

from hw.npu import Npu
from isa.config import NpuConfig
from isa.registers import REGISTERS

TOP = "npu"


def convert(config: NpuConfig) -> str:
    """The Verilog text; equal for equal configurations."""
    return verilog.convert(Npu(config), name=TOP, emit_src=False, strip_internal_attrs=True)


def readme(config: NpuConfig) -> str:
    """Ports and register map of one configuration as Markdown."""
    lines = [
        f"# NPU `{config.name}`",
        "",
        f"Top module `{TOP}`, configuration fingerprint `{config.fingerprint}`.",
        "",
        "## Ports",
        "",
        "| port | direction | bits |",
        "|---|---|---|",
        "| clk | input | 1 |",
        "| rst | input | 1 |",
    ]
    npu = Npu(config)
    npu._MustUse__silence = True  # asked for its ports only
    for (name,), member, value in npu.signature.flatten(npu):
        lines.append(f"| {name} | {'output' if member.flow == Out else 'input'} | {len(value)} |")
    lines += ["", "## Registers", "", "| offset | name | access | meaning |", "|---|---|---|---|"]
    for register in REGISTERS:
        bits = "".join(f"; {b.name} [{b.low + b.bits - 1}:{b.low}] {b.doc}" for b in register.bits)
        lines.append(f"| 0x{register.offset:03x} | {register.name} | {register.access} | {register.doc}{bits} |")
    return "\n".join(lines) + "\n"


def write_verilog(config: NpuConfig, directory: str | Path) -> Path:
    """Writes `npu_<config>.v` and `README.md` into `directory` (made if missing). Returns the Verilog file."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"npu_{config.name}.v"
    path.write_text(convert(config), encoding="utf-8")
    (directory / "README.md").write_text(readme(config), encoding="utf-8")
    return path
