"""Object code kept between segments, compilations and processes: same bytes, whatever the cache holds."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.common.paths import ROOT
from tests.unit.compiler.cpu.support import compile_all, execute
from tests.unit.compiler.cpu.test_segment import small
from tilewright.compiler.cpu import Target, compile_segment
from tilewright.compiler.cpu.object import cache, elf
from tilewright.compiler.graph.graph import Graph, Node, Tensor


class Recorded(cache.ObjectCache):
    """A cache that records what is compiled.

    Attributes:
        compiled: keys of the objects that came from LLVM.
    """

    def __init__(self) -> None:
        super().__init__()
        self.compiled: list[str] = []

    def keep(self, key: str, data: bytes) -> None:
        self.compiled.append(key)
        super().keep(key, data)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "objects", Recorded())
    return tmp_path / "kernels"


@pytest.fixture
def compiled(folder: Path) -> list[str]:
    """Keys of the objects that came from LLVM."""
    assert isinstance(cache.objects, Recorded)
    return cache.objects.compiled


def layer(scale: float, columns: int = 48) -> Graph:
    """Softmax of a matmul, times a constant."""
    graph, f4 = Graph("g", 21), np.dtype(np.float32)
    for name in ("x", "a", "b", "y"):
        graph.add(Tensor(name, (20, columns), f4))
    w = np.random.default_rng(1).standard_normal((columns, columns)).astype(f4)
    graph.add(Tensor("w", w.shape, f4, w))
    graph.add(Tensor("s", (), f4, np.array(scale, f4)))
    graph.nodes = [Node("MatMul", ["x", "w"], ["a"]), Node("Softmax", ["a"], ["b"]), Node("Mul", ["b", "s"], ["y"])]
    graph.inputs, graph.outputs = ["x"], ["y"]
    return graph


@pytest.mark.medium
def test_same_bytes_from_memory_and_disk(folder: Path, compiled: list[str]) -> None:
    first = compile_all(small()).object_code
    count = len(compiled)
    assert count > 2 and compile_all(small()).object_code == first and len(compiled) == count
    cache.objects.forget()
    assert compile_all(small()).object_code == first and len(compiled) == count
    assert not list(folder.glob("*/*.tmp"))


@pytest.mark.medium
@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "folder"])
def test_damaged_entries_are_compiled_again(folder: Path, compiled: list[str], damage: str) -> None:
    want = compile_all(small()).object_code
    count, entries = len(compiled), list(folder.glob("*/*.o"))
    for path in entries:
        raw = path.read_bytes()
        path.unlink()
        if damage == "folder":
            path.mkdir()
        else:
            middle = len(raw) // 2
            bad = {
                "flip": raw[:middle] + bytes([raw[middle] ^ 1]) + raw[middle + 1 :],
                "cut": raw[:middle],
                "empty": b"",
            }
            path.write_bytes(bad[damage])
    cache.objects.forget()
    assert compile_all(small()).object_code == want and len(compiled) == 2 * count
    if damage != "folder":
        cache.objects.forget()
        assert compile_all(small()).object_code == want and len(compiled) == 2 * count


@pytest.mark.medium
def test_nowhere_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    want = compile_all(small()).object_code
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "file"))
    cache.objects.forget()
    assert compile_all(small()).object_code == want


@pytest.mark.slow
def test_other_process_other_folder(tmp_path: Path) -> None:
    """Bytes do not depend on directory or process; both caches are empty."""
    script = """
import hashlib
from tests.unit.compiler.cpu.support import compile_all
from tests.unit.compiler.cpu.test_segment import small
print(hashlib.sha256(compile_all(small()).object_code).hexdigest())
"""
    (tmp_path / "a").mkdir()
    env = {**os.environ, "TILEWRIGHT_CACHE": str(tmp_path / "a" / "c"), "PYTHONPATH": str(ROOT)}
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path / "a", env=env, check=True, capture_output=True, text=True
    )
    assert result.stdout.strip() == hashlib.sha256(compile_all(small()).object_code).hexdigest()


def test_equal_kernels_of_different_segments(compiled: list[str]) -> None:
    """Layers that differ in a scale share all other kernels, and compute what they would alone."""
    x = np.random.default_rng(0).standard_normal((20, 48)).astype(np.float32)
    a = layer(2.0)
    compile_segment(a, a.nodes, ["x"], ["y"], "one")
    count = len(compiled)
    b = layer(3.0)
    segment = compile_segment(b, b.nodes, ["x"], ["y"], "one")
    assert 0 < len(compiled) - count < count
    shared = execute(segment, b, {"x": x})[0]
    np.testing.assert_allclose(shared * np.float32(2 / 3), execute(compile_all(a), a, {"x": x})[0], rtol=1e-6)
    cache.objects.forget()
    assert compile_segment(b, b.nodes, ["x"], ["y"], "one").object_code == segment.object_code


@pytest.mark.slow
def test_targets_are_kept_apart(compiled: list[str]) -> None:
    base, codes = small(), set()
    for cpu in ("", "haswell", "znver3"):
        target = Target(triple="x86_64-unknown-linux-gnu", cpu=cpu)
        codes.add(compile_segment(base, base.nodes, ["x"], ["y"], "s", target).object_code)
    assert len(codes) == 3


def test_memory_is_bounded() -> None:
    objects = cache.ObjectCache(memory_bytes=250)
    for i in range(10):
        objects.keep(f"{i:064x}", bytes(100))
    assert len(objects) == 2


def test_join_keeps_one_name() -> None:
    """Only the entry point stays visible; objects of one segment may meet those of another in a linker."""
    a, b = layer(2.0), layer(3.0)
    for g, symbol in ((a, "first"), (b, "second")):
        code = compile_segment(g, g.nodes, ["x"], ["y"], symbol).object_code
        parsed = elf.parse(code)
        visible = [n for n, s in zip(parsed.names, parsed.symbols) if s["info"] >> 4 == elf.GLOBAL and s["section"]]
        assert visible == [symbol.encode()]
        again = elf.join([code], symbol)
        assert elf.join([again], symbol) == again
        with pytest.raises(ValueError, match="defined twice"):
            elf.join([code, code], symbol)
    with pytest.raises(ValueError, match="ELF"):
        elf.join([b"not an object" * 10], "s")
