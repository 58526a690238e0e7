"""Proofs of random quantised graphs on the presets and on random machines: none may be rejected without a fault.

python -m verification.proved_graphs                            2,000 graphs on presets, 300 on random machines
python -m verification.proved_graphs --graphs 50 --machines 0   fewer
python -m verification.proved_graphs --graphs 0 --machines 0 --litert 200    those of LiteRT, on both
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import tilewright as tw
from tests.reference.random_quantized import random_quantized_graph
from tests.reference.random_quantized_tflite import random_quantized_tflite
from tilewright.api.options import ProgramOptions
from tilewright.api.source import ModelSource
from tilewright.isa.config import PRESETS, NpuConfig
from tilewright.prove import witness
from tilewright.prove.checker.compare import prove
from tilewright.prove.compiled import quantised_graph
from verification.programs.random_configs import random_config

#: Types and numbers of operators of LiteRT's graphs, which take turns.
_TYPES, _LENGTHS = ("int8", "int8", "uint8", "int16"), (3, 1, 6, 12)


@dataclass(frozen=True)
class Proved:
    """The proof of a graph's program.

    Attributes:
        seed, machine: of the graph, and the name of its machine.
        found: "proved"; "no rule"; "rejected": names differ and no input shows a difference; "wrong": one does.
        said: by the prover, and the input.
    """

    seed: int
    machine: str
    found: str
    said: str = ""


def proof(seed: int, config: NpuConfig, inputs: int = 20, model: bytes | None = None) -> Proved:
    """Proves the program of the random graph of a seed.

    Args:
        inputs: random ones that are tried where it is not proved.
        model: another one than ONNX's.
    """
    model = random_quantized_graph(seed).model if model is None else model
    graph = quantised_graph(ModelSource(model), config, ProgramOptions().compiler)
    program = tw.compile_program(model, config, tuning="off", cache=False)
    verdict = prove(graph, program, seed)
    if verdict.proved:
        return Proved(seed, config.name, "proved")
    if "no rule for" in verdict.reason:
        return Proved(seed, config.name, "no rule", verdict.reason)
    shown = witness.search(model, program, inputs)
    said = f"{verdict.reason}; {verdict.difference}; {shown or 'no input shows it'}"
    return Proved(seed, config.name, "rejected" if shown is None else "wrong", said)


def on_preset(seed: int) -> Proved:
    """Proves the program of a random graph for one of the presets, which take turns."""
    presets = sorted(PRESETS)
    return proof(seed, PRESETS[presets[seed % len(presets)]])


def of_litert(seed: int) -> Proved:
    """Proves the program of a random LiteRT graph, for a preset or a random machine in turns."""
    model = random_quantized_tflite(seed, _LENGTHS[seed % 4], _TYPES[seed // 4 % 4]).data
    presets = sorted(PRESETS)
    return proof(seed, random_config(seed) if seed % 2 else PRESETS[presets[seed // 2 % len(presets)]], model=model)


def proofs(first: int, graphs: int, machines: int, litert: int = 0) -> Iterator[Proved]:
    """Proofs of so many graphs on presets, of so many on machines of their own, and of LiteRT's; seeds begin at
    `first`."""
    for seed in range(first, first + graphs):
        yield on_preset(seed)
    for seed in range(first, first + machines):
        yield proof(100_000 + seed, random_config(seed))
    for seed in range(first, first + litert):
        yield of_litert(seed)


def main(arguments: list[str]) -> int:
    """Runs the command line; returns 1 if a program was rejected or wrong."""
    parser = argparse.ArgumentParser(prog="python -m verification.proved_graphs", description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", type=int, default=2000, help="on presets (default %(default)s)")
    parser.add_argument("--machines", type=int, default=300, help="random ones, a graph each (default %(default)s)")
    parser.add_argument("--litert", type=int, default=0, help="graphs of LiteRT (default %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="seed (default %(default)s)")
    parser.add_argument("--json", type=Path, help="write all of them here")
    options = parser.parse_args(arguments)
    found = []
    for each in proofs(options.first, options.graphs, options.machines, options.litert):
        found.append(each)
        if each.found != "proved":
            print(f"{each.found}: graph {each.seed} on {each.machine}: {each.said}", flush=True)
    counts = Counter(each.found for each in found)
    if options.json:
        options.json.write_text(json.dumps([asdict(each) for each in found], indent=2) + "\n", encoding="utf-8")
    print(", ".join(f"{counts[name]} {name}" for name in ("proved", "no rule", "rejected", "wrong")))
    return int(counts["rejected"] + counts["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
