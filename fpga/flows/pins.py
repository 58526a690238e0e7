"""The base of flows whose pins and device Amaranth's platforms define."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.fpga.cells import Capacity, Used
from tilewright.fpga.flows import into_blocks, into_luts
from tilewright.fpga.flows.flow import Flow
from tilewright.fpga.flows.synthesis import COUNT, NAME, NARROW, NETLIST, SYNTHESIS
from tilewright.fpga.flows.tools import run

#: Share of the LUTs that is built in place of blocks, above which LUTs are short.
DENSE = 0.1


class PlatformFlow(Flow):
    """A flow for a board with a platform.

    Attributes:
        command: command of yosys that synthesises for the family.
        netlist: file of the netlist to place.
        techmap: file of `techmap` that makes multipliers and adders of LUTs.
        fills_blocks: True to put memories into block RAMs that would be free.
        filled: share of the DSP blocks that are used where there are not enough.
        overrides: overrides of the scripts of Amaranth's platform.
    """

    command: str
    netlist: str = NETLIST
    techmap: str
    fills_blocks: bool = False
    filled: float = 1.0
    overrides: Mapping[str, str] = {"synth_opts": NARROW, "script_after_synth": COUNT}

    def __init__(self, platform: Any, capacity: Capacity) -> None:
        self.platform, self.capacity = platform, capacity

    def generate(self, top: Any, directory: Path) -> None:
        """Writes design, constraints and script; see `Flow.generate`."""
        overrides = {**self.overrides, "script_after_read": into_luts.AFTER_READ}
        self.platform.prepare(top, name=NAME, emit_src=False, **overrides).extract(directory)

    def synthesise(self, directory: Path) -> Used:
        """Makes the netlist; parts for which the FPGA has too few blocks become LUTs. See `Flow.synthesise`."""
        multipliers, memories = self.survey(directory)
        large = self.choose_large(memories)
        memories = [memory for memory in memories if memory not in large]
        chosen = into_luts.choose(multipliers, memories, self.capacity, self.filled)
        free = self.capacity.bram - sum(m.blocks for m in memories)
        blocks = into_blocks.choose(memories, free) if self.fills_blocks else ()
        into_luts.write_script(chosen, directory, self.techmap, blocks=blocks, large=large)
        self.prepare_mapping(directory, dense=chosen.luts > DENSE * self.capacity.lut)
        self.run_synthesis(directory)
        return self.finish_netlist(directory, chains=bool(chosen))

    def survey(self, directory: Path) -> tuple[list[into_luts.Multiplier], list[into_luts.Memory]]:
        """Multipliers and memories of the design, by a first run of yosys."""
        return into_luts.survey(directory, self.command)

    def choose_large(self, memories: Sequence[into_luts.Memory]) -> list[into_luts.Memory]:
        """The memories that go into large block RAMs; none, where the FPGA has no such."""
        return []

    def run_synthesis(self, directory: Path) -> None:
        """Runs the synthesis script."""
        run(SYNTHESIS, directory)

    def prepare_mapping(self, directory: Path, dense: bool) -> None:
        """Writes the files that the synthesis script reads; `dense`: LUTs are short."""

    @abstractmethod
    def finish_netlist(self, directory: Path, chains: bool) -> Used:
        """Changes the netlist before it is placed, and counts its resources; `chains`: sums are those of `techmap`."""
