"""Plain data as text: numbers, texts, bytes, arrays, lists, tuples and tables, compressed."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import numpy as np

#: Bytes that a text may expand to.
_MOST = 1 << 28


def write(value: Any) -> str:
    """Data as text of one line.

    Raises:
        ValueError: an object of another kind.
    """
    return base64.b64encode(zlib.compress(json.dumps(_written(value), separators=(",", ":")).encode())).decode()


def read(text: str) -> Any:
    """The data of a text.

    Raises:
        ValueError: it is damaged.
    """
    try:
        unpacking = zlib.decompressobj()
        data = unpacking.decompress(base64.b64decode(text, validate=True), _MOST)
        if not unpacking.eof:
            raise ValueError("its text is cut short or too long")
        return _read(json.loads(data))
    except (zlib.error, KeyError, TypeError, RecursionError) as error:
        raise ValueError(str(error) or type(error).__name__) from None


def dtype(name: str) -> np.dtype[Any]:
    """The type of this name. Raises `ValueError` for objects and unknown ones."""
    try:
        found = np.dtype(name)
    except TypeError:
        raise ValueError(f"type {name!r} is not known") from None
    return found


def _written(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {"array": [value.dtype.name, list(value.shape), data]}
    if isinstance(value, np.generic):
        return _written(np.asarray(value))
    if isinstance(value, list):
        return [_written(v) for v in value]
    if isinstance(value, tuple):
        return {"tuple": [_written(v) for v in value]}
    if isinstance(value, dict):
        return {"table": [[_written(k), _written(v)] for k, v in value.items()]}
    raise ValueError(f"certificates have no form for {type(value).__name__}")


def _read(value: Any) -> Any:
    if isinstance(value, list):
        return [_read(v) for v in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    match kind:
        case "bytes":
            return base64.b64decode(content, validate=True)
        case "array":
            name, shape, data = content
            return np.frombuffer(base64.b64decode(data, validate=True), dtype(name)).reshape(shape)
        case "tuple":
            return tuple(_read(v) for v in content)
        case "table":
            return {_read(k): _read(v) for k, v in content}
    raise ValueError(f"{kind!r} is no kind of data")
