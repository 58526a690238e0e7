"""Completes the FASM of DSP blocks and block RAMs, of which nextpnr omits features.

DSP48E1: eight inputs come from a multiplexer of the tile with two constants. nextpnr assumes that an unrouted input is
1, like elsewhere, and inverts it where the design has a 0. Measured on hardware that does not hold here: A * B does not
depend on A. The vendor's tool selects the constant and leaves the inverter off, for a 0 as for a 1
(https://github.com/openXC7/nextpnr-xilinx/pull/159, on two parts); so does this.

Block RAM: a RAMB36E1 with a port of 1 or 9 bits has a feature of its own, without which the ninth bit reads 0
(https://github.com/openXC7/nextpnr-xilinx/pull/95). The clock of a register behind the outputs has an inverter, which
is on where its bit is not set (https://github.com/openXC7/nextpnr-xilinx/pull/127). The features of widths that nextpnr
omits besides (https://github.com/openXC7/nextpnr-xilinx/issues/165) have no bits that are set.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tilewright.fpga.errors import FpgaError
from tilewright.fpga.flows.xilinx7.fasm import features

#: Script for nextpnr before placement.
PLACEMENT = Path(__file__).resolve().parent / "nextpnr" / "place_blocks.py"
#: Script for nextpnr after routing, and the file it writes: widths of every RAMB36E1, and the slowest path at a DSP
#: block.
LISTING = Path(__file__).resolve().parent / "nextpnr" / "after_route.py"
LISTED = "top.blocks.json"
#: Inputs with a multiplexer for constants and an inverter: bus, indices.
TIED = {"INMODE": range(5), "ALUMODE": range(2, 4), "OPMODE": range(6, 7)}
GROUND, SUPPLY = "DSP_GND", "DSP_VCC"
#: Widths of a port of a RAMB36E1 that the features of its halves do not distinguish.
_ODD_WIDTHS = (1, 9)
_REGISTERS = {"DOA_REG": ("CLKARDCLK", "REGCLKARDRCLK"), "DOB_REG": ("CLKBWRCLK", "REGCLKB")}


def complete(text: str, widths: Mapping[str, Mapping[str, int]]) -> str:
    """Adds the features that nextpnr omits to its FASM text.

    Args:
        text: output of nextpnr.
        widths: port widths of every RAMB36E1 by tile: READ_WIDTH_A and so on.

    Raises:
        FpgaError: an input of a DSP block gets a signal where only constants are known to work.
    """
    found: dict[str, set[str]] = defaultdict(set)
    for tile, name, index in features(text):
        found[tile].add(f"{name}[{index}]")
    added: list[str] = []
    for tile, names in found.items():
        if tile.startswith("DSP_"):
            for block in ("DSP_0", "DSP_1"):
                if any(name.startswith(f"DSP48.{block}.") for name in names):
                    added += (f"{tile}.{feature}" for feature in _ties(tile, block, names))
        elif tile.startswith("BRAM_"):
            added += (f"{tile}.{feature}" for feature in _registers(names))
    for tile, ports in widths.items():
        added += (f"{tile}.RAMB36.BRAM36_{port}_1" for port, width in ports.items() if width in _ODD_WIDTHS)
    return text + "\n" + "".join(f"{line}\n" for line in added)


def slowest(routing: dict[str, Any], path: Mapping[str, Any]) -> dict[str, Any]:
    """nextpnr's report of a design with one clock, with the path at a DSP block where that is the slowest; {}: there is
    none."""
    for clock, found in routing["fmax"].items():
        if path and 1e3 / path["ns"] < found["achieved"]:
            found["achieved"] = 1e3 / path["ns"]
            edge = f"posedge {clock}"
            steps: list[dict[str, Any]] = []
            before = path["cells"][0]["cell"]
            for cell in path["cells"]:
                ends = {"from": {"cell": before}, "to": {"cell": cell["cell"]}}
                steps += [{"type": "routing", "delay": cell["wire"]} | ends] if steps else []
                steps += [{"type": "logic", "delay": cell["logic"]} | ends]
                before = cell["cell"]
            routing["critical_paths"].insert(0, {"from": edge, "to": edge, "path": steps})
    return routing


def _ties(tile: str, block: str, names: set[str]) -> Iterator[str]:
    """Features that tie the constant inputs of a DSP block, `DSP_0` or `DSP_1` of a tile."""
    side = tile[len("DSP_")]
    sources = {name.split(".")[0]: name for name in names if name.startswith(f"{block}_")}
    for bus, indices in TIED.items():
        for index in indices:
            if source := sources.get(f"{block}_{bus}{index}"):
                raise FpgaError(f"FASM: {tile}: {source.partition('[')[0]}: {bus}[{index}] must be a constant")
            not_inverted = f"DSP48.{block}.ZIS_{bus}_INVERTED[{index}]"
            one = not_inverted in names
            yield f"{block}_{bus}{index}.{SUPPLY if one else GROUND}_{side}"
            if not one:
                yield not_inverted


def _registers(names: set[str]) -> Iterator[str]:
    """Features of the clocks of registers behind the outputs of a block RAM, the same as those of the outputs."""
    for half in ("RAMB18_Y0", "RAMB18_Y1"):
        for register, (clock, later) in _REGISTERS.items():
            if {f"{half}.{register}[0]", f"{half}.ZINV_{clock}[0]"} <= names:
                yield f"{half}.ZINV_{later}"
