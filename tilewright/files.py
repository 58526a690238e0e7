"""Reading programs and arrays, and writing results so that a failure leaves nothing half written."""

from __future__ import annotations

import contextlib
import os
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from common import store
from isa.program import Program
from tilewright.errors import UsageError

IMAGE_SUFFIXES = (".png", ".bmp", ".jpg", ".jpeg")


def load(path: str | Path, *, trust: bool = False) -> Program:
    """Reads a compiled program.

    Args:
        trust: its CPU kernels, which are native code, may run whoever made them. Else they run if the program is
            signed by the user, or by somebody the user trusts; see `tilewright.trust`.

    Raises:
        isa.program.ProgramError: it is unreadable or damaged.
    """
    program = Program.load(path)
    program.trusted = trust
    return program


def is_tflite(model: object) -> bool:
    """True for a TFLite model, as a file or bytes: told by its identifier, for a damaged file by its suffix."""
    if isinstance(model, bytes | bytearray | memoryview):
        return bytes(model[4:8]) == b"TFL3"
    if not isinstance(model, str | Path):
        return False
    try:
        with open(model, "rb") as file:
            return file.read(8)[4:] == b"TFL3" or Path(model).suffix.lower() == ".tflite"
    except OSError as error:
        raise UsageError(f"cannot read {model}: {error.strerror or error}") from None


@contextlib.contextmanager
def writing(path: str | Path) -> Iterator[BinaryIO]:
    """`common.store.writing` for results of a user. Raises `UsageError` if the file cannot be written."""
    try:
        with store.writing(path) as file:
            yield file
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from None


def write_bytes(path: str | Path, data: bytes) -> None:
    """A whole file or none. Raises `UsageError`."""
    with writing(path) as file:
        file.write(data)


def check_writable(path: str | Path) -> None:
    """Raises `UsageError` early, before long work whose result could not be written."""
    path = Path(path)
    if path.is_dir():
        raise UsageError(f"cannot write {path}: is a directory")
    if not path.parent.is_dir():
        raise UsageError(f"cannot write {path}: no such directory {path.parent}")


def write_text(path: str | Path, text: str) -> None:
    """A whole text file or none. Raises `UsageError`."""
    write_bytes(path, text.encode())


def write_files(folder: str | Path, contents: Mapping[str, str | bytes]) -> None:
    """All of the named files in `folder`, which is made if missing, or none of them. Raises `UsageError`."""
    folder = Path(folder)
    made = not folder.exists()
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make folder {folder}: {error.strerror or error}") from None
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".writing-") as scratch:
            for name, content in contents.items():
                if (folder / name).is_dir():
                    raise UsageError(f"cannot write {folder / name}: is a directory")
                data = content.encode() if isinstance(content, str) else content
                (Path(scratch) / name).write_bytes(data)
            for name in contents:
                os.replace(Path(scratch) / name, folder / name)
    except BaseException as error:
        if made:
            with contextlib.suppress(OSError):
                folder.rmdir()
        if isinstance(error, OSError):
            raise UsageError(f"cannot write {folder}: {error.strerror or error}") from None
        raise


def read_arrays(path: str | Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz by name, or the one of an .npy under the name "". Raises `UsageError`."""
    path = Path(path)
    if path.suffix not in (".npy", ".npz"):
        accepted = ", ".join((".npy", ".npz", *IMAGE_SUFFIXES))
        raise UsageError(f"input file {path}: unknown kind {path.suffix!r}; accepted: {accepted}")
    try:
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return {"": found}
        with found:
            return {name: found[name] for name in found.files}
    except OSError as error:
        raise UsageError(f"cannot read input file {path}: {error.strerror or error}") from None
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UsageError(f"input file {path} is no valid {path.suffix} file: {error}") from None


def write_arrays(folder: str | Path, arrays: Mapping[str, Any]) -> list[Path]:
    """One .npy per array in `folder`, which is made; .npz with "0", "1", ... for a sequence, nothing for a missing
    value. Characters that file names cannot have become "_"."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make folder {folder}: {error.strerror or error}") from None
    written: list[Path] = []
    for name, value in arrays.items():
        if value is None:
            continue
        suffix = "npz" if isinstance(value, list) else "npy"
        safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in name).lstrip(".") or "output"
        path = folder / f"{safe}.{suffix}"
        if path in written:
            path = folder / f"{safe}-{len(written)}.{suffix}"
        with writing(path) as file:
            _save(file, value)
        written.append(path)
    return written


def _save(file: BinaryIO, value: Any) -> None:
    plain = lambda array: array.astype(np.str_) if array.dtype == np.object_ else array
    if isinstance(value, list):
        np.savez(file, **{str(k): plain(array) for k, array in enumerate(value)})
    else:
        np.save(file, plain(value))
