"""Flows from a design to a bitstream: one for each FPGA family that open tools build."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.fpga.cells import Capacity
from tilewright.fpga.flows.ecp5 import Ecp5
from tilewright.fpga.flows.flow import Flow
from tilewright.fpga.flows.gowin import Gowin
from tilewright.fpga.flows.nexus import Nexus
from tilewright.fpga.flows.xilinx7.flow import Artix7

#: Flows whose pins Amaranth's platforms know, by family: of a platform, and of what its FPGA has.
FLOWS: dict[str, Callable[[Any, Capacity], Flow]] = {"ecp5": Ecp5, "gowin": Gowin, "xc7": Artix7, "nexus": Nexus}
