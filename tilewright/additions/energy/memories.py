"""Energies of on-chip SRAM and external memory, which no standard cell library has. Figures from cited tables."""

from __future__ import annotations

import math
from dataclasses import dataclass

#: M. Horowitz, "Computing's energy problem (and what we can do about it)", ISSCC 2014, figure 1.1.9, 45 nm at 0.9 V: 64
#: bits from a cache of 8 KB 10 pJ, of 32 KB 20 pJ, of 1 MB 100 pJ. That is 10 pJ · sqrt(size / 8 KB) within 13 %.
SRAM_PJ, SRAM_BITS, SRAM_BYTES, SRAM_NM, SRAM_VOLTS = 10.0, 64, 8192, 45.0, 0.9
#: The same figure: 64 bits from DRAM 1.3 to 2.6 nJ. The lower one: accesses are bursts, pages stay open.
DRAM_PJ_PER_BYTE = 1300.0 / 8
DRAM_SOURCE = "Horowitz, ISSCC 2014: DRAM, 1.3 nJ for 64 bits"


@dataclass(frozen=True)
class Technology:
    """A process: minimum length in nm and supply in V, which set C V² of a structure that shrinks with it."""

    name: str
    nm: float
    volts: float

    def factor(self, other: Technology) -> float:
        """Energy of a structure in the other process over that in this one: capacitance by length, and V²."""
        return other.nm / self.nm * (other.volts / self.volts) ** 2


OSU018 = Technology("osu018 (TSMC 180 nm, 1.8 V)", 180.0, 1.8)
#: By the name a Liberty library has inside.
TECHNOLOGIES = {"osu018_stdcells": OSU018}


def sram_pj(width: int, bits: int, technology: Technology = OSU018) -> float:
    """Returns pJ of reading or writing a word of `width` bits in a memory of `bits`, scaled to the technology by C
    V²."""
    of_table = SRAM_PJ * width / SRAM_BITS * math.sqrt(bits / 8 / SRAM_BYTES)
    return of_table * Technology("", SRAM_NM, SRAM_VOLTS).factor(technology)
