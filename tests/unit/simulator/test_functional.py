"""`FunctionalDevice` as a device, and the build of its native library."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.common.machine_harness import Bench
from tilewright.common.native import BuildError
from tilewright.isa.config import preset
from tilewright.isa.device import Device, Region
from tilewright.isa.encoding import op
from tilewright.simulator import native
from tilewright.simulator.functional import FunctionalDevice

TINY = preset("tiny")


@pytest.mark.parametrize("path", ["fast", "reference"])
def test_is_a_device(path: str) -> None:
    device = FunctionalDevice(TINY, path)
    assert isinstance(device, Device) and device.name == "functional" and device.config is TINY
    address = device.allocate(100)
    assert address % 64 == 0
    device.write(address, np.arange(25, dtype=np.int32))
    assert device.read(address, 100).view(np.int32).tolist() == list(range(25))
    view = device.view(address, 4)
    assert view is not None
    view[:] = 7
    assert device.read(address, 4).tolist() == [7] * 4
    device.free_all()
    assert device.allocate(1) == address


def test_unknown_path() -> None:
    with pytest.raises(ValueError, match="path must be one of fast, reference, not 'slow'"):
        FunctionalDevice(TINY, "slow")


@pytest.mark.parametrize("path", ["fast", "reference"])
def test_scratchpads_are_kept_between_runs(path: str) -> None:
    b = Bench(TINY, path)
    assert not any(a.any() for a in b.pads.arrays().values())
    b.data[:4] = [1, 2, 3, 4]
    b.run([op("LOAD", region=1, row=9, count=1)])
    b.run([op("STORE", region=2, row=9, count=1)])
    assert b.out[:4].tolist() == [1, 2, 3, 4]
    b.pads.act[9] = 5  # a test may write them itself, also behind the back of the fast path
    b.pads.wgt[0] = 1
    b.run([op("GEMM", act=9)])
    assert b.pads.acc[:4].tolist() == [20] * 4


@pytest.mark.parametrize("path", ["fast", "reference"])
def test_counters(path: str) -> None:
    b = Bench(TINY, path)  # 4-byte bus
    ops = [
        op("LOAD", region=1, offset=3, count=2),
        op("STORE", region=2, offset=2, count=1),
        op("DEPTHWISE", step0=1, step1=1),
    ]
    c = b.run([op("GEMM_LOOP", count=3), *ops, op("GEMM")])
    assert c.instructions == 6 and c.cycles is None and c.engines == {}
    assert c.macs == 2 * 3 * 16
    assert c.bytes_read == 6 * 16 + 12 and c.bytes_written == 8  # whole beats


def test_program_offset() -> None:
    for path in ("fast", "reference"):
        b = Bench(TINY, path)
        b.run([op("GEMM_SYNC"), op("GEMM"), op("END")])
        assert b.device.run(b.regions, 0, 16, 2).instructions == 2


def test_trace_sees_every_instruction_in_order() -> None:
    b = Bench(TINY, "fast")
    seen: list[tuple[int, str]] = []
    ops = [op("STORE_SYNC", wait0=1), op("GEMM_LOOP", count=2), op("LOAD_SYNC", signal0=1), op("GEMM")]
    b.run(ops, trace=lambda pc, o: seen.append((pc, o.name)))
    assert seen == [(1, "GEMM_LOOP"), (2, "LOAD_SYNC"), (0, "STORE_SYNC"), (3, "GEMM")]


@pytest.mark.parametrize("path", ["fast", "reference"])
def test_a_full_queue_keeps_all_in_order(path: str) -> None:
    """Loads that fill a queue wait for the first of them, three times over, so that its ring wraps. Each writes a row
    and, for the next one to write over, the row behind it."""
    b, depth = Bench(TINY, path), TINY.queue_depth
    count = 3 * depth
    b.data[: 8 * count] = np.arange(8 * count) % 251 - 125
    ops = []
    for n in range(count):
        ops.append(op("LOAD", region=1, offset=8 * n, row=n, count=2, wait0=int(n % depth == 0)))
        if (n + 1) % depth == 0:
            ops.append(op("GEMM_SYNC", signal0=1))
    b.run(ops)
    assert np.array_equal(b.pads.act[:count], b.data[: 8 * count].view(np.int8).reshape(-1, 8)[:, :4])


def test_memory_may_grow_between_runs() -> None:
    device = FunctionalDevice(TINY)
    program = device.allocate(64)
    device.write(program, op("END").encode().to_bytes(16, "little"))
    for _ in range(3):
        device.allocate(2 << 20)
        assert device.run([Region(program, 64, read=True)], 0, 0, 1).instructions == 1


# The native library.


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.slow
def test_library_is_built_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = native.build(4, 4, ("-O0",))
    assert first.parent.parent == cache and [p.name for p in first.parent.iterdir()] == [first.name]
    stamp = first.stat().st_mtime_ns
    assert native.build(4, 4, ("-O0",)) == first and first.stat().st_mtime_ns == stamp
    assert native.build(4, 4, ("-O0", "-DOTHER")) != first


def test_without_a_compiler_the_reference_runs(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.warns(RuntimeWarning, match="no C\\+\\+ compiler: no-such-compiler not found .*; using the slow refer"):
        device = FunctionalDevice(TINY)
    assert device.path == "reference"


@pytest.mark.medium
def test_a_failing_compiler_is_one_line(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "g++"
    broken.write_text("#!/bin/sh\necho 'error: disk on fire' >&2\necho more >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    with pytest.raises(BuildError, match=r"does not work: error: disk on fire$"):
        native.build(4, 4)
    with pytest.raises(BuildError, match="cannot build the simulator: "):
        monkeypatch.setenv("CXX", "g++")
        native.build(4, 4, ("-DTW_BLOCK_OUT=banana",))
    assert not list(cache.glob("simulator/*"))


@pytest.mark.medium
def test_without_a_cache_the_library_is_temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that cannot be written, here a file, costs the time of a build and nothing else."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "file"))
    library = native.build(4, 4)
    assert library.is_file() and "tilewright-native-" in str(library.parent)
    assert (tmp_path / "file").read_text() == ""


@pytest.mark.slow
def test_processes_may_build_at_the_same_time(cache: Path) -> None:
    code = "from simulator import native; print(native.build(4, 8, ('-O0',)))"
    command = [sys.executable, "-c", code]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, env=dict(os.environ)) for _ in range(2)]
    results = [p.communicate()[0] for p in running]
    assert all(p.returncode == 0 for p in running) and results[0] == results[1]
    assert len(list((cache / "simulator").iterdir())) == 1
