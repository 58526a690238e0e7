"""InstanceNormalization and GroupNormalization before a convolution on the NPU, element by element with onnxruntime.

python -m tests.network.test_norm_planes 40     so many networks for each
"""

from __future__ import annotations

import sys

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import tilewright as tw
from tilewright.isa.config import NpuConfig, preset
from tilewright.isa.program import CpuStep, NpuStep
from verification.programs.equality import CONFIGS

Shape = tuple[int, int, int, int]


def network(shape: Shape, groups: int, rng: np.random.Generator, dtype: type = np.int8) -> onnx.ModelProto:
    """8-bit [N, C, H, W], a norm of so many groups of its channels, and a convolution of that with ones."""
    shift, channels = 128 if dtype is np.uint8 else 0, shape[1]
    ones = np.ones((1, channels, 1, 1), np.int8)
    constants = {
        "s": np.float32(np.exp(rng.uniform(np.log(0.005), np.log(0.1)))), "z": dtype(rng.integers(-20, 21) + shift),
        "scale": rng.normal(1, 0.4, channels).astype(np.float32),
        "bias": rng.normal(0, 0.3, channels).astype(np.float32),
        "sn": np.float32(rng.uniform(2.5, 5) / 127), "zn": dtype(rng.integers(-8, 9) + shift), "one": np.float32(1),
        "so": np.float32(0.5), "zo": np.int8(0), "ones": ones,
    }  # fmt: skip
    node = helper.make_node
    epsilon = float(rng.choice([1e-5, 1e-3, 1e-12]))
    norm = node("InstanceNormalization", ["xf", "scale", "bias"], ["y"], epsilon=epsilon)
    if groups != channels:
        norm = node("GroupNormalization", ["xf", "scale", "bias"], ["y"], epsilon=epsilon, num_groups=groups)
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], ["xf"]), norm, node("QuantizeLinear", ["y", "sn", "zn"], ["yq"]),
        node("DequantizeLinear", ["yq", "sn", "zn"], ["yf"]), node("DequantizeLinear", ["ones", "one", "zo"], ["of"]),
        node("Conv", ["yf", "of"], ["sums"]), node("QuantizeLinear", ["sums", "so", "zn"], ["out"]),
    ]  # fmt: skip
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        nodes, "norm", [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info(n, kind, (shape[0], c, *shape[2:])) for n, c in (("yq", channels), ("out", 1))],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def samples(shape: Shape, rng: np.random.Generator, dtype: type) -> np.ndarray:
    """Planes of many variances and means."""
    each = (*shape[:2], 1, 1)
    middle = rng.uniform(-25, 25) + rng.normal(0, 5, each)
    values = np.clip(np.rint(rng.normal(middle, rng.uniform(6, 45, each), shape)), -128, 127)
    return (values + (128 if dtype is np.uint8 else 0)).astype(dtype)


def compare(
    shape: Shape, groups: int, seed: int, dtype: type = np.int8, config: NpuConfig | None = None, device: str = ""
) -> tuple[int, int, int]:
    """Number of results of the norm, of those that differ from onnxruntime's by one, and of those that differ by
    more."""
    import onnxruntime

    rng = np.random.default_rng(seed)
    model, x = network(shape, groups, rng, dtype), samples(shape, rng, dtype)
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    want = session.run(["yq"], {"x": x})[0]
    config = config or preset("base")
    program = tw.compile(model, config)
    assert sum(isinstance(step, NpuStep) for step in program.steps) == 1
    assert not any("QPlaneNorm" in op for step in program.steps if isinstance(step, CpuStep) for op in step.ops)
    got = tw.Device(device or "functional", config).run(program, {"x": x})["yq"]
    apart = np.abs(got.astype(int) - want.astype(int))
    return got.size, int((apart == 1).sum()), int((apart > 1).sum())


@pytest.mark.network
@pytest.mark.parametrize(
    ("shape", "groups", "dtype"),
    [
        ((1, 20, 7, 9), 20, np.int8), ((2, 8, 24, 25), 8, np.uint8), ((1, 3, 64, 64), 3, np.int8),
        ((1, 40, 8, 8), 8, np.int8), ((2, 32, 4, 12), 4, np.uint8), ((1, 24, 8, 8), 1, np.int8),
    ],
)  # fmt: skip
def test_equals_onnxruntime(shape: Shape, groups: int, dtype: type) -> None:
    elements, by_one, by_more = compare(shape, groups, sum(shape), dtype)
    assert elements == np.prod(shape) and by_one <= 1 and by_more == 0


@pytest.mark.network
@pytest.mark.parametrize("groups", [12, 6])
def test_a_small_machine(groups: int) -> None:
    """Blocks of 4 channels, and PRM takes the parameters of 4 channels at a time."""
    config = preset("tiny").with_(name="few", vector_passes=2, row_unit=1, prm_rows=8)
    elements, by_one, by_more = compare((1, 12, 8, 10), groups, 1, config=config)
    assert elements == 960 and by_one <= 1 and by_more == 0


@pytest.mark.network
def test_the_program_says_so() -> None:
    """--check names what may be off by one; other scales are floats, and equal."""
    rng = np.random.default_rng(3)
    model = network((1, 8, 8, 8), 8, rng)
    x = samples((1, 8, 8, 8), rng, np.int8)
    report = tw.check(model, {"x": x}, config="base", keep="all", cache=False)
    (row,) = (row for row in report.rows if row.name == "yq")
    assert report.ok and "exactly, the reference in float32" in row.reason


@pytest.mark.cosim
@pytest.mark.slow
@pytest.mark.parametrize(("shape", "groups"), [((2, 20, 7, 9), 20), ((1, 40, 8, 8), 8)])
def test_rtl_is_the_cycle_simulator(shape: Shape, groups: int) -> None:
    """RTL and cycle-level simulator agree, on the machine with the row unit that other tests build as well."""
    rng, config = np.random.default_rng(5), CONFIGS["wide_bus"]
    program = tw.compile(network(shape, groups, rng), config)
    runs = []
    for name in ("rtl", "cycle"):
        with tw.Device(name, config) as device:
            result = device.run_detailed(program, {"x": samples(shape, np.random.default_rng(6), np.int8)})
            runs.append((result.counters, {k: v.tobytes() for k, v in result.outputs.items()}))
    assert runs[0] == runs[1]


def main(count: int) -> None:
    rng = np.random.default_rng(1)
    for name in ("InstanceNormalization", "GroupNormalization"):
        total = ones = more = 0
        for seed in range(count):
            channels, side = int(rng.integers(1, 9)) * 8, 4 * int(rng.integers(1, 9))
            groups, size = channels, (int(rng.integers(4, 65)), int(rng.integers(4, 65)))
            if name == "GroupNormalization":
                groups, size = int(rng.choice([1, 2, 4, 8])), (4, side)
                channels = groups * int(rng.integers(2, 9))
            elements, by_one, by_more = compare((1, channels, *size), groups, seed)
            total, ones, more = total + elements, ones + by_one, more + by_more
        print(f"{name}: {ones} of {total} elements differ by one, {more} by more")


if __name__ == "__main__":
    main(int(sys.argv[1]))
