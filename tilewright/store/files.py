"""Reading programs and arrays, and writing results so that a failure leaves nothing half written."""

from __future__ import annotations

import contextlib
import math
import os
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np

from tilewright.common import store, temporary
from tilewright.errors import UsageError
from tilewright.isa.program import Program

#: What the arrays of an .npz may expand to, in bytes: a file of a few kilobytes can hold as many gigabytes of zeros.
MAX_EXPANDED = 1 << 32
_MAX_HEADER = 1 << 14
_HEADERS: dict[tuple[int, int], Any] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
IMAGE_SUFFIXES = (".png", ".bmp", ".jpg", ".jpeg")


def load(path: str | Path, *, trust: bool = False) -> Program:
    """Reads a compiled program.

    Args:
        trust: its CPU kernels, which are native code, may run whoever made them. Else they run if the program is
            signed by the user, or by somebody the user trusts; see `tilewright.store.trust`.

    Raises:
        tilewright.isa.program.ProgramError: it is unreadable or damaged.
    """
    program = Program.load(path)
    program.trusted = trust
    return program


def is_tflite(model: object) -> bool:
    """True for a TFLite model, as a file or bytes: by its identifier, for a damaged file by its suffix."""
    if isinstance(model, bytes | bytearray | memoryview):
        return bytes(model[4:8]) == b"TFL3"
    if not isinstance(model, str | Path) or "\n" in str(model):  # text is MLIR
        return False
    try:
        with store.opened(model) as file:
            return file.read(8)[4:] == b"TFL3" or Path(model).suffix.lower() == ".tflite"
    except OSError as error:
        raise UsageError(f"cannot read {model}: {error.strerror or error}") from None


def is_mlir(model: object) -> bool:
    """True for MLIR: text with line breaks, bytecode, or a file whose suffix is .mlir or .mlirbc."""
    if isinstance(model, bytes | bytearray | memoryview):
        return bytes(model[:4]) == b"ML\xefR"
    if isinstance(model, str) and "\n" in model:
        return True
    return isinstance(model, str | Path) and Path(model).suffix.lower() in (".mlir", ".mlirbc")


def check_readable(path: str | Path) -> None:
    """Raises `UsageError` for what is no file that can be read: missing, a directory, a FIFO."""
    try:
        store.check_regular(path)
    except FileNotFoundError:
        raise UsageError(f"cannot read {path}: no such file") from None
    except IsADirectoryError:
        raise UsageError(f"cannot read {path}: is a directory") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None


@contextlib.contextmanager
def writing(path: str | Path) -> Iterator[BinaryIO]:
    """`tilewright.common.store.writing` for results of a user. Raises `UsageError` if the file cannot be written."""
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
    try:
        store.check_writing(path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from None


def write_text(path: str | Path, text: str) -> None:
    """A whole text file or none. Raises `UsageError`."""
    write_bytes(path, text.encode())


def write_files(folder: str | Path, contents: Mapping[str, str | bytes]) -> None:
    """Writes all of the named files into `folder` and folders in it, which are made if missing, or none. Raises
    `UsageError`."""
    folder = Path(folder)
    made = not folder.exists()
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make folder {folder}: {error.strerror or error}") from None
    try:
        with temporary.Folder(dir=folder, prefix=".writing-") as scratch:
            for name, content in contents.items():
                if (folder / name).is_dir():
                    raise UsageError(f"cannot write {folder / name}: is a directory")
                data = content.encode() if isinstance(content, str) else content
                (Path(scratch) / name).parent.mkdir(exist_ok=True)
                (Path(scratch) / name).write_bytes(data)
            for name in contents:
                (folder / name).parent.mkdir(exist_ok=True)
                os.replace(Path(scratch) / name, folder / name)
    except BaseException as error:
        if made:
            with contextlib.suppress(OSError):
                folder.rmdir()
        if isinstance(error, OSError):
            raise UsageError(f"cannot write {folder}: {error.strerror or error}") from None
        raise


@dataclass(frozen=True)
class FileArray:
    """An array in a file, of which only the header was read: a file of a kilobyte can hold a gigabyte of zeros.

    Attributes:
        path: of the .npy or .npz.
        member: its number in the .npz, None for an .npy.
        shape, dtype: as the header has them.
    """

    path: Path
    member: int | None
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def read(self) -> np.ndarray:
        """The array. Raises `UsageError`."""
        with _opened(self.path) as file:
            if self.member is None:
                return _array(file, os.fstat(file.fileno()).st_size)
            with zipfile.ZipFile(file) as archive:
                member = archive.infolist()[self.member]
                with archive.open(member) as stream:
                    return _array(stream, member.file_size)


def open_arrays(path: str | Path) -> dict[str, FileArray]:
    """The arrays of an .npz by name, or the one of an .npy under the name "". Raises `UsageError`."""
    path = Path(path)
    if path.suffix not in (".npy", ".npz"):
        accepted = ", ".join((".npy", ".npz", *IMAGE_SUFFIXES))
        raise UsageError(f"input file {path}: unknown kind {path.suffix!r}; accepted: {accepted}")
    with _opened(path) as file:
        if zipfile.is_zipfile(file):
            return dict(_members(path, file))
        file.seek(0)
        shape, _, dtype = read_array_header(file, os.fstat(file.fileno()).st_size)
        return {"": FileArray(path, None, shape, dtype)}


def read_arrays(path: str | Path, most: int = MAX_EXPANDED) -> dict[str, np.ndarray]:
    """The arrays of a file, as `open_arrays` names them. Raises `UsageError`, also for more than `most` bytes."""
    arrays = open_arrays(path)
    whole = sum(array.nbytes for array in arrays.values())
    if whole > most:
        raise UsageError(f"input file {path} has {whole} bytes of arrays; up to {most} are accepted")
    return {name: array.read() for name, array in arrays.items()}


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """A file of arrays. Whatever goes wrong with it in the block is a `UsageError`."""
    try:
        with store.opened(path) as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of numpy, about headers that Python 2 wrote
            yield file
    except OSError as error:
        raise UsageError(f"cannot read input file {path}: {error.strerror or error}") from None
    except Exception as error:  # numpy, zipfile and zlib raise many kinds; all mean the same to the user
        text = str(error) or type(error).__name__
        raise UsageError(f"input file {path} is no valid {path.suffix} file: {text}") from None


def _members(path: Path, file: BinaryIO) -> Iterator[tuple[str, FileArray]]:
    """Name and array of every member of an .npz. Raises `ValueError`, and what zipfile raises."""
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        whole = sum(member.file_size for member in members)
        if whole > MAX_EXPANDED:
            raise ValueError(f"it expands to {whole} bytes; up to {MAX_EXPANDED} are accepted")
        for number, member in enumerate(members):
            with archive.open(member) as stream:
                shape, _, dtype = read_array_header(stream, member.file_size)
            yield member.filename.removesuffix(".npy"), FileArray(path, number, shape, dtype)


def _array(file: IO[bytes], size: int) -> np.ndarray:
    """The array of an .npy of `size` bytes. Raises as `read_array_header`."""
    read_array_header(file, size)
    file.seek(0)
    return np.asarray(np.lib.format.read_array(file, allow_pickle=False, max_header_size=_MAX_HEADER))


def read_array_header(file: IO[bytes], size: int) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, whether it is in Fortran order, and type of the array of an .npy of `size` bytes; the file stands at the
    first element then. Raises `ValueError` for a shape that they cannot hold: numpy would take the memory for it
    first."""
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"format {version[0]}.{version[1]} is not known")
    shape, fortran, dtype = _HEADERS[version](file, max_header_size=_MAX_HEADER)
    if dtype.hasobject:
        raise ValueError("it holds Python objects; arrays of numbers, booleans and text are accepted")
    if any(type(n) is not int or n < 0 for n in shape) or math.prod(shape) * dtype.itemsize > size:
        raise ValueError(f"shape {shape} of {dtype} needs more than the {size} bytes it has")
    return shape, fortran, dtype


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
