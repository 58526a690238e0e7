"""Random quantised graphs against onnxruntime as --check compares them, on the NPU (configurations in turn) and CPU.

    python -m verification.fuzz.quantized --count 3000
    python -m verification.fuzz.quantized --seed 4711 --count 1

Every byte must be equal, except where the compiled program says itself that a tensor may be off by a step, and the
reference's floats show that it is next to a tie. A failure
prints the command that replays it, and the nodes of the smallest graph of the same seed that fails as well.
"""

from __future__ import annotations

import argparse
import sys
import time

import tilewright as tw
from tests.reference.graph_builder import QuantizedGraph
from tests.reference.random_quantized import random_quantized_graph
from tilewright.checking.report import CheckReport

CONFIGS = ("tiny", "base")


def reports(seed: int, graph: QuantizedGraph) -> dict[str, CheckReport]:
    """Checks a graph as `--check` does; returns the reports by the place where it ran."""
    config = CONFIGS[seed % len(CONFIGS)]
    return {
        where: tw.check(graph.model, graph.feeds, config=config, cache=False, cpu_only=cpu_only)
        for where, cpu_only in ((config, False), ("cpu_only", True))
    }


def differences(seed: int, graph: QuantizedGraph) -> list[str]:
    """Returns the faults of a graph, as texts."""
    try:
        found = reports(seed, graph)
    except Exception as error:  # a graph that cannot be compiled or run is a finding like any other
        return [f"{type(error).__name__}: {error}"]
    return [
        f"{where}: {row.name}: {row.mismatches} of {row.elements} differ, by at most {row.max_abs_difference:g}"
        for where, report in found.items()
        if not report.ok
        for row in report.rows
        if row.status == "mismatch"
    ]


def main(arguments: list[str]) -> int:
    """Runs the command line; returns the number of failures, at most 100."""
    parser = argparse.ArgumentParser(prog="python -m verification.fuzz.quantized", description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=500, help="graphs in all")
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    options = parser.parse_args(arguments)
    failures = 0
    start = time.monotonic()
    for seed in range(options.seed, options.seed + options.count):
        found = differences(seed, random_quantized_graph(seed))
        if found:
            failures += 1
            print(f"FAILED: python -m verification.fuzz.quantized --seed {seed} --count 1")
            print(*(f"    {line}" for line in [*found, *_shortest(seed)]), sep="\n", flush=True)
    seconds = time.monotonic() - start
    print(f"{options.count} graphs from seed {options.seed}, {failures} differ, {seconds:.0f} s")
    return min(failures, 100)


def _shortest(seed: int) -> list[str]:
    """Returns the nodes of the smallest graph of a seed that fails."""
    for nodes in range(1, 7):
        graph = random_quantized_graph(seed, nodes)
        if differences(seed, graph):
            return [f"{n.op_type} {', '.join(n.input)} -> {', '.join(n.output)}" for n in graph.model.graph.node]
    return []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
