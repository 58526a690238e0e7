"""Libraries that come with a wheel: taken where they fit the sources, the C library and the processor."""

import importlib.util
import os
from pathlib import Path

import pytest

import tilewright as tw
from tests.common import needs
from tests.common.paths import ROOT
from tests.common.quantized_chain import quantized_chain
from tilewright.common import prebuilt
from tilewright.common.native import BuildError, Library, shared_library
from tilewright.simulator import native

LEVEL_3 = frozenset(["avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "sse"])
LEVEL_4 = LEVEL_3 | frozenset(["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512_vnni"])


def test_levels() -> None:
    assert prebuilt.levels("x86_64", "glibc 2.36", LEVEL_4) == ["x86-64-v4", "x86-64-v3", "x86-64"]
    assert prebuilt.levels("x86_64", "glibc 2.17", LEVEL_4 - {"avx512_vnni"}) == ["x86-64-v3", "x86-64"]
    assert prebuilt.levels("x86_64", "glibc 2.36.1", frozenset()) == ["x86-64"]
    assert prebuilt.levels("aarch64", "glibc 2.36", frozenset()) == ["aarch64"]
    for machine, libc in (("x86_64", "glibc 2.16"), ("x86_64", ""), ("riscv64", "glibc 2.36"), ("aarch64", "musl 1.2")):
        assert prebuilt.levels(machine, libc, LEVEL_4) == []


def test_this_processor_is_read() -> None:
    if "x86" not in os.uname().machine:
        needs.skip(needs.X86)
    assert "sse2" in prebuilt._flags()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for libraries, with two levels that this machine is said to run, and no compiler."""
    monkeypatch.setattr(prebuilt, "folders", lambda: [tmp_path / "best", tmp_path / "any"])
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    for level in ("best", "any"):
        (tmp_path / level).mkdir()
    return tmp_path


def test_the_best_that_fits_the_sources_is_taken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = folder / "answer.cpp"
    source.write_text("int answer;\n")

    def library(*flags: str) -> Library:
        return Library(source, ["-O2", *flags], [source], "test", "answer", "the answer")

    name = library().portable_file()
    assert name == library("-I/anywhere", "-march=native").portable_file(), "the same on every machine"
    assert name != library("-DSIZE=4").portable_file()
    with pytest.raises(BuildError, match="no C\\+\\+ compiler"):
        shared_library(library())
    (folder / "any" / name).touch()
    assert shared_library(library()) == folder / "any" / name
    (folder / "best" / name).touch()
    assert shared_library(library()) == folder / "best" / name
    source.write_text("int other;\n")
    with pytest.raises(BuildError, match="no C\\+\\+ compiler"):
        shared_library(library())
    source.write_text("int answer;\n")
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(BuildError, match="no-such-compiler"):  # who names one wants it
        shared_library(library())


def test_names_do_not_depend_on_the_folder_of_the_checkout() -> None:
    """A library that a release builds in a copy of the sources is found where the wheel is unpacked."""
    library = native.source(8, 16)
    moved = Library(library.main, [f.replace(str(ROOT), "/elsewhere") for f in library.flags], library.sources,
                    library.group, library.name, library.title)  # fmt: skip
    assert library.portable_file() == moved.portable_file() and moved.flags != library.flags
    assert native.source(16, 8).portable_file() != library.portable_file()


@pytest.mark.long
def test_the_script_of_a_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The libraries compute what those built here do, and need no newer C library than the wheel says."""
    spec = importlib.util.spec_from_file_location("prebuilt_script", ROOT / ".ci" / "prebuilt.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    tasks = list(script.tasks("x86_64"))
    for machine, levels in prebuilt.LEVELS.items():
        assert {level for level, _ in script.tasks(machine)} == set(levels)
    newer = [f"GLIBC_2.{n}".encode() for n in range(prebuilt.GLIBC[1] + 1, 60)]
    name = "functional-16x16"
    built = [script.build(tmp_path, "x86_64", level, library) for level, library in tasks if library.name == name]
    assert [path.parent.name for path in built] == ["x86-64-v3", "x86-64-v4"]

    def outputs() -> dict[str, bytes]:
        program = tw.compile_program(quantized_chain(), config="base", cache=False)
        with tw.Device("functional") as device:
            return {n: x.tobytes() for n, x in device.run(program, tw.random_inputs(program, 0)).items()}

    want = outputs()
    here = prebuilt.levels(os.uname().machine, os.confstr("CS_GNU_LIBC_VERSION") or "", prebuilt._flags())
    for path in built:
        content = path.read_bytes()
        assert b"GLIBC_2." in content and not any(version + b"\0" in content for version in newer)
        if path.parent.name in here:
            monkeypatch.setattr(prebuilt, "folders", lambda path=path: [path.parent])
            native._library.cache_clear()
            assert native.build(16, 16) == path
            assert outputs() == want
    native._library.cache_clear()
