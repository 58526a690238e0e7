"""Cells of an FPGA as the numbers that `netlist.h` simulates, whatever the family: `cells.h` in Python.

Clocks are outputs of one PLL, or there is one clock alone. Their edges are counted in a part of a cycle of which all
periods and phases are whole numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from tilewright.fpga.errors import FpgaError
from tilewright.fpga.flows.netlist import Bit, Cell, Module

#: Nets of the constants; an open input is 0, and so is one that is said not to matter.
ZERO, ONE = 0, 1
_CONSTANT: dict[Bit, int] = {"0": ZERO, "1": ONE, "x": ZERO, "z": ZERO}
#: 18-bit words of a block RAM.
BLOCK_WORDS = 1024
#: Flags of a register.
SET, ASYNC, ENABLE_INVERTED, RESET_INVERTED, RESET_NEEDS_ENABLE = 1, 2, 4, 8, 16
#: The table of a multiplexer of the first two inputs by the third one.
SELECT = 0b11001010
#: Makes the numbers of a cell, by its name.
Maker = Callable[[str, Cell], None]


@dataclass
class Numbers:
    """A netlist, by kind of cell.

    Attributes:
        nets: how many, constants included.
        luts: in the order of `lut_names`, then parts of other cells: five inputs, output, table.
        registers, small_rams, multipliers, blocks: see `cells.h`.
        pins: net of each port of the module, by name: what comes in, or what an output drives.
        outputs: of each that is an output, what it drives, and what is 1 while it does not.
        locked: the net that says that the PLL runs.
        lut_names: of the cells that are a LUT of up to four inputs.
        clocks: number of each clock, by its net; 0 is the one that cycles are counted in.
        edges: period of each clock, and its first edge after one of clock 0.
    """

    nets: int = 2
    luts: list[list[int]] = field(default_factory=list)
    registers: list[list[int]] = field(default_factory=list)
    small_rams: list[list[int]] = field(default_factory=list)
    multipliers: list[list[int]] = field(default_factory=list)
    blocks: list[list[int]] = field(default_factory=list)
    pins: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, tuple[int, int]] = field(default_factory=dict)
    locked: int = ZERO
    lut_names: list[str] = field(default_factory=list)
    clocks: dict[int, int] = field(default_factory=dict)
    edges: list[tuple[int, int]] = field(default_factory=list)

    def clock(self, net: int, edges: tuple[int, int] = (1, 0)) -> int:
        """Returns the number of a clock, which may be a new one with these edges."""
        if net not in self.clocks:
            self.clocks[net] = len(self.clocks)
            self.edges.append(edges)
        return self.clocks[net]

    def tables(self) -> list[np.ndarray]:
        """int32, cells x numbers, in the order of the arguments of `tw_netlist_create`."""
        kinds = (self.luts, self.registers, self.small_rams, self.multipliers, self.blocks)
        return [np.array(kind, np.int64).astype(np.int32) for kind in kinds]


class CellReader:
    """The cells of a flat module. A family says what they are.

    Attributes:
        numbers: what has been read.
        cells: by name.
        nets: number of each net that has been asked for; some nets have two names.
        pll_outputs: edges of the outputs of the PLL, by the number of their net.
        driven_pads: of each pad that can be driven, what drives it, and what is 1 while nothing does.

    Raises:
        FpgaError: a kind of cell, or a setting of one, that is not simulated; or clocks that are not of one PLL.
    """

    def __init__(self, module: Module) -> None:
        self.numbers = Numbers()
        self.cells: dict[str, Cell] = module["cells"]
        self.nets: dict[Bit, int] = dict(_CONSTANT)
        self.pll_outputs: dict[int, tuple[int, int]] = {}
        self.driven_pads: dict[Bit, tuple[int, int]] = {}
        makers = self.makers()
        order = list(makers)
        for name, cell in self.cells.items():
            if cell["type"] not in makers:
                raise FpgaError(f"cell {name}: no model of {cell['type']}; there are {', '.join(makers)}")
        for name, cell in sorted(self.cells.items(), key=lambda item: order.index(item[1]["type"])):
            makers[cell["type"]](name, cell)
        for name, port in module["ports"].items():
            for index, bit in enumerate(port["bits"]):
                label = name if len(port["bits"]) == 1 else f"{name}[{index}]"
                self.numbers.pins.setdefault(label, self.net(bit))
                if bit in self.driven_pads:
                    self.numbers.outputs[label] = self.driven_pads[bit]
        self.numbers.nets = max(self.nets.values()) + 1
        if not self.numbers.clocks:
            raise FpgaError("the netlist has no clock")

    def makers(self) -> Mapping[str, Maker]:
        """The makers by kind of cell, in order: those that give a net a second name come first, LUTs before other
        logic."""
        raise NotImplementedError

    def net(self, bit: Bit) -> int:
        """Returns the net number of a netlist bit, allocated on first use."""
        return self.nets.setdefault(bit, len(self.nets) - len(_CONSTANT) + 2)

    def input(self, cell: Cell, port: str, index: int = 0) -> int:
        """Returns the net at a port; 0 where there is none."""
        bits = cell["connections"].get(port, ())
        return self.net(bits[index]) if index < len(bits) else ZERO

    def inputs(self, cell: Cell, ports: Iterable[str]) -> list[int]:
        """Returns the numbers of the nets at ports of one bit."""
        return [self.input(cell, port) for port in ports]

    def clock(self, cell: Cell, port: str, inverted: bool = False) -> int:
        """Returns the number of a clock."""
        if inverted:
            raise FpgaError(f"a netlist is simulated with rising edges alone, {cell['type']} has a falling one")
        net, clocks = self.input(cell, port), self.numbers.clocks
        if clocks and net not in clocks and net not in self.pll_outputs:
            raise FpgaError("a netlist is simulated with clocks of one PLL, this one has others")
        return self.numbers.clock(net, self.pll_outputs.get(net, (1, 0)))

    def pad(self, name: str, pad: Bit, inner: int, driven: tuple[int, int] | None = None) -> None:
        """A buffer at a pin, the same wire as what is inside; `driven`: as `driven_pads`."""
        if pad in self.nets:
            raise FpgaError(f"cell {name}: a pin with two buffers")
        self.nets[pad] = inner
        if driven:
            self.driven_pads[pad] = driven

    def clock_out(self, name: str, cell: Cell, inputs: Iterable[str], clock: str, output: str) -> None:
        """A register of both edges that gives a clock to a pin: high in the first half of each cycle. `inputs`: of the
        value in that half, of the other one, and others that must be 0."""
        high, *low = self.inputs(cell, inputs)
        (bit,) = cell["connections"][output]
        if high != ONE or any(net != ZERO for net in low) or bit in self.nets:
            raise FpgaError(f"cell {name}: no model of {cell['type']} but as a clock")
        self.clock(cell, clock)
        self.nets[bit] = self.input(cell, clock)

    def nothing(self, name: str, cell: Cell) -> None:
        """A cell that does nothing."""
