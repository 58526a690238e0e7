"""Looks for faults, each in a process of its own that has everything loaded."""

from __future__ import annotations

import functools
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NoReturn
from unittest import mock

from tests.common.paths import ROOT, imported_path
from tilewright.common.native import BuildError, compiler, run
from tilewright.isa.config import preset
from tilewright.simulator import cycle, native
from verification.source_faults import cpp_faults, python_faults
from verification.source_faults.looks import Look, unit_tests

#: Of the processor, after which unit tests have found a fault.
SECONDS = 400
MEMORY = 8 << 30
TINY = preset("tiny")
#: Tests of a folder are run for each of its sources, if there are not more files of them.
_SMALL = 12
NO_FAULT, UNIT_TESTS = "no code", "unit tests"


@dataclass(frozen=True)
class Found:
    """A fault, what found it ("" = nothing), how, and CPU seconds. `looks` is how many there were to run."""

    fault: python_faults.Fault | cpp_faults.Fault
    by: str
    how: str
    seconds: float
    looks: int


def in_python(faults: Sequence[python_faults.Fault], looks: Sequence[Look], *, own: bool = True) -> Iterator[Found]:
    """Yields the result of each fault in Python: the looks that call the function of each, the quickest first, then,
    with `own`, the unit tests of its file.

    Raises:
        AssertionError: a look finds something without a fault.
    """
    files = {imported_path(fault.path) for fault in faults}
    runs: list[tuple[float, Look, set[tuple[str, str]]]] = []
    for look in looks:
        start = time.process_time()
        called, wrong = _watched(look, files)
        assert not wrong, f"{look.name} without a fault: {wrong}"
        runs.append((time.process_time() - start, look, called))
    runs.sort(key=lambda run: run[0])
    for fault in faults:
        some = [look for _, look, called in runs if (imported_path(fault.path), fault.function) in called]
        if own and (tests := _own(fault.path)) is not None:
            some.append(tests)
        by, how, seconds = _in_a_child(functools.partial(python_faults.put_in, fault), some)
        if by == UNIT_TESTS:
            assert _pass(some[-1]), f"{some[-1].name} of {fault.path.name} without a fault"
        yield Found(fault, by, how, seconds, len(some))


@functools.cache
def _own(source: Path) -> Look | None:
    """Returns the unit tests of a source, which lie where it does: those of its name first, then all of a small
    folder."""
    folder = ROOT / "tests" / "unit" / source.parent.relative_to(ROOT)
    named, files = folder / f"test_{source.stem}.py", sorted(folder.glob("test_*.py"))
    if len(files) > _SMALL:
        files = [named] if named in files else []
    if not files:
        return None
    files.sort(key=lambda file: file != named)
    return _unit_tests(list(map(str, files)))


def _unit_tests(files: list[str]) -> Look:
    return Look(UNIT_TESTS, functools.partial(unit_tests, files), SECONDS)


def _nothing() -> None:
    """Puts no fault in."""


def _watched(look: Look, files: set[str]) -> tuple[set[tuple[str, str]], str]:
    """Returns the functions of some files that a look calls, and what it says."""
    called: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename in files:
            called.add((code.co_filename, code.co_qualname.split(".<locals>")[0]))

    python_faults.forget("tilewright.compiler")  # or a look would seem not to call what one before it has called
    sys.setprofile(note)
    try:
        return called, look.run()
    finally:
        sys.setprofile(None)


def in_cpp(
    faults: Sequence[cpp_faults.Fault], clock: Sequence[Look], results: Sequence[Look], *, own: bool = True
) -> Iterator[Found]:
    """Yields the result of each fault in the native simulators. Faults that do not compile, or compile to the same code
    as without them, are left out.

    Args:
        clock, results: looks for faults of the cycle-level simulator, and of the functional one.
        own: the unit tests of the simulators are run where no look finds it.

    Raises:
        AssertionError: a look finds something without a fault.
    """
    for look in (*clock, *results):
        wrong = look.run()
        assert not wrong, f"{look.name} without a fault: {wrong}"
    for fault in faults:
        looks = clock if _of_the_clock(fault) else results
        with tempfile.TemporaryDirectory(prefix="source-faults-") as scratch:
            folder = Path(scratch)
            use = functools.partial(_use, fault, folder)
            by, how, seconds = _in_a_child(use, looks)
            nothing = not by and _code(fault, folder / "native") == _code(fault, fault.path.parent)
            if own and not by and not nothing:
                by, how, more = _in_a_child(use, [_OF_THE_SIMULATORS])  # with what the first one has built
                seconds += more
                assert not by or _pass(_OF_THE_SIMULATORS), f"{_OF_THE_SIMULATORS.name} without a fault"
        if by != NO_FAULT and not nothing:
            yield Found(fault, by, how, seconds, len(looks) + own)


_OF_THE_SIMULATORS = _unit_tests([str(ROOT / "tests" / "unit" / "simulator")])


@functools.cache
def _pass(tests: Look) -> bool:
    """Returns whether tests find nothing without a fault."""
    return not _in_a_child(_nothing, [tests])[0]


def _of_the_clock(fault: cpp_faults.Fault) -> bool:
    return fault.path.name.startswith("cycle")


def _flags(module: ModuleType) -> tuple[str, ...]:
    """Returns the compiler flags of a simulator, but for those that make it fast."""
    return ("-O1", "-w", *(flag for flag in module._FLAGS if not flag.startswith(("-O", "-W"))))


def _code(fault: cpp_faults.Fault, sources: Path) -> str:
    """Compiles the sources to assembly text, for the machines of `looks`."""
    module, main = (cycle, "cycle.cpp") if _of_the_clock(fault) else (native, "machine.cpp")
    blocks = [f"-DTW_BLOCK_{name}={size}" for name, size in (("IN", TINY.block_in), ("OUT", TINY.block_out))]
    options = ["-std=c++17", "-fPIC", *_flags(module), *blocks, f"-I{module._INCLUDE}", "-S", "-o", "-"]
    return run([compiler(), *options, str(sources / main)], f"{main} does not compile")


def _use(fault: cpp_faults.Fault, folder: Path) -> None:
    """Builds the simulators of this process from sources with a fault from here on. Raises `BuildError`."""
    sources = folder / "native"
    shutil.copytree(fault.path.parent, sources, dirs_exist_ok=True)
    (sources / fault.path.name).write_text(fault.text(), encoding="utf-8")
    os.environ["TILEWRIGHT_CACHE"] = str(folder / "cache")
    for module in (native, cycle):
        mock.patch.multiple(module, _SOURCES=sources, _FLAGS=_flags(module)).start()
    cycle.library.cache_clear()
    if _of_the_clock(fault):
        cycle._build()
    else:  # devices would do without a library that cannot be built
        native.build(TINY.block_in, TINY.block_out)


def _in_a_child(prepare: Callable[[], None], looks: Sequence[Look]) -> tuple[str, str, float]:
    reader, writer = os.pipe()
    before = _children()
    child = os.fork()
    if not child:
        os.close(reader)
        _report(prepare, looks, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    by, how = json.loads(text) if text else ("a crash", f"ended with status {status}")
    assert by != _PREPARED, how
    return by, how, round(_children() - before, 2)


#: What cannot fail.
_PREPARED = "the fault put in"


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _report(prepare: Callable[[], None], looks: Sequence[Look], writer: int) -> NoReturn:
    """Writes what finds the fault, and how; in the child."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nothing, stream)
    by, how = _PREPARED, ""
    try:
        prepare()
        for look in looks:
            by = look.name
            signal.setitimer(signal.ITIMER_PROF, look.seconds)
            if how := look.run():
                break
        else:
            by = ""
    except BuildError as error:
        by, how = NO_FAULT, str(error)
    except BaseException as error:  # whatever a fault makes of what looks at it
        how = f"{type(error).__name__}: {error}"
    os.write(writer, json.dumps([by, how[:200]]).encode())
    os._exit(0)
