"""Libraries built on first use: a damaged one is built again, a whole one is kept."""

import ctypes
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tilewright.common import native
from tilewright.common.native import BuildError, Library, Owner, build_ahead, builds_told, shared_library, with_texts
from tilewright.common.store import is_sealed, seal


def library(source: Path) -> Path:
    return shared_library(Library(source, ["-O0"], [source], "test", "answer", "the answer"))


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


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A C++ compiler that waits until the folder has a file `go`; each build is a line of the returned log."""
    log, path = tmp_path / "log", tmp_path / "c++slow"
    path.write_text(
        f'#!/bin/sh\ncase "$*" in *-dM*) exec g++ "$@";; esac\necho built >> {log}\n'
        f'until [ -e {tmp_path}/go ]; do sleep 0.01; done\nexec g++ "$@"\n'
    )
    path.chmod(0o755)
    monkeypatch.setenv("CXX", str(path))
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    return log


@pytest.mark.medium
def test_a_library_that_is_built_ahead_is_waited_for(compiler: Path, tmp_path: Path) -> None:
    source, told = tmp_path / "answer.cpp", list[str]()
    source.write_text('extern "C" int answer() { return 42; }\n')
    build_ahead(lambda: library(source))
    while not compiler.exists():
        time.sleep(0.01)

    def tell(title: str) -> None:
        told.append(title)
        (tmp_path / "go").touch()

    with builds_told(tell):
        path = library(source)
        assert is_sealed(path) and told == ["the answer"]
        assert library(source) == path and told == ["the answer"], "nothing is waited for"
    assert compiler.read_text() == "built\n", "once"


@pytest.mark.medium
def test_who_needs_a_library_is_told_why_it_cannot_be_built(compiler: Path, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    source = tmp_path / "answer.cpp"
    source.write_text("no C++\n")
    build_ahead(lambda: library(source))
    with pytest.raises(BuildError, match=r"cannot build the answer: .*error"):
        library(source)


@pytest.mark.medium
def test_a_compiler_is_asked_for_its_macros_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another compiler under the same name, or a damaged answer, is asked again."""
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    asked, path = tmp_path / "asked", tmp_path / "compiler"

    def macros(name: str, march: str = "") -> str:
        path.write_text(f'#!/bin/sh\necho "$1" >> {asked}\necho "#define {name} 1"\n')
        path.chmod(0o755)
        os.utime(path, ns=(0, len(name)))
        native._machine.cache_clear()
        return native.machine(str(path), march)

    try:
        for name, march, times in (("A", "", 1), ("A", "", 1), ("A", "-march=x", 2), ("BB", "", 3), ("A", "", 3)):
            assert macros(name, march) == f"#define {name} 1\n"
            assert len(asked.read_text().splitlines()) == times
        for kept in (tmp_path / "cache" / "compilers").iterdir():
            kept.write_bytes(kept.read_bytes()[:-1])
        assert macros("A") == "#define A 1\n" and len(asked.read_text().splitlines()) == 4, "a damaged answer"
    finally:
        native._machine.cache_clear()


def test_texts_in_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    library = tmp_path / "lib.so"
    library.write_bytes(b"ELF" + b"PLACE=".ljust(16, b"\0") + b"NAME=".ljust(10, b"\0") + b"end")
    path = with_texts(library, "test", {"PLACE": "/ä/b", "NAME": "four"})
    content = b"ELF" + "PLACE=/ä/b".encode().ljust(16, b"\0") + b"NAME=four\0" + b"end"
    assert path.read_bytes().startswith(content) and is_sealed(path)
    assert with_texts(library, "test", {"PLACE": "/ä/b", "NAME": "four"}) == path
    assert with_texts(library, "test", {"PLACE": "/ä/b", "NAME": "five"}) != path
    path.write_bytes(b"damaged")
    assert with_texts(library, "test", {"PLACE": "/ä/b", "NAME": "four"}).read_bytes().startswith(content)
    with pytest.raises(BuildError, match=r"lib.so has no room for NAME of 5 bytes: fives$"):
        with_texts(library, "test", {"PLACE": "", "NAME": "fives"})


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
