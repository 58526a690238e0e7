"""Compiles the C++ of this repository on first use and keeps the libraries, unless they came built with a wheel.

The shared libraries live in $TILEWRIGHT_CACHE (else ~/.cache/tilewright) under a name made of a hash over sources,
compiler and flags, so that a stale one is never used. They end with a digest, so that a damaged one is built again.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import hashlib
import itertools
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.common import prebuilt, processes, temporary
from tilewright.common.errors import TilewrightError
from tilewright.common.store import cache_folder, find_sealed, is_sealed, keep_sealed, seal

_FLAGS = ("-std=c++17", "-fPIC", "-shared")
_NATIVE = "-march=native"


class BuildError(TilewrightError):
    """A native library, or the simulation of RTL, cannot be built. The message is one line."""


class Owner:
    """Owns a native object until it is closed or no longer referenced.

    A fork of the process only lets go of it: threads of a Verilated model are not there, and waiting for them would
    never end.
    """

    _held: Any = None
    #: Kept here, as modules are empty by the time the interpreter ends the last objects.
    _process_now = staticmethod(os.getpid)

    def _own(self, handle: Any, destroy: Callable[[Any], Any]) -> None:
        self._held, self._destroy, self._process = handle, destroy, self._process_now()

    @property
    def _handle(self) -> Any:
        """The handle for calls of native code, which would crash without one. Raises `ValueError` once it is closed."""
        if not self._held:
            raise ValueError(f"this {type(self).__name__} is closed")
        return self._held

    def close(self) -> None:
        """Destroys the native object: ends the simulation and completes the files it writes."""
        handle, self._held = self._held, None
        if handle and self._process == self._process_now():
            self._destroy(handle)

    def __del__(self) -> None:
        self.close()


def compiler() -> str:
    """The path of the C++ compiler. Raises `BuildError` if there is none."""
    name = os.environ.get("CXX") or "g++"
    path = shutil.which(name) or (None if os.environ.get("CXX") else shutil.which("c++") or shutil.which("clang++"))
    if path is None:
        raise BuildError(f"no C++ compiler: {name} not found (install g++ or set CXX)")
    return path


def machine(command: str, march: str = _NATIVE) -> str:
    """A text that identifies compiler and processor: a library built for another processor must not be found."""
    with _asking:
        return _machine(command, march)


_asking = threading.Lock()


@functools.cache
def _machine(command: str, march: str) -> str:
    try:
        kept = cache_folder() / "compilers" / f"{_installed(command)}{march}.txt"
    except OSError:  # no Linux
        kept = None
    known = find_sealed(kept) if kept is not None else None
    if known is not None:
        return known.decode()
    arguments = [command, *([march] if march else []), "-E", "-dM", "-x", "c++", os.devnull]
    found = run(arguments, f"{command} does not work")
    if kept is not None:
        keep_sealed(kept, found.encode())
    return found


def _installed(command: str) -> str:
    """A digest that changes with the compiler's file and with the processor. Raises `OSError`."""
    file = Path(command).resolve()
    about = [command, file, file.stat().st_size, file.stat().st_mtime_ns]
    with open("/proc/cpuinfo", encoding="utf-8") as processors:
        about += [line for line in itertools.takewhile(str.strip, processors) if "MHz" not in line]
    return hashlib.sha256(repr(about).encode()).hexdigest()[:24]


def run(command: Sequence[str | Path], what: str, environment: dict[str, str] | None = None) -> str:
    """Runs a tool and returns its output. Raises `BuildError` with `what` and the tool's first error where it fails."""
    return run_all([command], 1, what, environment)[0]


def run_all(
    commands: Sequence[Sequence[str | Path]],
    jobs: int,
    what: str,
    environment: dict[str, str] | None = None,
    done: Callable[[int], None] = lambda count: None,
) -> list[str]:
    """Runs a tool several times, at most `jobs` at once, and returns the outputs. Raises `BuildError` as `run` does.

    Args:
        done: called with the number of finished runs, whenever one finishes.
    """
    try:
        outcomes = processes.run_all(
            [processes.Command(command, environment=environment) for command in commands], jobs, done
        )
    except OSError as error:
        raise BuildError(f"{what}: {error.filename}: {error.strerror}") from None
    return [printed(outcome, what) for outcome in outcomes]


def printed(outcome: processes.Outcome, what: str) -> str:
    """The output of a finished tool. Raises `BuildError` with `what` and its first error where it failed."""
    if outcome.status:
        lines = outcome.errors.decode(errors="replace").splitlines()
        found = [line for line in lines if "error" in line.lower()] or lines or [f"exit status {outcome.status}"]
        raise BuildError(f"{what}: {found[0].strip()}")
    return outcome.output.decode(errors="replace")


def jobs() -> int:
    """The number of parallel processes of a build: the processors that this process may use."""
    return processes.processors()


@functools.cache
def _own_folder() -> temporary.Folder:
    """A temporary folder for libraries of this process, where none can be kept."""
    return temporary.Folder("tilewright-native-")


def _writable(folder: Path) -> Path:
    """The folder, or a temporary folder of this process where it cannot be written, which only costs time."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            return folder
    except OSError:
        pass
    return Path(_own_folder().name)


@dataclass(frozen=True)
class Library:
    """A shared library that this repository has the C++ of.

    Attributes:
        main: the file that is compiled.
        flags: flags of the compiler, beside the common ones.
        sources: files that the library depends on.
        group: folder of the cache; `name` of the library begins its file's.
        title: name of the library, for messages.
    """

    main: Path
    flags: Sequence[str]
    sources: Sequence[Path]
    group: str
    name: str
    title: str

    def command(self) -> list[str]:
        """The arguments of a compiler, without its name and that of the result."""
        return [*_FLAGS, *self.flags, str(self.main)]

    def file(self, *compiler: str) -> str:
        """The name of the library's file: it changes with the sources and with what is said of the compiler."""
        digest = hashlib.sha256("\0".join(compiler).encode())
        for source in sorted(self.sources):
            digest.update(source.name.encode() + b"\0" + source.read_bytes())
        return f"{self.name}-{digest.hexdigest()[:24]}.so"

    def portable_file(self) -> str:
        """The name of the file of a library that is built ahead: the same on every machine and in every folder."""
        return self.file(*(flag for flag in (*_FLAGS, *self.flags) if not flag.startswith(("-I", _NATIVE))))


def shared_library(library: Library) -> Path:
    """The shared library: the one that came with Tilewright, else one that is built here if it is not there. Processes
    may build it at the same time.

    Raises:
        BuildError: no compiler, or it failed, or the cache cannot be written.
    """
    if not os.environ.get("CXX") and (found := prebuilt.find(library.portable_file())):
        return found
    command, title = compiler(), library.title
    flags = [*_FLAGS, *library.flags]
    macros = machine(command, _NATIVE if _NATIVE in flags else "")
    file = library.file(command, macros, *flags)
    if is_sealed(path := cache_folder() / library.group / file):
        return path
    if _builds[file].locked():
        _tell(title)
    with _builds[file]:  # another thread of this process may be at it
        return _built(_writable(cache_folder() / library.group) / file, [command, *library.command()], title)


def with_texts(library: Path, group: str, texts: Mapping[str, str]) -> Path:
    """A copy of a library with texts put into it, such as the path of this Python, kept in the cache.

    Args:
        library: it has, for each text, `char NAME[]` that begins with "NAME=" and is long enough.
        group: folder of the cache.

    Raises:
        BuildError: a text is too long, or the copy cannot be written.
    """
    content = library.read_bytes()
    for name, text in texts.items():
        mark = f"{name}=".encode()
        begin = content.index(mark + bytes(1))
        end = begin + len(mark) + len(text.encode())
        if any(content[begin + len(mark) : end + 1]):
            raise BuildError(f"{library.name} has no room for {name} of {len(text.encode())} bytes: {text}")
        content = content[:begin] + mark + text.encode() + content[end:]
    file = f"{library.stem}-{hashlib.sha256(content).hexdigest()[:24]}.so"
    folder = _writable(cache_folder() / group)
    if is_sealed(path := folder / file):
        return path
    try:
        with temporary.Folder(dir=folder) as scratch:
            partial = Path(scratch) / file
            partial.write_bytes(content)
            partial.chmod(0o755)
            seal(partial)
            partial.replace(path)
    except OSError as error:
        raise BuildError(f"cannot write {file} to {folder}: {error.strerror}") from None
    return path


def _built(library: Path, command: Sequence[str], title: str) -> Path:
    """The library, built by this command if it is not there. Raises `BuildError`."""
    if is_sealed(library):
        return library
    _tell(title)
    folder = library.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with temporary.Folder(dir=folder) as scratch:
            partial = Path(scratch) / library.name
            run([*command, "-o", str(partial)], f"{command[0]} cannot build {title}")
            seal(partial)
            partial.replace(library)  # atomic: a second process sees the whole library or none
    except OSError as error:
        raise BuildError(f"cannot write {title}'s library to {folder}: {error.strerror}") from None
    return library


#: Held while the library of this file name is built.
_builds: dict[str, threading.Lock] = collections.defaultdict(threading.Lock)
_listener: ContextVar[Callable[[str], object] | None] = ContextVar("listener", default=None)


@contextlib.contextmanager
def builds_told(listener: Callable[[str], object]) -> Iterator[None]:
    """Calls the listener, within the block, with the title of every library that is waited for as it is built."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def _tell(title: str) -> None:
    listener = _listener.get()
    if listener is not None:
        listener(title)


def build_ahead(*builds: Callable[[], object]) -> None:
    """Builds libraries in threads, all at once: who needs one waits for its end. What fails is tried again then, and
    says why. A process that ends does not wait for them.

    Args:
        builds: functions that end with a library built by `shared_library`.
    """

    def build(function: Callable[[], object]) -> None:
        with contextlib.suppress(TilewrightError, OSError):
            function()

    for function in builds:
        threading.Thread(target=build, args=(function,), daemon=True, name="native build").start()
