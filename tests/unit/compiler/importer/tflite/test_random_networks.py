"""Random quantised networks of several ops on random machines: the bytes of LiteRT."""

from __future__ import annotations

from pathlib import Path

import pytest

import tilewright as tw
from tests.reference.random_quantized_tflite import random_quantized_tflite
from verification.programs.random_configs import random_config

pytestmark = pytest.mark.medium

CASES = [("int8", seed) for seed in (*range(16), 1060, 1244, 1263, 1271)]
CASES += [(dtype, seed) for dtype, last in (("uint8", 4), ("int16", 8)) for seed in range(last)]


@pytest.mark.parametrize("dtype, seed", CASES)
def test_equals_litert(dtype: str, seed: int, tmp_path: Path) -> None:
    """Seeds above 1000 once differed: borders under two names, sums of a large factor, strides beyond the kernel."""
    graph = random_quantized_tflite(seed, (3, 1, 6, 12)[seed % 4], dtype)
    path = tmp_path / "network.tflite"
    path.write_bytes(graph.data)
    report = tw.check(
        path, graph.feeds, config=random_config(seed), device=("functional", "cycle")[seed % 2], effort=seed % 3,
        keep=("outputs", "all")[seed // 3 % 2], tuning="off", cache=False,
    )  # fmt: skip
    assert report.ok, report.summary()
