"""Keep built models on disk, under a key made of everything that determines their bytes."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from common.store import cache_folder

DIGEST = 32  # bytes of SHA-256 in front of each file: a damaged file is built anew


def folder() -> Path:
    """Where models are kept: $TILEWRIGHT_CACHE, or the user's cache folder."""
    return cache_folder() / "zoo"


@cache
def sources() -> bytes:
    """Digest of the zoo's own source and of the libraries that shape its results."""
    digest = hashlib.sha256(f"numpy {np.__version__} onnx {onnx.__version__}".encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.digest()


def cached(label: str, key: Iterable[bytes], make: Callable[[], onnx.ModelProto]) -> onnx.ModelProto:
    """The model kept under `key`, or `make()` and keep it. A folder that cannot be written only costs time."""
    digest = hashlib.sha256(sources())
    for part in key:
        digest.update(hashlib.sha256(part).digest())
    path = folder() / f"{label}-{digest.hexdigest()[:24]}.onnx"
    try:
        data = path.read_bytes()
        if hashlib.sha256(data[DIGEST:]).digest() == data[:DIGEST]:
            return onnx.load_model_from_string(data[DIGEST:])
    except (OSError, DecodeError):
        pass
    model = make()
    data = model.SerializeToString()
    with suppress(OSError):
        write_atomically(path, hashlib.sha256(data).digest() + data)
    return model


def write_atomically(path: Path, data: bytes) -> None:
    """Write a whole file or none: readers, and writers of the same file, never meet half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
