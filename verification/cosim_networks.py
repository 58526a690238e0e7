"""Whole networks on the RTL, the cycle-level and the functional simulator: the same bytes, the same clock.

    python -m verification.cosim_networks                     all of them, about ten minutes
    python -m verification.cosim_networks digits@tiny --json found.json
    python -m verification.cosim_networks --whole             reduced networks that run on the NPU from end to end

Networks are the trained digits and those in $TILEWRIGHT_MODELS (else `../shared/models`); absent ones are left out.
Those of --whole are of the zoo, at its small sizes, and one shaped like MoveNet.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import tilewright as tw
from tests.common.movenet import movenet
from tests.common.paths import ROOT
from tilewright import zoo
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import NpuStep, Program
from verification.programs.equality import CONFIGS

DIGITS = ("tiny", "small", "base", "large", "narrow_in", "narrow_out")
NETWORKS = ("resnet18_qdq", "mobilenet_v2_qdq", "mobilenet_v2_qoperator_u8", "vit_tiny_qdq")
CASES = [("digits", c) for c in DIGITS] + [(n, c) for n in NETWORKS for c in ("base", "small")]
WHOLE = ("deit", "bert", "segformer", "efficientnet", "squeeze_excite", "detector", "segmentation", "movenet")
DEVICES = ("functional", "cycle", "rtl")


@dataclass
class Row:
    """Results of one network on one configuration. Speeds are those of the NPU steps.

    Attributes:
        cycles: of the RTL.
        difference: cycles of the cycle-level simulator less those of the RTL.
        counters_equal: all counters of the two, and those the functional simulator has.
        bytes_equal: outputs and all of the arena, on all three devices.
        kcycles_per_second, seconds: of the RTL.
        ratio: how many times faster the cycle-level simulator is.
    """

    network: str
    config: str
    cycles: int
    difference: int
    counters_equal: bool
    bytes_equal: bool
    kcycles_per_second: float
    seconds: float
    ratio: float

    @property
    def ok(self) -> bool:
        return self.difference == 0 and self.counters_equal and self.bytes_equal


def model_file(network: str) -> Path:
    """Returns the path of a network's model, whether it is there or not."""
    if network == "digits":
        return ROOT / "examples" / "digits" / "digits_int8.onnx"
    named = os.environ.get("TILEWRIGHT_MODELS")
    return (Path(named) if named else ROOT.parent / "shared" / "models") / f"{network}.onnx"


def model_of(network: str) -> Path | bytes | onnx.ModelProto:
    """Returns a network that `tilewright.compile` takes."""
    if network == "movenet":
        return movenet(64)
    if network in WHOLE:
        small: Mapping[str, Any] = zoo.ZOO[network].small
        return zoo.build_quantized(network, calibration=2, **small)
    return model_file(network)


def compare(network: str, config: NpuConfig) -> Row:
    """Compiles a network and runs it once on every device."""
    program = tw.compile_program(model_of(network), config)
    inputs = tw.random_inputs(program)
    runs: dict[str, Any] = {}
    images: dict[str, bytes] = {}
    for name in DEVICES:
        with tw.Device(name, config) as device:
            result = device.run_detailed(program, inputs)
            executor = device.load(program)
            arena = executor.device.read(executor.bases["arena"], program.arena_bytes)
        runs[name] = result
        images[name] = b"".join([*(v.tobytes() for v in result.outputs.values()), np.asarray(arena).tobytes()])
    cycle, rtl, plain = runs["cycle"], runs["rtl"], runs["functional"].counters
    work = (plain.macs, plain.bytes_written, plain.instructions)
    same_work = work == (rtl.counters.macs, rtl.counters.bytes_written, rtl.counters.instructions)
    seconds = {name: _npu_seconds(program, runs[name].seconds) for name in DEVICES}
    return Row(
        network=network,
        config=config.name,
        cycles=rtl.counters.cycles,
        difference=cycle.counters.cycles - rtl.counters.cycles,
        counters_equal=cycle.counters == rtl.counters and same_work,
        bytes_equal=images["functional"] == images["cycle"] == images["rtl"],
        kcycles_per_second=round(rtl.counters.cycles / seconds["rtl"] / 1000, 1),
        seconds=round(seconds["rtl"], 2),
        ratio=round(seconds["rtl"] / seconds["cycle"], 1),
    )


def _npu_seconds(program: Program, seconds: list[float]) -> float:
    return sum(s for step, s in zip(program.steps, seconds) if isinstance(step, NpuStep))


def main(arguments: list[str]) -> int:
    """Runs the command line; returns the number of networks that differ, or 2 for none at all."""
    parser = argparse.ArgumentParser(prog="python -m verification.cosim_networks", description=__doc__.splitlines()[0])
    known = [f"{n}@{c}" for n, c in CASES]
    parser.add_argument("cases", nargs="*", metavar="NETWORK@CONFIG", help=f"by default all: {', '.join(known)}")
    parser.add_argument("--whole", action="store_true", help=f"on base: {', '.join(WHOLE)}")
    parser.add_argument("--json", type=Path, help="write the rows here as well")
    options = parser.parse_args(arguments)
    default = [(network, "base") for network in WHOLE] if options.whole else CASES
    chosen = [tuple(case.split("@")) for case in options.cases] or default
    for case in chosen:
        if len(case) != 2 or case[1] not in CONFIGS:
            parser.error(f"{'@'.join(case)!r} is not NETWORK@CONFIG with a configuration of {', '.join(CONFIGS)}")
    print(f"{'network':26}{'config':12}{'cycles':>12}{'difference':>11} {'counters':9}{'bytes':10}"
          f"{'kcycle/s':>9}{'seconds':>9}{'ratio':>7}")  # fmt: skip
    rows = []
    for network, config in chosen:
        if network not in WHOLE and not model_file(network).is_file():
            print(f"{network:26}{config:12}left out: {model_file(network)} is missing")
            continue
        row = compare(network, CONFIGS[config])
        rows.append(row)
        words = {True: "equal", False: "DIFFERENT"}
        print(f"{row.network:26}{row.config:12}{row.cycles:12,}{row.difference:11,} {words[row.counters_equal]:9}"
              f"{words[row.bytes_equal]:10}{row.kcycles_per_second:9.1f}{row.seconds:9.2f}{row.ratio:7.1f}",
              flush=True)  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n", encoding="utf-8")
    return sum(not row.ok for row in rows) if rows else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
