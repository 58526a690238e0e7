"""Libraries built on first use: a damaged one is built again, a whole one is kept."""

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tilewright.common.native import Owner, shared_library
from tilewright.common.store import is_sealed, seal


def library(source: Path) -> Path:
    return shared_library(source, ["-O0"], [source], group="test", name="answer", title="the answer")


@pytest.mark.medium
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


def test_only_the_process_that_made_it_destroys_it() -> None:
    """A fork whose collector finds the object does not: the threads of a Verilated model would be waited for."""

    class Thing(Owner):
        def __init__(self, destroy: Callable[[int], None]) -> None:
            self._own(7, destroy)

    destroyed: list[int] = []
    thing, closed = Thing(destroyed.append), Thing(destroyed.append)
    child = os.fork()
    if not child:
        del thing
        os._exit(len(destroyed))
    assert os.waitpid(child, 0)[1] == 0 and not destroyed
    closed.close()
    assert destroyed == [7]
    with pytest.raises(ValueError, match=r"^this Thing is closed$"):  # native code would crash without its object
        _ = closed._handle
    del closed
    assert destroyed == [7], "once"
    del thing
    assert destroyed == [7, 7]
