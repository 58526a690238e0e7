"""From a design to a bitstream: one flow for each FPGA family that open tools build."""

from __future__ import annotations

from fpga.flows.ecp5 import Ecp5
from fpga.flows.gowin import Gowin
from fpga.flows.pins import PlatformFlow

#: Those whose pins Amaranth's platforms know, by family.
FLOWS: dict[str, type[PlatformFlow]] = {"ecp5": Ecp5, "gowin": Gowin}
