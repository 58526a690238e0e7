"""LayerNormalization and RMSNormalization before a product on the NPU, element by element with onnxruntime.

python -m tests.network.test_norm_rows 200     so many rows of 16 to 1024 elements for each of many scales
"""

from __future__ import annotations

import math
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import tilewright as tw
from tilewright.isa.config import NpuConfig, preset


def network(
    n: int, rows: int, rng: np.random.Generator, centred: bool, epsilon: float, dtype: type = np.int8
) -> onnx.ModelProto:
    """8-bit [rows, n], its norm, and a product of that with ones."""
    shift = 128 if dtype is np.uint8 else 0
    constants = {
        "s": np.float32(np.exp(rng.uniform(np.log(0.005), np.log(0.1)))), "z": dtype(rng.integers(-20, 21) + shift),
        "scale": rng.normal(1, 0.4, n).astype(np.float32), "bias": rng.normal(0, 0.3, n).astype(np.float32),
        "sn": np.float32(rng.uniform(2.5, 5) / 127), "zn": dtype(rng.integers(-8, 9) + shift), "one": np.float32(1),
        "so": np.float32(0.5), "zo": np.int8(0), "ones": np.ones((n, 1), np.int8),
    }  # fmt: skip
    node = helper.make_node
    norm = node("LayerNormalization", ["xf", "scale", "bias"], ["y"], axis=-1, epsilon=epsilon)
    if not centred:
        norm = node("RMSNormalization", ["xf", "scale"], ["y"], axis=-1, epsilon=epsilon)
        del constants["bias"]
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], ["xf"]), norm, node("QuantizeLinear", ["y", "sn", "zn"], ["yq"]),
        node("DequantizeLinear", ["yq", "sn", "zn"], ["yf"]), node("DequantizeLinear", ["ones", "one", "zo"], ["of"]),
        node("MatMul", ["yf", "of"], ["sums"]), node("QuantizeLinear", ["sums", "so", "zn"], ["out"]),
    ]  # fmt: skip
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        nodes, "norm", [helper.make_tensor_value_info("x", kind, [rows, n])],
        [helper.make_tensor_value_info(name, kind, [rows, c]) for name, c in (("yq", n), ("out", 1))],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


def samples(n: int, rows: int, rng: np.random.Generator, dtype: type, nearly_constant: bool = False) -> np.ndarray:
    """Rows of many variances and means."""
    if nearly_constant:
        apart = rng.integers(-2, 3, (rows, n)) * (rng.random((rows, n)) < rng.uniform(0, 3 / n, (rows, 1)))
        return (rng.integers(-20, 21, (rows, 1)) + apart + (128 if dtype is np.uint8 else 0)).astype(dtype)
    spread, middle = rng.uniform(6, 45, (rows, 1)), rng.uniform(-25, 25) + rng.normal(0, 5, (rows, 1))
    values = np.clip(np.rint(rng.normal(middle, spread, (rows, n))), -128, 127)
    return (values + (128 if dtype is np.uint8 else 0)).astype(dtype)


def compare(
    n: int,
    rows: int,
    seed: int,
    centred: bool,
    epsilon: float,
    dtype: type = np.int8,
    config: NpuConfig | None = None,
    nearly_constant: bool = False,
) -> tuple[int, int, int]:
    """Number of results of the norm, of those that differ from onnxruntime's by one, and of those that differ by
    more."""
    rng = np.random.default_rng(seed)
    model = network(n, rows, rng, centred, epsilon, dtype)
    x = samples(n, rows, rng, dtype, nearly_constant)
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    want = session.run(["yq"], {"x": x})[0]
    config = config or preset("base")
    program = tw.compile(model, config)
    assert [layer.where for layer in program.layers if "QNorm" in layer.op] == ["npu"]
    got = tw.Device("functional", config).run(program, {"x": x})["yq"]
    apart = np.abs(got.astype(int) - want.astype(int))
    return got.size, int((apart == 1).sum()), int((apart > 1).sum())


@pytest.mark.parametrize(
    ("n", "centred", "epsilon", "dtype"),
    [
        (192, True, 1e-12, np.int8), (50, True, 1e-5, np.int8), (1024, True, 1e-6, np.uint8),
        (64, False, 1e-5, np.int8), (300, False, 1e-6, np.uint8),
    ],
)  # fmt: skip
def test_equals_onnxruntime(n: int, centred: bool, epsilon: float, dtype: type) -> None:
    elements, by_one, by_more = compare(n, 100, n, centred, epsilon, dtype)
    assert elements == 100 * n and by_one <= 1 and by_more == 0


@pytest.mark.parametrize("passes", [1, 2, 4])
def test_channels_that_prm_does_not_hold_at_once(passes: int) -> None:
    """Half of PRM takes 4 blocks of 4 channels; STAT 8 of the rows."""
    config = preset("tiny").with_(name="few", vector_passes=passes, row_unit=1, prm_rows=8)
    elements, by_one, by_more = compare(50, 30, 1, True, 1e-5, config=config)
    assert elements == 1500 and by_one <= 1 and by_more == 0


@pytest.mark.parametrize(("n", "epsilon"), [(2, 1e-3), (3, 1e-5), (13, 1e-3), (192, 1e-5), (192, 1e-12)])
def test_rows_that_are_nearly_constant(n: int, epsilon: float) -> None:
    """Rows of nearly equal elements test the fraction of epsilon, and that a row of equal ones adds nothing to the
    bias. Equal rows have equal ties, so those that differ come together."""
    total = [compare(n, 60, seed, True, epsilon, nearly_constant=True) for seed in range(4)]
    elements, by_one, by_more = np.sum(total, axis=0)
    assert elements == 240 * n and by_one <= elements * 1e-3 and by_more == 0


@pytest.mark.parametrize(("shape", "integers"), [((8, 1), False), ((1, 8), True), ((1, 1), True)])
def test_scales_of_other_shapes(shape: tuple[int, ...], integers: bool) -> None:
    """One for each row is not one for each channel."""
    model = network(8, 8, np.random.default_rng(0), True, 1e-5)
    scale = next(i for i in model.graph.initializer if i.name == "scale")
    scale.CopyFrom(
        numpy_helper.from_array(np.linspace(0.3, 2, math.prod(shape), dtype=np.float32).reshape(shape), "scale")
    )
    x = np.random.default_rng(1).integers(-128, 128, (8, 8)).astype(np.int8)
    assert (any("QNorm" in layer.op for layer in tw.compile(model, "base").layers)) is integers
    assert tw.check(model, {"x": x}, config="base", cache=False).ok


def main(rows: int) -> None:
    rng = np.random.default_rng(1)
    for name, centred, nearly_constant in (
        ("LayerNormalization", True, False), ("RMSNormalization", False, False),
        ("LayerNormalization of rows that are nearly constant", True, True),
    ):  # fmt: skip
        total = ones = more = 0
        for seed in range(40):
            n, epsilon = int(rng.integers(16, 1025)), float(rng.choice([1e-5, 1e-6, 1e-12]))
            elements, by_one, by_more = compare(n, rows, seed, centred, epsilon, nearly_constant=nearly_constant)
            total, ones, more = total + elements, ones + by_one, more + by_more
        print(f"{name}: {ones} of {total} elements differ by one, {more} by more")


if __name__ == "__main__":
    main(int(sys.argv[1]))
