"""The suite's light networks with seeded random weights and inputs, compared with onnxruntime.

    python -m tests.onnx_suite.light [--seed N] [NAME ...]

The suite gives them one constant for all weights, so that a mixed-up channel would not show. Here weights have the
variance that keeps activations near 1 (He et al. 2015), and normalisations have scales and variances around 1. Compared
are the output and the input of the final Softmax.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

import tilewright.onnx_backend as backend
from tests.common import onnx_models

FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
NAMES = tuple(sorted(p.stem.removeprefix("light_") for p in FOLDER.glob("light_*.onnx")))

TOLERANCE = 2e-5
"""Tolerance of the largest difference, relative to the largest element. Both sides compute in float32 and sum up to
25088 products in different orders: the rounding of one sum is about sqrt(25088) * 2^-24 = 1e-5. Softmax hands absolute
differences on, so its output is measured by the largest element of its input."""


@dataclass(frozen=True)
class Difference:
    """The largest difference of a tensor, absolute and relative."""

    tensor: str
    absolute: float
    relative: float


def random_network(name: str, seed: int) -> onnx.ModelProto:
    """The light network with random weights; the input of its Softmax is an output."""
    model = onnx.load(FOLDER / f"light_{name}.onnx")
    graph = model.graph
    rng = np.random.default_rng(seed)
    shapes = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    users = {n: (node.op_type, k) for node in graph.node for k, n in enumerate(node.input)}
    # Scales that pass through Unsqueeze into Mul or Add.
    for node in graph.node:
        if node.op_type == "Unsqueeze":
            users[node.input[0]] = users[node.output[0]]
    kept = []
    for node in graph.node:
        if node.op_type != "ConstantOfShape":
            kept.append(node)
            continue
        shape = tuple(int(n) for n in shapes[node.input[0]])
        value = weights(rng, shape, *users[node.output[0]])
        graph.initializer.append(numpy_helper.from_array(value, node.output[0]))
    model.ir_version = max(model.ir_version, 4)  # before, initialisers had to be inputs
    del graph.node[:]
    graph.node.extend(kept)
    graph.output.extend(
        onnx.helper.make_tensor_value_info(node.input[0], onnx.TensorProto.FLOAT, None)
        for node in kept
        if node.op_type == "Softmax"
    )
    return model


def weights(rng: np.random.Generator, shape: tuple[int, ...], op: str, position: int) -> np.ndarray:
    """Random values for the operand at `position` of `op`."""
    if op in ("Conv", "Gemm") and position == 1:
        fan_in = int(np.prod(shape[1:]))
        value = rng.normal(0, np.sqrt(2 / fan_in), shape)
    elif op == "Mul" or (op == "BatchNormalization" and position in (1, 4)):
        value = rng.uniform(0.5, 1.5, shape)
    else:
        value = rng.normal(0, 0.1, shape)
    return value.astype(np.float32)


def compare(name: str, seed: int = 0) -> list[Difference]:
    """Differences of all outputs from onnxruntime's."""
    model = random_network(name, seed)
    given = {i.name for i in model.graph.initializer}
    (info,) = (i for i in model.graph.input if i.name not in given)
    x = np.random.default_rng(seed + 1).normal(size=[d.dim_value for d in info.type.tensor_type.shape.dim])
    x = x.astype(np.float32)
    names = [o.name for o in model.graph.output]
    want = list(onnx_models.run(model, {info.name: x}).values())
    found = backend.run_model(model, [x])
    scale = float(np.abs(want[-1]).max())
    most = [float(np.abs(a.astype(np.float64) - b).max()) for a, b in zip(found, want)]
    return [Difference(tensor, m, m / scale) for tensor, m in zip(names, most)]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.onnx_suite.light",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"networks: {', '.join(NAMES)} (all)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    unknown = [n for n in args.names if n not in NAMES]
    if unknown:
        parser.error(f"unknown network {unknown[0]!r}; there are {', '.join(NAMES)}")
    ok = True
    print(f"{'network':14} {'tensor':20} {'largest difference':>18} {'relative':>10}")
    for name in args.names or NAMES:
        for d in compare(name, args.seed):
            ok &= d.relative <= TOLERANCE
            print(f"{name:14} {d.tensor:20} {d.absolute:18.3g} {d.relative:10.2g}", flush=True)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
