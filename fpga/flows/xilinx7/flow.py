"""The flow of Zynq-7000 and Artix-7: Yosys, nextpnr, FASM, frames, `.bit`."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from tilewright.fpga.cells import XILINX, Capacity, Used
from tilewright.fpga.flows import into_luts
from tilewright.fpga.flows.flow import Flow, Progress
from tilewright.fpga.flows.netlist import Module, changed
from tilewright.fpga.flows.synthesis import COUNT, NAME, NETLIST, ROUTING, SYNTHESIS, cell_counts
from tilewright.fpga.flows.tools import execute, run
from tilewright.fpga.flows.watch import Watch
from tilewright.fpga.flows.xilinx7 import blocks, buffers, fasm, tools
from tilewright.fpga.flows.xilinx7.factors import move_factors

BITSTREAM = f"{NAME}.bit"
#: The image that Linux's FPGA manager loads.
IMAGE = f"{NAME}.bit.bin"
_FASM, _FRAMES, _LOG, _PINS = f"{NAME}.fasm", f"{NAME}.frames", f"{NAME}.tim", f"{NAME}.xdc"
#: nextpnr's second router searches far around wires that are used twice when they cost much more than others: most of
#: the wires of this family are free, so the costs grow slowly, and each pass takes minutes less.
ROUTER = {
    "router2/estimateWeight": "2.0",
    "router2/initCurrCongWeight": "0.3",
    "router2/currCongWeightMult": "0.3",
    "router2/histCongWeight": "0.3",
}
#: Multipliers beyond this share of the DSP blocks become LUTs: blocks that pass sums on stand above each other, so that
#: not all places can be taken.
PLACEABLE = 0.85
TECHMAP = "plain.v"
#: Bits of the wider factor of a DSP48E1.
DSP_BITS = 25
#: Without shift registers in LUTs: their enable is that of a memory in the same slice, which nextpnr does not know.
_SYNTHESIS = f"synth_xilinx -flatten -nosrl -family xc7 -top {NAME}"
#: Declares PS7, without which the design would have no outputs.
_BEGIN = f"{_SYNTHESIS} -run begin:prepare"
#: `synth_xilinx`'s own part for DSP blocks, without pre-adders: yosys makes none where USE_DPORT says there is one. The
#: database of bits only knows how their inputs are tied to a constant, and yosys takes the sum away from a register
#: that others read, too.
_MAP_DSP = (
    "memory_dff",
    "alumacc -macc-only",
    "maccmap -unmap",
    "opt_clean",
    f"techmap -map +/mul2dsp.v -map +/xilinx/xc7_dsp_map.v -D DSP_A_MAXWIDTH={DSP_BITS} -D DSP_A_MAXWIDTH_PARTIAL=18 "
    "-D DSP_B_MAXWIDTH=18 -D DSP_A_MINWIDTH=2 -D DSP_B_MINWIDTH=2 -D DSP_Y_MINWIDTH=9 -D DSP_SIGNEDONLY=1 "
    "-D DSP_NAME=$__MUL25X18",
    "select a:mul2dsp",
    "setattr -unset mul2dsp",
    "opt_expr -fine",
    "wreduce",
    "select -clear",
    'setparam -set USE_DPORT "TRUE" t:DSP48E1',
    "xilinx_dsp -family xc7",
    'setparam -set USE_DPORT "FALSE" t:DSP48E1',
    "chtype -set $mul t:$__soft_mul",
)


class Xilinx7(Flow):
    """The flow of the family.

    Products go into DSP blocks, and so do the registers before and behind them and the sums of the array's first stage.
    `blocks` adds the parts of their configuration that nextpnr omits.

    Args:
        part: full name of the FPGA.
        capacity: resources of the FPGA.

    Attributes:
        placements: scripts for nextpnr before placement.
    """

    images: tuple[str, ...] = (BITSTREAM,)
    note = "not yet seen on a board; nextpnr's timing of this family is incomplete"
    placements: tuple[Path, ...] = (blocks.PLACEMENT,)

    def __init__(self, part: str, capacity: Capacity) -> None:
        self.part, self.capacity = part, capacity

    @cached_property
    def tools(self) -> tools.Tools:
        """The tools that pip does not have. Raises `FpgaError`."""
        return tools.find()

    def require(self) -> None:
        """Checks that the tools are installed; see `Flow.require`."""
        super().require()
        self.tools.database_of(self.part)

    def generate(self, top: Any, directory: Path) -> None:
        """Writes design, constraints and script; see `Flow.generate`."""
        design, constraints = self.convert(top)
        script = (
            f"read_rtlil {NAME}.il",
            _BEGIN,
            into_luts.AFTER_READ,
            f"{_SYNTHESIS} -run prepare:map_dsp",
            *_MAP_DSP,
            f"{_SYNTHESIS} -run coarse:",
            COUNT,
            f"write_json {NETLIST}\n",
        )
        for name, text in ((f"{NAME}.il", design), (f"{NAME}.ys", "\n".join(script)), (_PINS, constraints)):
            (directory / name).write_text(text, encoding="utf-8")

    @abstractmethod
    def convert(self, top: Any) -> tuple[str, str]:
        """The design as RTLIL, and the constraints of its pins (XDC)."""

    def change(self, module: Module) -> int:
        """Changes the netlist before placement; returns the number of LUTs added."""
        return 0

    def synthesise(self, directory: Path) -> Used:
        """Makes the netlist; see `Flow.synthesise`."""
        multipliers, _ = into_luts.survey(directory, None, (_BEGIN, "blackbox =A:whitebox"), DSP_BITS)
        room = replace(self.capacity, dsp=int(PLACEABLE * self.capacity.dsp))
        chosen = into_luts.choose(multipliers, [], room)
        into_luts.write_script(chosen, directory, TECHMAP, sums=False)
        run(SYNTHESIS, directory)
        cells = cell_counts(directory)
        with changed(directory / NETLIST, NAME) as module:
            added, moved = self.change(module), move_factors(module)
            module["settings"] = ROUTER
        used = XILINX.count(cells)
        return replace(used, lut=used.lut + added, ff=used.ff - moved)

    def place_and_route(self, directory: Path, used: Used, mhz: float, seeds: Sequence[int], progress: Progress) -> int:
        """Places and routes; see `Flow.place_and_route`."""
        progress("place and route")
        (seed,) = seeds
        command = (
            *self.tools.nextpnr_for(self.part), "--json", NETLIST, "--vopt", f"xdc={_PINS}",
            "--vopt", f"fasm={_FASM}", "--report", ROUTING, "--log", _LOG, "--quiet",
            *(argument for script in self.placements for argument in ("--pre-place", str(script))),
            "--post-route", str(blocks.LISTING),
            "--freq", f"{mhz:.3f}", "--seed", str(seed), "--timing-allow-fail", "--placer", "static",
        )  # fmt: skip
        log = directory / _LOG
        execute(command, directory, "place and route", tools.NEXTPNR, log, Watch(log, mhz, progress))
        listed = json.loads((directory / blocks.LISTED).read_text(encoding="utf-8"))
        routing = json.loads((directory / ROUTING).read_text(encoding="utf-8"))
        (directory / ROUTING).write_text(json.dumps(blocks.slowest(routing, listed["dsp_path"])), encoding="utf-8")
        return seed

    def pack(self, directory: Path) -> None:
        """Makes the bitstream; see `Flow.pack`."""
        data = self.tools.database_of(self.part)
        database = fasm.Database(data, tools.device_of(self.part))
        always = data / self.part / "required_features.fasm"
        required = always.read_text(encoding="ascii") if always.exists() else ""
        widths = json.loads((directory / blocks.LISTED).read_text(encoding="utf-8"))["widths"]
        tiles = {database.tile_of(bel): ports for bel, ports in widths.items()}
        text = blocks.complete((directory / _FASM).read_text(encoding="ascii"), tiles)
        frames = fasm.frames(required + text, database)
        (directory / _FRAMES).write_text(fasm.frames_text(frames), encoding="ascii")
        write = (
            *self.tools.frames2bit, f"--part_file={data / self.part / 'part.yaml'}", f"--part_name={self.part}",
            f"--frm_file={_FRAMES}", f"--output_file={BITSTREAM}",
        )  # fmt: skip
        execute(write, directory, "bitstream", tools.FRAMES2BIT, directory / _FRAMES)


class Zynq7(Xilinx7):
    """The flow of a design without pins, around the processing system."""

    images = (BITSTREAM, IMAGE)
    placements = (buffers.PLACEMENT, blocks.PLACEMENT)

    def convert(self, top: Any) -> tuple[str, str]:
        """The design, and no pins; see `Xilinx7.convert`."""
        from amaranth.back import rtlil  # `doctor` asks for this family's tools without it

        return rtlil.convert(top, name=NAME, ports=[], emit_src=False), ""

    def change(self, module: Module) -> int:
        """Inserts LUTs behind the outputs of the processing system; see `Xilinx7.change`."""
        return buffers.add_buffers(module)

    def pack(self, directory: Path) -> None:
        """Makes the bitstream, and the image for Linux; see `Flow.pack`."""
        super().pack(directory)
        (directory / IMAGE).write_bytes(fasm.manager_image((directory / BITSTREAM).read_bytes()))


class Artix7(Xilinx7):
    """The flow of a board with an Amaranth platform, whose toolchain is `Xray`.

    Args:
        platform: pins and device of the board.
        capacity: resources of the FPGA.
    """

    packages = ("amaranth_boards", *Xilinx7.packages)

    def __init__(self, platform: Any, capacity: Capacity) -> None:
        super().__init__(platform._xray_part, capacity)
        self.platform = platform

    def convert(self, top: Any) -> tuple[str, str]:
        """The design and its pins, by the platform; see `Xilinx7.convert`."""
        from amaranth.back import rtlil

        platform = self.platform
        platform.toolchain_prepare = partial(rtlil.convert_fragment, emit_src=False, propagate_domains=False)
        design, _ = platform.prepare(top, name=NAME)
        pins = "".join(
            f"set_property {name} {value} [get_ports {{{port}}}]\n"
            for port, pin, attributes in platform.iter_port_constraints_bits()
            for name, value in (*attributes.items(), ("LOC", pin))
        )
        return design, pins
