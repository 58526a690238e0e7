"""Files that put the Verilog into projects of others: a wrapper with the usual names of AXI, constraints, a FuseSoC
core, a list of files, the registers as SystemRDL and SVD."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.sax.saxutils import escape

from tilewright.common.version import tilewright_version
from tilewright.isa.config import NpuConfig
from tilewright.isa.registers import REGISTER_SPACE, REGISTERS, Bit, Register

CORE_FILE, LIST_FILE, REGISTERS_FILE, SVD_FILE = "npu.core", "npu.f", "npu.rdl", "npu.svd"
WRAPPER_FILE, SDC_FILE, XDC_FILE = "npu_axi.v", "npu.sdc", "npu.xdc"
#: SystemRDL's properties of a field, by the access of its register.
_ACCESS = {
    "R": "sw = r; hw = w;",
    "RW": "sw = rw; hw = r;",
    "W1C": "sw = rw; onwrite = woclr; hw = w;",
    "W": "sw = w; hw = r;",
}


def wrapper_of(top: str) -> str:
    """Returns the name of the module with the usual names of AXI around module `top`."""
    return f"{top}_axi"


def wrapper(top: str, ports: Sequence[tuple[str, str, int]]) -> str:
    """Returns the Verilog of `wrapper_of(top)`: ports `aclk`, `aresetn`, `m_axi_*`, `s_axi_*` and `irq`.

    Args:
        ports: name, direction and bits of every port of `top`.
    """
    outer = {"axi_": "m_axi_", "axil_": "s_axi_", "irq": "irq"}
    outside, unread, pins = ["input aclk", "input aresetn"], [], [".clk(aclk)", ".rst(reset[1])"]
    for name, direction, bits in ports:
        prefix = next((prefix for prefix in outer if name.startswith(prefix)), None)
        width = f" [{bits - 1}:0]" if bits > 1 else ""
        if prefix is not None:
            renamed = outer[prefix] + name.removeprefix(prefix)
            outside.append(f"{direction}{width} {renamed}")
        elif direction == "output":
            renamed = f"unused_{name}"
            unread.append(f"  wire{width} {renamed};\n")
        else:
            continue
        pins.append(f".{name}({renamed})")
    return f"""\
// {top} with the usual names of AXI. aresetn is low for 4 cycles or longer; it may change at any time.
module {wrapper_of(top)} (
  {f",{chr(10)}  ".join(outside)}
);
  (* ASYNC_REG = "TRUE" *) reg [1:0] reset = 2'b11;
  always @(posedge aclk) reset <= {{reset[0], ~aresetn}};
{"".join(unread)}  {top} npu (
    {f",{chr(10)}    ".join(pins)}
  );
endmodule
"""


def sdc(top: str) -> str:
    """Returns constraints for a synthesis of the wrapper by itself, as most tools read them."""
    return f"""\
# {wrapper_of(top)} has one clock, so nothing crosses between clocks but aresetn, which two registers take in.
create_clock -name aclk -period 10.0 [get_ports aclk]
set_false_path -from [get_ports aresetn]
"""


def xdc(top: str) -> str:
    """Returns constraints for the wrapper within a design of Vivado, whose clock comes from outside."""
    return f"""\
# read_xdc -ref {wrapper_of(top)} {XDC_FILE}
# One clock, which the design around it constrains. Only aresetn may come from another one: two registers take it in.
set_false_path -to [get_pins {{reset_reg[0]/D}}]
"""


def core_name(config: NpuConfig) -> str:
    """Returns the name of the FuseSoC core, but for its version."""
    return f"tilewright:npu:{re.sub(r'[^0-9A-Za-z_]', '_', config.name)}"


def core(config: NpuConfig, top: str, source: str, lint: str, bench: bool = False) -> str:
    """Returns the FuseSoC core `core_name`, with targets lint (Verilator) and synth (Yosys, ECP5).

    Args:
        top: name of the module `source` has.
        source, lint: names of the Verilog and of Verilator's rules.
        bench: the bench of `tilewright.export.rtl_project` is there: target sim runs it.
    """
    release = tilewright_version().partition(" ")[2] or "0"
    return f"""CAPI=2:

name: "{core_name(config)}:{release}"
description: "Int8 neural-network accelerator, configuration {config.fingerprint}"

filesets:
  rtl:
    files:
      - {source}: {{file_type: verilogSource-2001}}
      - {WRAPPER_FILE}: {{file_type: verilogSource-2001}}
  lint:
    files:
      - {lint}: {{file_type: vlt}}
{_BENCH_FILES if bench else ""}
targets:
  default: &default
    filesets: [rtl]
    toplevel: {wrapper_of(top)}
  lint:
    <<: *default
    description: "Verilator finds nothing"
    default_tool: verilator
    filesets: [lint, rtl]
    tools:
      verilator:
        mode: lint-only
        verilator_options: ["-Wall"]
{_BENCH_TARGET if bench else ""}  synth:
    <<: *default
    description: "Netlist for an ECP5 by Yosys"
    default_tool: yosys
    tools:
      yosys:
        arch: ecp5
        output_format: json
"""


_BENCH_FILES = """\
  bench:
    files:
      - bench/bench.cpp: {file_type: cppSource}
      - bench/tilewright_memory.h: {file_type: cppSource, is_include_file: true}
      - driver/tilewright_npu.c: {file_type: cSource}
      - driver/tilewright_npu.h: {file_type: cSource, is_include_file: true}
      - driver/tilewright_npu_registers.h: {file_type: cSource, is_include_file: true}
      - bench/bench.txt: {file_type: user, copyto: bench.txt}
"""
_BENCH_TARGET = """\
  sim:
    <<: *default
    description: "A network by Verilator, whose bytes and cycles are compared"
    default_tool: verilator
    filesets: [lint, rtl, bench]
    tools:
      verilator:
        mode: cc
        verilator_options: ["-O3", "--x-assign", "fast", "--x-initial", "fast", "--noassert", "-Wno-fatal"]
        make_options: ["OPT_FAST=-O1"]
"""


def file_list(source: str, lint: str) -> str:
    """Returns the arguments of `verilator -f`, which other simulators read without the line of the rules."""
    return f"{lint}\n{source}\n{WRAPPER_FILE}\n"


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


#: SVD's properties of a register, by its access.
_SVD_ACCESS = {
    "R": "<access>read-only</access>",
    "RW": "<access>read-write</access>",
    "W1C": "<access>read-write</access><modifiedWriteValues>oneToClear</modifiedWriteValues>",
    "W": "<access>write-only</access>",
}


def svd() -> str:
    """Returns the registers as CMSIS-SVD 1.3, which debuggers and svd2rust read; the base address is 0."""
    registers = "".join(_svd_register(register) for register in REGISTERS)
    return f"""\
<?xml version="1.0" encoding="utf-8"?>
<device schemaVersion="1.3" xmlns:xs="http://www.w3.org/2001/XMLSchema-instance">
 <vendor>tilewright</vendor><name>npu</name><version>{tilewright_version().partition(" ")[2] or "0"}</version>
 <description>Tilewright NPU</description><addressUnitBits>8</addressUnitBits><width>32</width><size>32</size>
 <peripherals><peripheral>
  <name>NPU</name><description>Neural-network accelerator</description><baseAddress>0</baseAddress>
  <addressBlock><offset>0</offset><size>{REGISTER_SPACE}</size><usage>registers</usage></addressBlock>
  <registers>
{registers}  </registers>
 </peripheral></peripherals>
</device>
"""


def _svd_register(register: Register) -> str:
    fields = "".join(
        f"<field><name>{b.name}</name><description>{escape(b.doc)}</description>"
        f"<bitOffset>{b.low}</bitOffset><bitWidth>{b.bits}</bitWidth></field>"
        for b in register.bits
    )
    return (
        f"   <register><name>{register.name}</name><description>{escape(register.doc)}</description>"
        f"<addressOffset>0x{register.offset:x}</addressOffset>{_SVD_ACCESS[register.access]}"
        f"{f'<fields>{fields}</fields>' if fields else ''}</register>\n"
    )
