"""Resources of an FPGA, and those used by a netlist: cells by the names that yosys gives them after mapping."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """Resources of an FPGA; `bram` in blocks of 18 Kbit, `dsp` in multipliers of 18x18."""

    lut: int
    ff: int
    dsp: int
    bram: int


@dataclass(frozen=True)
class Used:
    """Used resources, in units of `Capacity`; `lut` counts sites, on Gowin by `tilewright.fpga.flows.gowin_sites`."""

    lut: int
    ff: int
    dsp: float
    bram: int

    def missing(self, capacity: Capacity) -> list[tuple[str, float, int]]:
        """(resource, needed, available) of everything that does not fit."""
        named = {"LUTs": "lut", "flip-flops": "ff", "DSP multipliers": "dsp", "block RAMs": "bram"}
        pairs = [(title, getattr(self, name), getattr(capacity, name)) for title, name in named.items()]
        return [pair for pair in pairs if pair[1] > pair[2]]


@dataclass(frozen=True)
class Cells:
    """The cells of one family.

    Attributes:
        luts, dsps, brams: cells that count, and as how many; LUTs used as carry chains and as memory included.
        ff: prefix of the names of flip-flops.
    """

    luts: Mapping[str, int]
    dsps: Mapping[str, float]
    brams: Mapping[str, int]
    ff: str

    def count(self, cells: Mapping[str, int]) -> Used:
        """The resources of a netlist, given the number of its cells by name, from yosys' `stat`."""
        lut, dsp, bram = (
            sum(table.get(cell, 0) * count for cell, count in cells.items())
            for table in (self.luts, self.dsps, self.brams)
        )
        ff = sum(count for cell, count in cells.items() if cell.startswith(self.ff))
        return Used(lut=int(lut), ff=ff, dsp=dsp, bram=int(bram))


ECP5 = Cells({"LUT4": 1, "CCU2C": 2, "TRELLIS_DPR16X4": 6}, {"MULT18X18D": 1.0}, {"DP16KD": 1}, "TRELLIS_FF")
GOWIN = Cells(
    {**{f"LUT{n}": 1 for n in range(1, 5)}, "ALU": 1, "RAM16SDP1": 8, "RAM16SDP2": 8, "RAM16SDP4": 8},
    {"MULT9X9": 0.5, "MULT18X18": 1.0, "MULT36X36": 4.0},
    {"SP": 1, "SPX9": 1, "SDPB": 1, "SDPX9B": 1, "DPB": 1, "DPX9B": 1, "pROM": 1},
    "DFF",
)
NEXUS = Cells(
    {"LUT4": 1, "CCU2": 2, "WIDEFN9": 2, "DPR16X4": 4},
    {
        "MULT9X9": 0.5,
        "MULT18X18": 1.0,
        "MULT18X36": 2.0,
        "MULT36X36": 4.0,
        "MULTADDSUB18X18": 1.0,
        "MULTPREADD9X9": 0.5,
        "MULTPREADD18X18": 1.0,
        "MULTADDSUB9X9WIDE": 2.0,
    },
    {"PDPSC16K_MODE": 1, "PDP16K_MODE": 1, "DP16K_MODE": 1, "PDPSC16K": 1, "PDP16K": 1, "DP16K": 1},
    "FD1P3",
)
XILINX = Cells(
    {
        **{f"LUT{n}": 1 for n in range(1, 7)}, "RAM32M": 4, "RAM64M": 4, "RAM32M16": 8, "RAM64M8": 8, "RAM32X1D": 2,
        "RAM64X1D": 2, "RAM128X1D": 4, "SRL16E": 1, "SRLC32E": 1,
    },
    {"DSP48E1": 1.0, "DSP48E2": 1.0},
    {"RAMB18E1": 1, "RAMB18E2": 1, "RAMB36E1": 2, "RAMB36E2": 2},
    "FD",
)  # fmt: skip
