"""Freed memory goes back to the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

_FREES = """
import numpy as np
from tilewright.quantize.memory import SLACK, trim_heap, resident
trim_heap()
kept, freed = [], []
for _ in range(2500):  # blocks from the heap, with small ones between that stay
    freed.append(np.ones(12_000))
    kept.append(np.ones(100))
full = resident()
del freed
trim_heap()
assert full - resident() > 170 << 20, (full, resident())
before = resident()
part = np.ones(SLACK // 16)
trim_heap()
assert resident() >= before
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")
def test_freed_memory_goes_back() -> None:
    subprocess.run([sys.executable, "-c", _FREES], check=True, env={"MALLOC_MMAP_THRESHOLD_": "1000000"})
