"""Random graphs compiled for this CPU against onnxruntime: the same results, or the seed.

    python -m tests.fuzz_graphs --count 5000
    python -m tests.fuzz_graphs --seed 4711 --count 1

Every graph runs twice, the second time in a workspace whose dead bytes are poisoned. A failure prints the command that
replays it and the nodes of the smallest graph of the same seed that fails as well.
"""

from __future__ import annotations

import argparse
import sys
import time
from random import Random

from tests.common.random_graphs.builder import RandomGraph
from tests.common.random_graphs.check import differences
from tests.common.random_graphs.generator import random_graph

SIZES = (4, 8, 12, 20, 40)  # nodes, at least; by seed


def graph_of(seed: int, nodes: int) -> RandomGraph:
    return random_graph(Random(seed), nodes)


def main(arguments: list[str]) -> int:
    """The command line; returns the number of failures, at most 100."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz_graphs", description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=500, help="graphs in all")
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    options = parser.parse_args(arguments)
    failures = nodes = 0
    start = time.monotonic()
    for seed in range(options.seed, options.seed + options.count):
        graph = graph_of(seed, SIZES[seed % len(SIZES)])
        nodes += len(graph.model.graph.node)
        found = _differences(graph)
        if found:
            failures += 1
            print(f"FAILED: python -m tests.fuzz_graphs --seed {seed} --count 1")
            print(*(f"    {line}" for line in found), sep="\n")
            print(*(f"    {line}" for line in _shortest(seed, SIZES[seed % len(SIZES)])), sep="\n", flush=True)
    seconds = time.monotonic() - start
    print(f"{options.count} graphs from seed {options.seed}, {nodes} nodes, {failures} differ, {seconds:.0f} s")
    return min(failures, 100)


def _differences(graph: RandomGraph) -> list[str]:
    try:
        return differences(graph)
    except Exception as error:  # a graph that cannot be compiled or run is a finding like any other
        return [f"{type(error).__name__}: {error}"]


def _shortest(seed: int, most: int) -> list[str]:
    """The nodes of the smallest graph of a seed that fails."""
    for nodes in range(1, most + 1):
        graph = graph_of(seed, nodes)
        if _differences(graph):
            return [f"{n.op_type} {', '.join(n.input)} -> {', '.join(n.output)}" for n in graph.model.graph.node]
    return []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
