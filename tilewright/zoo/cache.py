"""Keep built models on disk, under a key made of everything that determines their bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from tilewright.common.store import cache_folder, find_sealed, keep_sealed


def folder() -> Path:
    """The folder of models: in $TILEWRIGHT_CACHE, or the user's cache folder."""
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
    kept = find_sealed(path)
    if kept is not None:
        with suppress(DecodeError):
            return onnx.load_model_from_string(kept)
    model = make()
    keep_sealed(path, model.SerializeToString())
    return model
