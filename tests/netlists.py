"""The netlist of a board's bitstream against the RTL it is made from and the simulators: the same bytes and cycles.

    python -m tests.netlists                                    tiny on ULX3S: digits, faults in LUTs, random registers
    python -m tests.netlists --network kws.tflite --faults 0 --json build/signoff/netlist.json

A network is run once on the netlist by the driver, over the serial line. What the driver sent is then played again to
the Verilated SoC, to the netlist with random values in what is not reset, and to netlists with a wrong bit in a LUT.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw
from common.measured import write_with_command
from fpga.boards import BOARDS
from isa.config import PRESETS
from isa.program import Program
from tests.common.netlist_runs import Pair, Recording, pair, record, replay
from tests.common.paths import ROOT

DIGITS = ROOT / "examples" / "digits" / "digits_int8.onnx"


def main(arguments: list[str]) -> int:
    """The command line; returns 1 where something differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.netlists", description=__doc__.splitlines()[0])
    parser.add_argument("--board", default="ulx3s_85f", choices=[n for n, b in BOARDS.items() if b.family == "ecp5"])
    parser.add_argument("--config", default="tiny", choices=PRESETS)
    parser.add_argument("--network", type=Path, default=DIGITS, help="default: digits")
    parser.add_argument("--seeds", type=int, default=1, help="runs with random registers and memories (%(default)s)")
    parser.add_argument("--faults", type=int, default=10, help="wrong bits of LUTs (%(default)s)")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args(arguments)
    if not options.network.is_file():
        parser.error(f"{options.network}: no such file")
    start = time.process_time()
    made = pair(BOARDS[options.board], PRESETS[options.config])
    print(f"netlist: {time.process_time() - start:.0f} s", flush=True)
    program = tw.compile(options.network, config=options.config)
    figures = {"board": options.board, "config": options.config, "network": options.network.stem}
    figures |= measure(made, program, options.seeds, options.faults)
    figures["seconds"] = round(time.process_time() - start)
    for name, value in figures.items():
        print(f"{name}: {value}")
    if options.json:
        write_with_command(options.json, parser, arguments, figures)
    return int(not (figures["bytes_equal"] and figures["rtl_equal"] and figures["random_equal"] == options.seeds))


def measure(made: Pair, program: Program, seeds: int, faults: int) -> dict[str, Any]:
    """Figures of one network: whether outputs are those of the functional simulator, whether all that the driver reads
    is the RTL's, how many runs with random registers give the same, and how many wrong LUTs do not."""
    netlist = made.netlist
    recording = record(netlist, made.baud, program)
    expected = tw.Device("functional").run(program, tw.random_inputs(program, 0))
    netlist.start()
    answers = replay(netlist, recording)
    cycles, evaluations = netlist.cycles, netlist.evaluations
    figures: dict[str, Any] = {
        "luts": len(netlist.luts),
        "cycles": recording.counters.cycles,
        "bytes_equal": all(np.array_equal(recording.outputs[name], expected[name]) for name in expected),
        "rtl_equal": replay(made.rtl, recording) == answers,
        "line_cycles": cycles,
        "evaluations": evaluations,
        "seeds": seeds,
        "random_equal": sum(_with_random(made, recording, seed) == answers for seed in range(1, seeds + 1)),
        "random_registers": netlist.scrambled if seeds else 0,
        "faults": faults,
    }
    rng = random.Random(1)
    chosen = [(rng.randrange(len(netlist.luts)), rng.randrange(16)) for _ in range(faults)]
    figures["faults_found"] = sum(_with_fault(made, recording, answers, *fault) != answers for fault in chosen)
    return figures


def _with_random(made: Pair, recording: Recording, seed: int) -> bytes:
    made.netlist.start(seed)
    return replay(made.netlist, recording)


def _with_fault(made: Pair, recording: Recording, expected: bytes, lut: int, bit: int) -> bytes:
    made.netlist.start()
    made.netlist.flip(lut, bit)
    answers = replay(made.netlist, recording, expected)
    made.netlist.flip(lut, bit)
    return answers


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
