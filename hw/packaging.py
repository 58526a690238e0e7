"""Files that put the Verilog into projects of others: a FuseSoC core, a list of files, the registers as SystemRDL."""

from __future__ import annotations

import re

from tilewright.common.version import tilewright_version
from tilewright.isa.config import NpuConfig
from tilewright.isa.registers import REGISTER_SPACE, REGISTERS, Bit, Register

CORE_FILE, LIST_FILE, REGISTERS_FILE = "npu.core", "npu.f", "npu.rdl"
#: SystemRDL's properties of a field, by the access of its register.
_ACCESS = {
    "R": "sw = r; hw = w;",
    "RW": "sw = rw; hw = r;",
    "W1C": "sw = rw; onwrite = woclr; hw = w;",
    "W": "sw = w; hw = r;",
}


def core(config: NpuConfig, top: str, source: str, lint: str) -> str:
    """Returns the FuseSoC core `tilewright:npu:NAME`, with targets lint (Verilator) and synth (Yosys, ECP5).

    Args:
        top: name of the top module.
        source, lint: names of the Verilog and of Verilator's rules.
    """
    release = tilewright_version().partition(" ")[2] or "0"
    name = re.sub(r"[^0-9A-Za-z_]", "_", config.name)
    return f"""CAPI=2:

name: "tilewright:npu:{name}:{release}"
description: "Int8 neural-network accelerator, configuration {config.fingerprint}"

filesets:
  rtl:
    files:
      - {source}: {{file_type: verilogSource-2001}}
  lint:
    files:
      - {lint}: {{file_type: vlt}}

targets:
  default: &default
    filesets: [rtl]
    toplevel: {top}
  lint:
    <<: *default
    description: "Verilator finds nothing"
    default_tool: verilator
    filesets: [lint, rtl]
    tools:
      verilator:
        mode: lint-only
        verilator_options: ["-Wall"]
  synth:
    <<: *default
    description: "Netlist for an ECP5 by Yosys"
    default_tool: yosys
    tools:
      yosys:
        arch: ecp5
        output_format: json
"""


def file_list(source: str, lint: str) -> str:
    """Returns the arguments of `verilator -f`, which other simulators read without the line of the rules."""
    return f"{lint}\n{source}\n"


def system_rdl() -> str:
    """Returns the registers as SystemRDL 2.0; they are the same for every configuration."""
    lines = [
        "// The AXI4-Lite registers of the NPU.",
        "addrmap npu {",
        '  name = "Tilewright NPU"; default regwidth = 32; default accesswidth = 32;',
        f"  // {REGISTER_SPACE} bytes of address space.",
    ]
    for register in REGISTERS:
        lines += _register(register)
    return "\n".join([*lines, "};", ""])


def _register(register: Register) -> list[str]:
    bits = register.bits or (Bit("VALUE", 0, 32, register.doc),)
    fields = [
        f'    field {{ desc = "{b.doc}"; {_ACCESS[register.access]} }} {b.name}[{b.low + b.bits - 1}:{b.low}];'
        for b in bits
    ]
    return [f'  reg {{ desc = "{register.doc}";', *fields, f"  }} {register.name} @ 0x{register.offset:x};"]
