"""Proves that the netlist of a board's bitstream does what its RTL does.

python -m verification.equivalence --config tiny --board ulx3s_85f --json build/signoff/equivalence.json
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from tilewright.fpga.boards import BOARDS
from tilewright.fpga.flows.synthesis import DESIGN, NAME
from tilewright.fpga.points import point_of
from tilewright.isa.config import PRESETS
from verification.equivalence.ecp5 import LIBRARY, Netlist
from verification.equivalence.prove import Verdict, prove
from verification.equivalence.rtl import Rtl, gates_of
from verification.measured import SOURCES, write_with_command
from verification.netlists.netlist import read_netlist
from verification.netlists.runs import ECP5_BOARDS, digest_of_design, synthesised

#: Parts of a design are named by so many steps of their path at most.
STEPS = 4


def main(arguments: list[str]) -> int:
    """Runs the command line; returns 1 unless all is proved."""
    parser = argparse.ArgumentParser(prog="python -m verification.equivalence", description=__doc__.splitlines()[0])
    parser.add_argument("--board", default="ulx3s_85f", choices=ECP5_BOARDS)
    parser.add_argument("--config", default="tiny", choices=PRESETS)
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args(arguments)
    board, config = BOARDS[options.board], PRESETS[options.config]
    console = Console(stderr=True)
    with console.status(f"making the netlist of {config.name} for {board.name}"):
        folder = synthesised(board, config, point_of(board, config))
    start = time.process_time()
    with console.status("making gates of its RTL"):
        rtl, netlist = Rtl(gates_of(folder / DESIGN, LIBRARY)), Netlist(read_netlist(folder))
    verdict = prove(rtl, netlist, partial(track, description="proving", console=console))
    figures = {"board": board.name, "config": config.name, **summary(verdict)}
    figures[SOURCES] = digest_of_design(board.name, config.name)
    figures["seconds"] = round(time.process_time() - start)
    for name, value in figures.items():
        print(f"{name}: {value}")
    if options.json:
        write_with_command(options.json, parser, arguments, figures)
    return int(bool(verdict.failed))


def summary(verdict: Verdict) -> dict[str, Any]:
    """Figures of a verdict: by part, what is proved of how much; names of what is not."""
    parts: dict[str, Counter[str]] = {}
    for ends, what in ((verdict.proved, "proved"), (verdict.failed, "failed")):
        for end in ends:
            parts.setdefault(part_of(end.name), Counter())[f"{end.kind} {what}"] += 1
    return {
        "parts": {part: dict(counts) for part, counts in sorted(parts.items())},
        "failed": [f"{end.kind}: {end.name}" for end in verdict.failed],
        "left_out": len(verdict.left_out),
        "asked": verdict.asked,
    }


def part_of(name: str) -> str:
    """Returns the part of the design that a name is in; the buffers of a pin are one with its registers."""
    return ".".join(name.split(".")[:-1][:STEPS]).partition(".buf.")[0] or NAME


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
