"""Flows from a design to a bitstream: one for each FPGA family that open tools build."""

from __future__ import annotations

from tilewright.fpga.flows.ecp5 import Ecp5
from tilewright.fpga.flows.gowin import Gowin
from tilewright.fpga.flows.pins import PlatformFlow

#: Flows whose pins Amaranth's platforms know, by family.
FLOWS: dict[str, type[PlatformFlow]] = {"ecp5": Ecp5, "gowin": Gowin}
