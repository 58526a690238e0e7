"""The gallery of kernels: equal to their references on several machines, and about as fast as the compiler."""

from typing import Any

import numpy as np
import pytest

from tests.common.kernel_gallery import GALLERY, MACHINES, RACES, kernel_of, packing, race, random, values
from tilewright.isa.config import NpuConfig


def biases(channels: int) -> np.ndarray:
    """Random biases."""
    return random.integers(-5000, 5000, channels, np.int32)


#: Shapes and constants of a small case, by the file of the kernel.
CASES: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "matrix_product": ((70, 40), {"w": values(72, 40), "bias": biases(72), "rows": 24, "outputs": 2}),
    "convolution_3x3": (
        (1, 20, 13, 10), {"w": values(40, 20, 3, 3), "bias": biases(40), "zero_point": 5, "rows": 4, "outputs": 2},
    ),
    "depthwise_5x5": ((1, 40, 14, 15), {"w": values(40, 5, 5), "bias": biases(40), "zero_point": -3, "rows": 4}),
    "residual_add": ((1, 24, 9, 7), {"w": values(24, 24), "bias": biases(24), "rows": 4}),
    "fused_mlp": (
        (40, 24),
        {"up": values(64, 24), "down": values(24, 64), "table": np.arange(-128, 128) // 2, "rows": 16, "hidden": 2},
    ),
    "max_pooling": ((1, 24, 9, 8), {"rows": 2}),
    "separable_pooling": ((1, 24, 9, 8), {"rows": 4}),
    "transposed_convolution": ((1, 20, 7, 6), {"w": values(20, 24, 4, 4), "bias": biases(24), "rows": 3}),
    "ds_cnn_block": ((1, 24, 11, 6), {"depthwise": values(24, 3, 3), "pointwise": values(20, 24), "rows": 4}),
    "softmax_head": ((20, 24), {"w": values(35, 24), "bias": biases(35), "rows": 8}),
    "attention": ((20, 24), {"rows": 8}),
    "rms_norm": ((20, 24), {"w": values(20, 24), "gamma": random.uniform(0.5, 1.5, 24), "rows": 8}),
    "gemv_4_bits": ((1, 72), {"w": random.integers(-8, 8, (40, 72), np.int8), "outputs": 2, "inputs": 2}),
    "custom_op": (
        (1, 24, 11, 9), {"w": values(2, 20, 24, 3, 3), "dilations": (1, 2), "zero_points": (3, -7), "rows": 4},
    ),
    "dilated_groups": ((1, 48, 9, 9), {"w": values(3, 24, 16, 3, 3), "rows": 2}),
}  # fmt: skip


def test_all_kernels_have_a_case() -> None:
    assert {path.stem for path in GALLERY.glob("*.py")} == CASES.keys() | {"layers_of_networks"}


@pytest.mark.parametrize("path", sorted(GALLERY.glob("*.py")), ids=lambda path: path.stem)
def test_kernels_are_short(path: Any) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 40


@pytest.mark.medium
@pytest.mark.parametrize("config", ["base", "small", "tiny", "large", "wide", "nano"])
@pytest.mark.parametrize("name", CASES)
def test_kernels_equal_their_references(name: str, config: str) -> None:
    shape, constants = CASES[name]
    machine = NpuConfig.load(config)
    if name in ("softmax_head", "rms_norm", "attention"):
        machine = machine.with_(row_unit=1, lut_tables=8)
    if name == "gemv_4_bits":
        machine = packing(machine)
    if name == "dilated_groups":  # a group is a block
        channels = machine.block_in
        shape, constants = (1, 3 * channels, 9, 9), constants | {"w": values(3, 24, channels, 3, 3)}
    others = [(32, 24), (64, 32)] if name == "attention" else []
    kernel_of(name).check(shape, *others, config=machine, **constants, runs=1)


@pytest.mark.cosim
@pytest.mark.parametrize("name", ["fused_mlp", "depthwise_5x5"])
def test_kernels_on_the_rtl(name: str) -> None:
    shape, constants = CASES[name]
    built = kernel_of(name).check(shape, config="tiny", **constants, runs=1, devices=("rtl",))
    assert built.counters is not None and built.counters.cycles == built.cycles


@pytest.mark.slow
@pytest.mark.parametrize("config", MACHINES)
@pytest.mark.parametrize("name", RACES)
def test_kernels_are_about_as_fast_as_the_compiler(name: str, config: str) -> None:
    built, _, compiled = race(name, config)
    assert compiled >= 0.98 * built.cycles
