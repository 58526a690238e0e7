"""The netlist of a board's bitstream against the RTL it is made from and the simulators: the same bytes and cycles.

    python -m verification.netlists                   tiny on ULX3S: digits, 20 random programs, faults in LUTs
    python -m verification.netlists --network digits ds_cnn --programs 200 --json build/signoff/netlist.json
    python -m verification.netlists --config small    with the board's SDRAM, on a clock of its own
    python -m verification.netlists --routed          the netlist that is in the bitstream, after routing

A network is run once on the netlist by the driver, over the serial line. What the driver sent is then played to the
Verilated SoC, and again to the netlist with random values in what is not reset. So are random programs, on a netlist
with a slower clock, where the line has fewer cycles for a byte; and those to netlists with a wrong bit in a LUT, too.
"""

from __future__ import annotations

import argparse
import functools
import random
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import tilewright as tw
from tests.common.paths import ROOT
from tilewright import zoo
from tilewright.fpga.boards import BOARDS
from tilewright.fpga.flows.ecp5 import CONFIGURATION, ROUTED
from tilewright.fpga.points import point_of
from tilewright.fpga.uart_board import UartBoard
from tilewright.isa.config import PRESETS, NpuConfig
from tilewright.isa.program import Program
from verification.measured import SOURCES, write_with_command
from verification.netlists.compared import changed, differences, lost
from verification.netlists.netlist import read_netlist
from verification.netlists.routed_runs import UNPACKED, routed, routed_cells
from verification.netlists.runs import (
    ECP5_BOARDS,
    SIMULATED_BOARDS,
    Pair,
    Recording,
    digest_of_design,
    pair,
    placed_cells,
    record,
    record_programs,
    replay,
)
from verification.netlists.trellis import Configuration

#: The line of the netlist for random programs, whose clock is the board's own: 83 cycles for a byte, or 90.
SLOW_BAUD = 3_000_000
#: So many of them are run again with each wrong bit.
FAULTED = 20
#: Kinds of differences between netlists before and after routing, the configuration and the bitstream.
DIFFERENCES = ("changed", "differences", "lost")
DIGITS = "digits"


def main(arguments: list[str]) -> int:
    """Runs the command line; returns 1 where something differs."""
    parser = argparse.ArgumentParser(prog="python -m verification.netlists", description=__doc__.splitlines()[0])
    parser.add_argument("--board", default="ulx3s_85f", choices=SIMULATED_BOARDS)
    parser.add_argument("--config", default="tiny", choices=PRESETS)
    parser.add_argument("--network", nargs="+", default=[DIGITS], metavar="NETWORK",
                        help="files, names of the zoo, or digits, which is the default")  # fmt: skip
    parser.add_argument("--seeds", type=int, default=1, help="runs with random registers and memories (%(default)s)")
    parser.add_argument("--programs", type=int, default=20, help="random programs (%(default)s)")
    parser.add_argument("--faults", type=int, default=10, help="wrong bits of LUTs (%(default)s)")
    parser.add_argument(
        "--routed", action="store_true", help="place and route it first (10 CPU minutes for tiny, 15 for small)"
    )
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args(arguments)
    for name in options.network:
        if name not in (DIGITS, *zoo.ZOO) and not Path(name).is_file():
            parser.error(f"{name}: no such file, nor a network of the zoo")
    if options.routed and options.board not in ECP5_BOARDS:
        parser.error(f"after routing, only what an ECP5 does is simulated: {', '.join(ECP5_BOARDS)}")
    start = time.process_time()
    board, config = BOARDS[options.board], PRESETS[options.config]
    new = functools.partial(pair, board, config, routed_cells if options.routed else placed_cells)
    made = new()
    print(f"netlist: {time.process_time() - start:.0f} s", flush=True)
    figures: dict[str, Any] = {"board": options.board, "config": options.config, "luts": len(made.netlist.luts)}
    figures |= {SOURCES: digest_of_design(options.board, options.config), "networks": []}
    for name in options.network:
        made = made if not figures["networks"] else new()  # the RTL keeps what the last one has left in its memories
        network = measure(made, tw.compile_program(model_of(name), config=options.config), options.seeds)
        figures["networks"].append({"network": Path(name).stem, **network})
        print(figures["networks"][-1], flush=True)
        if options.json:  # as much as there is, for whoever ends it early
            write_with_command(options.json, parser, arguments, figures)
    if options.programs:  # what is routed has the clock that it is routed for
        slow = new() if options.routed else new(clock_mhz=board.clock_hz / 1e6, baud=SLOW_BAUD)
        figures |= programs(slow, config, options.programs, options.faults)
    if options.routed:
        figures |= compare(board, config)
    figures["seconds"] = round(time.process_time() - start)
    for name, value in figures.items():
        print(f"{name}: {value}")
    if options.json:
        write_with_command(options.json, parser, arguments, figures)
    right = all(n["bytes_equal"] and n["rtl_equal"] and n["random_equal"] == n["seeds"] for n in figures["networks"])
    right = right and not figures.get("programs_wrong") and figures.get("programs_rtl_equal", True)
    right = right and not any(part.get("sdram_fault") for part in (figures, *figures["networks"]))
    return int(not right or any(figures.get(name) for name in DIFFERENCES))


def model_of(name: str) -> Path | onnx.ModelProto:
    """Returns a network by its name or its file."""
    if name == DIGITS:
        return ROOT / "examples" / "digits" / "digits_int8.onnx"
    return zoo.build_quantized(name) if name in zoo.ZOO else Path(name)


def measure(made: Pair, program: Program, seeds: int) -> dict[str, Any]:
    """Figures of one network: whether outputs are those of the functional simulator, whether all that the driver reads
    is the RTL's, and how many runs with random registers give the same. With an SDRAM, the first of its rules that was
    broken, and the commands that were checked."""
    netlist = made.netlist
    recording = record(netlist, made.baud, program)
    expected = tw.Device("functional").run(program, tw.random_inputs(program, 0))
    cycles, evaluations, answers = netlist.cycles, netlist.evaluations, recording.answers
    chip = {"sdram_fault": netlist.sdram_fault, "sdram_commands": netlist.sdram_commands}
    return {
        "cycles": recording.counters.cycles,
        "bytes_equal": all(np.array_equal(recording.outputs[name], expected[name]) for name in expected),
        "rtl_equal": replay(made.rtl, recording) == answers,
        "line_cycles": cycles,
        "evaluations": evaluations,
        "seeds": seeds,
        "random_equal": sum(_equal_with_random(made, recording, answers, seed) for seed in range(1, seeds + 1)),
        "random_registers": netlist.scrambled if seeds else 0,
        **(chip if netlist.memory_edges else {}),
    }


def programs(made: Pair, config: NpuConfig, count: int, faults: int) -> dict[str, Any]:
    """Figures of random programs: those that leave other bytes than the functional simulator, whether all that the
    driver reads, counters too, is the RTL's, how many bits of LUTs decided something, and how many of those change any
    of the answers if they are wrong."""
    netlist = made.netlist
    recording = record_programs(netlist, made.baud, config, range(count))
    figures = {
        "programs": count,
        "programs_wrong": len(recording.wrong),
        "programs_rtl_equal": replay(made.rtl, recording) == recording.answers,
        "sdram_fault": netlist.sdram_fault,
    }
    print(figures, flush=True)
    if not faults:
        return figures | {"faults": 0}
    if count > FAULTED:  # a bit that none of them finds takes as long as all of them
        netlist.start()
        recording = record_programs(netlist, made.baud, config, range(FAULTED))
    seen = [netlist.seen(lut) for lut in range(len(netlist.luts))]
    named = [(lut, bit) for lut, mask in enumerate(seen) for bit in range(16) if mask >> bit & 1]
    chosen = random.Random(1).sample(named, faults)
    return figures | {
        "bits": sum(1 << inputs for inputs in netlist.lut_inputs),
        "bits_named": len(named),
        "faults": faults,
        "faulted": min(count, FAULTED),
        "faults_found": sum(_with_fault(made, recording, *fault) != recording.answers for fault in chosen),
    }


def compare(board: UartBoard, config: NpuConfig) -> dict[str, Any]:
    """Figures of the configuration: cells of the routed netlist, settings of them that nextpnr has changed, what is
    otherwise in the configuration, and what of that is not in the bitstream."""
    point = point_of(board, config)
    folder = routed(board, config, point)
    module, written = read_netlist(folder, ROUTED), Configuration(folder / CONFIGURATION)
    placed = placed_cells(board, config, point)
    found = {
        "changed": list(changed(placed, module)),
        "differences": list(differences(module, written)),
        "lost": list(lost(written, Configuration(folder / UNPACKED))),
    }
    for lines in found.values():
        print(*lines, sep="\n", end="\n" * bool(lines))
    return {"cells": len(module["cells"]), **{name: len(lines) for name, lines in found.items()}}


def _equal_with_random(made: Pair, recording: Recording, expected: bytes, seed: int) -> bool:
    made.netlist.start(seed)
    return replay(made.netlist, recording) == expected and not made.netlist.sdram_fault


def _with_fault(made: Pair, recording: Recording, lut: int, bit: int) -> bytes:
    made.netlist.start()
    made.netlist.flip(lut, bit)
    answers = replay(made.netlist, recording, recording.answers)
    made.netlist.flip(lut, bit)
    return answers


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
