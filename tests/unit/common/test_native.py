"""Libraries built on first use: a damaged one is built again, a whole one is kept."""

import ctypes
from pathlib import Path

import pytest

from common.native import shared_library
from common.store import is_sealed, seal


def library(source: Path) -> Path:
    return shared_library(source, ["-O0"], [source], group="test", name="answer", title="the answer")


def test_a_damaged_library_is_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    source = tmp_path / "answer.cpp"
    source.write_text('extern "C" int answer() { return 42; }\n')
    path = library(source)
    whole = path.read_bytes()
    number = path.stat().st_ino
    assert library(source) == path and path.stat().st_ino == number, "a whole one is kept"
    flipped = bytes([*whole[:5000], whole[5000] ^ 1, *whole[5001:]])
    for damaged in (b"", whole[:100], whole[: len(whole) // 2], whole[:-1], whole + b"x", flipped):
        path.write_bytes(damaged)
        assert library(source) == path and is_sealed(path)
        assert len(path.read_bytes()) == len(whole)
    assert ctypes.CDLL(str(path)).answer() == 42


def test_seals(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert not is_sealed(path)
    for content in (b"", b"abc", bytes(3 << 20)):
        path.write_bytes(content)
        assert not is_sealed(path)
        seal(path)
        assert is_sealed(path) and path.read_bytes().startswith(content)
    assert not is_sealed(tmp_path)
