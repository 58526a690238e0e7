"""Random graphs compiled for this CPU against onnxruntime or LiteRT: the same results, or the seed.

    python -m verification.fuzz.graphs --count 5000
    python -m verification.fuzz.graphs --tflite --count 5000
    python -m verification.fuzz.graphs --seed 4711 --count 1

Every graph runs twice, the second time in a workspace whose dead bytes are poisoned. Of four graphs LLVM optimises the
kernels of one as it does for users; the others show faults of the compiler in a third of the time. A failure prints the
command that replays it and the nodes of the smallest graph of the same seed that fails as well.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tilewright.compiler.importer.tflite.schema import read
from verification.random_graphs.check import differences, tflite_differences
from verification.random_graphs.generator import random_graph
from verification.random_graphs.tflite import random_tflite

SIZES = (4, 8, 12, 20, 40)  # nodes, at least; by seed


@dataclass(frozen=True)
class Kind:
    """A kind of random graphs.

    Attributes:
        faults: what is wrong with the graph of a seed and so many nodes.
        nodes: its nodes, one line each.
    """

    faults: Callable[[int, int], list[str]]
    nodes: Callable[[int, int], list[str]]


def _onnx_nodes(seed: int, nodes: int) -> list[str]:
    graph = random_graph(Random(seed), nodes).model.graph
    return [f"{n.op_type} {', '.join(n.input)} -> {', '.join(n.output)}" for n in graph.node]


def _tflite_nodes(seed: int, nodes: int) -> list[str]:
    file = read(random_tflite(Random(seed), nodes).data)
    name = lambda numbers: ", ".join(file.tensors[i].name for i in numbers)
    return [f"{op.name} {name(op.inputs)} -> {name(op.outputs)}" for op in file.ops]


def _optimise(seed: int) -> bool:
    """Returns whether to optimise: for one seed of four, at every size."""
    return seed // len(SIZES) % 4 == 0


ONNX = Kind(lambda seed, nodes: differences(random_graph(Random(seed), nodes), _optimise(seed)), _onnx_nodes)
TFLITE = Kind(
    lambda seed, nodes: tflite_differences(random_tflite(Random(seed), nodes), _optimise(seed)), _tflite_nodes
)


def main(arguments: list[str]) -> int:
    """Runs the command line; returns the number of failures, at most 100."""
    parser = argparse.ArgumentParser(prog="python -m verification.fuzz.graphs", description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=500, help="graphs in all")
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    parser.add_argument("--tflite", action="store_true", help="TFLite graphs, against LiteRT")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        os.environ["TILEWRIGHT_CACHE"] = folder  # nobody needs these kernels again
        return _run(options)


def _run(options: argparse.Namespace) -> int:
    kind, flag = (TFLITE, " --tflite") if options.tflite else (ONNX, "")
    failures = 0
    start = time.monotonic()
    for seed in range(options.seed, options.seed + options.count):
        nodes = SIZES[seed % len(SIZES)]
        found = _faults(kind, seed, nodes)
        if found:
            failures += 1
            print(f"FAILED: python -m verification.fuzz.graphs{flag} --seed {seed} --count 1")
            shortest = next((n for n in range(1, nodes) if _faults(kind, seed, n)), nodes)
            print(*(f"    {line}" for line in (*found, *kind.nodes(seed, shortest))), sep="\n", flush=True)
    seconds = time.monotonic() - start
    print(f"{options.count} graphs from seed {options.seed}, {failures} differ, {seconds:.0f} s")
    return min(failures, 100)


def _faults(kind: Kind, seed: int, nodes: int) -> list[str]:
    try:
        return kind.faults(seed, nodes)
    except Exception as error:  # a graph that cannot be compiled or run is a finding like any other
        return [f"{type(error).__name__}: {error}"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
