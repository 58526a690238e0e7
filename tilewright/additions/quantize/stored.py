"""Arrays in .npy and .npz files, of which parts are read when they are wanted.

What is compressed is expanded to a temporary file, but only once its shape, which stands in its first bytes, was found
to fit the model.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import tempfile
import weakref
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from tilewright.common import store, temporary
from tilewright.errors import UsageError
from tilewright.store.files import MAX_EXPANDED, read_array_header

_LOCAL_HEADER = 30  # bytes of a zip member's own header before its name


@dataclass
class StoredArray:
    """An array in a file; `array[i]` reads one row of its first axis, `whole()` all of it.

    Attributes:
        path: of the file.
        offset: of the first element, in bytes.
        fortran: the first axis varies fastest.
        member: its number in the .npz `path`, where it is compressed.
    """

    path: str
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype
    fortran: bool = False
    member: int | None = None

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def whole(self) -> np.ndarray:
        flat = self._read(0, math.prod(self.shape))
        return flat.reshape(self.shape, order="F" if self.fortran else "C")

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Rows `start` to `stop` of the first axis."""
        if self.fortran:
            return np.ascontiguousarray(self.whole()[start:stop])
        size = math.prod(self.shape[1:])
        return self._read(start * size, (stop - start) * size).reshape(stop - start, *self.shape[1:])

    def _read(self, start: int, count: int) -> np.ndarray:
        self.expand()
        try:
            with open(self.path, "rb") as file:
                file.seek(self.offset + start * self.dtype.itemsize)
                found = np.fromfile(file, self.dtype, count)
        except OSError as error:
            raise UsageError(f"cannot read {self.path}: {error.strerror or error}") from None
        if found.size != count:
            raise UsageError(f"{self.path} ends before its array does")
        return found

    def expand(self) -> None:
        """Moves a compressed array to a temporary file, which is deleted with this object. Raises `UsageError`."""
        if self.member is None:
            return
        handle, copy = tempfile.mkstemp(prefix="tilewright-calibration-")
        temporary.remember(Path(copy))
        weakref.finalize(self, _remove, Path(copy))
        with _readable(Path(self.path)) as file, zipfile.ZipFile(file) as archive, os.fdopen(handle, "wb") as target:
            member = archive.infolist()[self.member]
            with archive.open(member) as source:
                shutil.copyfileobj(source, target)
        self.path, self.member = copy, None


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    temporary.forget(path)


def stored_arrays(path: Path) -> dict[str, StoredArray]:
    """The arrays of an .npz by name, or the one of an .npy under the name "".

    Raises:
        UsageError: the file cannot be read, or is no such file.
    """
    with _readable(path) as file:
        if not zipfile.is_zipfile(file):
            file.seek(0)
            return {"": _array(str(path), file, os.fstat(file.fileno()).st_size)}
        return dict(_members(path, file))


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[IO[bytes]]:
    """Opens a file of arrays. Errors of reading it in the block become `UsageError`."""
    try:
        with store.opened(path) as file:
            yield file
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    except UsageError:
        raise
    except Exception as error:  # numpy, zipfile and zlib raise many kinds; all mean the same to the user
        raise UsageError(f"{path} is no valid {path.suffix} file: {str(error) or type(error).__name__}") from None


def _members(path: Path, file: IO[bytes]) -> Iterator[tuple[str, StoredArray]]:
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        compressed = sum(m.file_size for m in members if m.compress_type != zipfile.ZIP_STORED)
        if compressed > MAX_EXPANDED:
            raise ValueError(f"it expands to {compressed} bytes; up to {MAX_EXPANDED} are accepted")
        for number, member in enumerate(members):
            name = member.filename.removesuffix(".npy")
            if member.compress_type == zipfile.ZIP_STORED:
                file.seek(member.header_offset + _LOCAL_HEADER - 4)
                lengths = file.read(4)
                start = member.header_offset + _LOCAL_HEADER
                start += int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")
                file.seek(start)
                yield name, _array(str(path), file, member.file_size)
                continue
            with archive.open(member) as source:
                found = _array(str(path), source, member.file_size)
            found.member = number
            yield name, found


def _array(path: str, file: IO[bytes], size: int) -> StoredArray:
    """Reads the array whose header begins at the position of `file`; the member has `size` bytes in all."""
    shape, fortran, dtype = read_array_header(file, size)
    return StoredArray(path, file.tell(), shape, dtype, fortran)
