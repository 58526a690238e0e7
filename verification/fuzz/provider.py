"""Random graphs and damaged contexts through onnxruntime with the execution provider.

    python -m verification.fuzz.provider --count 500 --seed 1

A random graph gives onnxruntime's results, with the provider taking all it can; a damaged context is refused with one
line, or gives the right result. Whatever else happens to this process is a failure of the library.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from random import Random

import numpy as np
import onnx
import onnxruntime

from tests.common import onnx_models
from tests.common.quantized_chain import input_of, quantized_chain
from tilewright.errors import UsageError
from tilewright.onnxruntime.library import reports
from tilewright.onnxruntime.session import onnxruntime_session
from verification.random_graphs.check import beside_onnxruntime
from verification.random_graphs.generator import random_graph


def options() -> onnxruntime.SessionOptions:
    found = onnxruntime.SessionOptions()
    found.log_severity_level = 4
    found.add_session_config_entry("session.qdqisint8allowed", "1")
    return found


def graph_faults(seed: int) -> tuple[list[str], bool]:
    """Returns faults in a random graph's results, as texts, and whether a program of ours ran."""
    rng = Random(seed)
    graph = random_graph(rng, rng.randint(2, 16))
    names = list(graph.exact)
    before = reports()
    session = onnxruntime_session(graph.model, session_options=options(), claim="all")
    taken = reports() != before and bool(reports()[-1]["programs"])
    return beside_onnxruntime(graph, dict(zip(names, session.run(names, graph.feeds)))), taken


class Context:
    """A context model, to be damaged."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "ctx.onnx"
        writing = options()
        for name, value in (("enable", "1"), ("embed_mode", "1"), ("file_path", str(self.path))):
            writing.add_session_config_entry(f"ep.context_{name}", value)
        model = quantized_chain()
        onnxruntime_session(model, session_options=writing)
        self.model, self.feeds = onnx.load(self.path), input_of()
        self.want = onnx_models.run(model, self.feeds)["y"]

    def faults(self, seed: int) -> tuple[list[str], bool]:
        """Returns faults of a session with a damaged context, as texts, and whether the context was refused."""
        rng = Random(seed)
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        attribute = next(a for a in model.graph.node[0].attribute if a.name == "ep_cache_context")
        data = bytearray(attribute.s)
        for _ in range(rng.choice((1, 1, 3, 40))):
            kind, place = rng.randrange(4), rng.randrange(len(data)) if rng.random() < 0.5 else rng.randrange(200)
            if kind < 2:
                data[place] ^= 1 << rng.randrange(8)
            elif kind == 2:
                del data[place : place + rng.randrange(1, 64)]
            else:
                data[place:place] = rng.randbytes(rng.randrange(1, 64))
        attribute.s = bytes(data)
        try:
            session = onnxruntime_session(model, session_options=options())
        except UsageError as error:
            return (["the reason has several lines"] if "\n" in str(error) else []), True
        right = np.array_equal(session.run(None, self.feeds)[0], self.want)
        return ([] if right else ["a damaged context gives another result"]), False


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m verification.fuzz.provider", description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first case")
    args = parser.parse_args(arguments)
    onnxruntime.set_default_logger_severity(4)
    failures = taken = refused = 0
    with tempfile.TemporaryDirectory() as folder:
        context = Context(Path(folder))
        for seed in range(args.seed, args.seed + args.count):
            for kind, (faults, special) in (("graph", graph_faults(seed)), ("context", context.faults(seed))):
                taken += special and kind == "graph"
                refused += special and kind == "context"
                failures += bool(faults)
                for fault in faults:
                    print(f"seed {seed}, {kind}: {fault}")
    print(f"{args.count} graphs, {taken} with programs; {args.count} contexts, {refused} refused; {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
