"""Atomic writes of files, results kept between runs, and digests of the sources a result depends on."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from tilewright.common.temporary import known

#: The package `tilewright`. Not resolved: in a checkout its folders `isa`, `hw`, ... are links to those beside it.
_ROOT = Path(__file__).absolute().parent.parent
_SOURCES = (".py", ".cpp", ".h")


# Writing.


@contextlib.contextmanager
def writing(path: str | Path) -> Iterator[BinaryIO]:
    """A binary file, seekable, whose content becomes that of `path` when the block ends without an exception.

    Readers see the old content or the new, never a part, and of several writers at once one wins. Nothing is left
    behind when the block or the disk fails. A symbolic link stays, its target gets the content, and permissions of a
    file that is there stay. A path that is no regular file (a device, a FIFO, a descriptor such as /dev/stdout) is
    written to directly.

    Raises:
        OSError: the file cannot be written.
    """
    target = _replacement_target(Path(path))
    if target is None:
        content = io.BytesIO()
        yield content
        with open(path, "wb" if not os.path.isfile(path) else "ab") as file:
            file.write(content.getbuffer())
        return
    temporary = target.with_name(f".writing-{secrets.token_hex(8)}")
    with known(temporary):
        try:
            with open(temporary, "x+b") as file:
                yield file
            with contextlib.suppress(FileNotFoundError):
                shutil.copymode(target, temporary)
            os.replace(temporary, target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def check_writing(path: str | Path) -> None:
    """Raises OSError where `writing` could not make its file, such as in a folder that this user may not write to."""
    target = _replacement_target(Path(path))
    if target is not None and not os.access(target.parent, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target.parent))


def write_atomically(path: str | Path, content: bytes | str) -> None:
    """Writes a file as `writing` does; text becomes UTF-8. Raises `OSError`."""
    with writing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def _replacement_target(path: Path) -> Path | None:
    """The file to replace, links followed; None where the existing one has to be written to."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return None
    except FileNotFoundError:
        pass
    while path.is_symlink():
        folder = path.parent.resolve()
        if folder.is_relative_to("/proc"):  # an open file of a process, under its number
            return None
        path = folder / os.readlink(path)
    return path


# Reading.


def check_regular(path: str | Path) -> None:
    """Raises OSError for a directory, a FIFO, a socket or a device, which could be waited for for ever. A pipe given to
    this process, as in `<(command)`, is accepted. Nothing is opened.
    """
    mode = os.stat(path).st_mode
    if stat.S_ISREG(mode):
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    kinds = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
    given = os.path.realpath(path).startswith("/proc/") and stat.S_ISFIFO(mode)
    if not given:
        raise OSError(errno.EINVAL, f"is {kinds.get(stat.S_IFMT(mode), 'no file')}, no regular file", str(path))


def opened(path: str | Path) -> BinaryIO:
    """Opens a regular file to read. Raises OSError, also for a file that is not regular; see `check_regular`."""
    check_regular(path)
    return open(path, "rb")


def read(path: str | Path) -> bytes:
    """Reads the content of a regular file. Raises OSError as `opened` does."""
    with opened(path) as file:
        return file.read()


# Results kept between runs.


def user_folder(variable: str, below_home: str) -> Path:
    """The folder tilewright/ in the folder that an environment variable names, else in this folder of the user's home.
    A user without a home (no HOME and no entry in the list of users) gets one in the folder of temporary files.
    """
    named = os.environ.get(variable)
    if named:
        return Path(named) / "tilewright"
    try:
        return Path.home() / below_home / "tilewright"
    except RuntimeError:
        return _private_folder(below_home)


def _private_folder(name: str) -> Path:
    """A folder that belongs to this user alone, under a name that is the same in the next run. Where another user made
    it first, the returned name is one that cannot be made.
    """
    folder = Path(tempfile.gettempdir()) / f"tilewright-{os.getuid()}"
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077:
            return folder / name.lstrip(".")
    return Path(os.devnull) / "tilewright"


def cache_folder() -> Path:
    """The cache folder: $TILEWRIGHT_CACHE, else tilewright/ in $XDG_CACHE_HOME or ~/.cache."""
    named = os.environ.get("TILEWRIGHT_CACHE")
    return Path(named) if named else user_folder("XDG_CACHE_HOME", ".cache")


def keep(path: Path, content: bytes | str) -> None:
    """Keeps a result for the next run. A folder that cannot be written only costs time: this is no error."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)


_SEAL_BYTES = hashlib.sha256().digest_size


def keep_sealed(path: Path, content: bytes) -> None:
    """Keeps a result as `keep` does, behind a SHA-256 of the content by which `find_sealed` detects damage."""
    keep(path, hashlib.sha256(content).digest() + content)


def find_sealed(path: Path) -> bytes | None:
    """The content that `keep_sealed` kept; None if there is none, or a damaged one."""
    try:
        raw = path.read_bytes()
    except OSError:
        return None
    seal, content = raw[:_SEAL_BYTES], raw[_SEAL_BYTES:]
    return content if hashlib.sha256(content).digest() == seal else None


#: End mark of a sealed file, before the digest of its content. Loaders of ELF files ignore bytes behind those that the
#: headers name.
_SEAL_MARK = b"\nsealed by SHA-256:"


def seal(path: Path) -> None:
    """Appends a digest to a file that others read unchanged, such as a library. Raises `OSError`."""
    digest = _digest_of(path, path.stat().st_size)
    with path.open("ab") as file:
        file.write(_SEAL_MARK + digest)


def is_sealed(path: Path) -> bool:
    """True if the file exists with the digest of `seal` and has not changed since."""
    end = len(_SEAL_MARK) + _SEAL_BYTES
    try:
        size = path.stat().st_size - end
        if size < 0:
            return False
        with path.open("rb") as file:
            file.seek(size)
            mark = file.read(end)
        return mark == _SEAL_MARK + _digest_of(path, size)
    except OSError:
        return False


def _digest_of(path: Path, size: int) -> bytes:
    """SHA-256 of the first `size` bytes of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while size > 0 and (piece := file.read(min(size, 1 << 20))):
            digest.update(piece)
            size -= len(piece)
    return digest.digest()


def trim(folder: Path, pattern: str, limit: int) -> None:
    """Deletes the least recently used files, by their time, until at most three quarters of `limit` bytes are left."""
    entries, found = [], list[Path]()
    with contextlib.suppress(OSError):  # a folder that cannot be looked into
        found = list(folder.glob(pattern))
    for path in found:
        with contextlib.suppress(OSError):
            status = path.stat()
            entries.append((status.st_mtime, status.st_size, path))
    total = sum(size for _, size, _ in entries)
    if total <= limit:
        return
    for _, size, path in sorted(entries):
        if total <= limit * 3 // 4:
            break
        with contextlib.suppress(OSError):
            path.unlink()
            total -= size


# Logs: one JSON object a line, with the version of its format, so that they can be sent and joined with `cat`.


def append_records(path: Path, version: int, records: Iterable[Mapping[str, Any]]) -> None:
    """Appends records to a log in one write, so that concurrent processes do not mix theirs. Raises `OSError`."""
    lines = [json.dumps({"version": version, **record}, separators=(",", ":")) + "\n" for record in records]
    if lines:
        with path.open("ab") as file:
            file.write("".join(lines).encode())


def read_records(path: Path, version: int) -> Iterator[dict[str, Any] | None]:
    """The records of a log without their version; None for one that is damaged or of another version.

    Raises:
        OSError, UnicodeDecodeError: the file cannot be read.
    """
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            yield record if record.pop("version") == version else None
        except (ValueError, TypeError, KeyError, AttributeError):
            yield None


# Digests.


def sources_digest(*patterns: str, root: Path = _ROOT) -> str:
    """64 hex digits of a hash over paths and contents of sources.

    Args:
        patterns: of files below `root`, in the syntax of `Path.glob`; only Python and C++ count.
        root: the folder of the package `tilewright`.
    """
    digest = hashlib.sha256()
    for path in sorted({path for pattern in patterns for path in root.glob(pattern) if path.suffix in _SOURCES}):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
