"""Constants that MLIR text keeps behind the module: `dense_resource<name>`, as torch-mlir writes weights."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from tilewright.compiler.errors import CompileError

_ENTRY = re.compile(r'(?P<name>[\w.$-]+|"[^"\n]*")\s*:\s*"0x(?P<hex>[^"\n]*)"')
_ALIGNMENT = 4  # bytes in front of the elements


def divided(text: str) -> tuple[str, str]:
    """The text without its section of resources, and that section, empty if there is none."""
    start = text.rfind("{-#")
    return (text, "") if start < 0 or "#-}" not in text[start:] else (text[:start], text[start:])


def blobs(section: str) -> dict[str, str]:
    """The hexadecimal digits of each resource, by its name."""
    return {entry["name"].strip('"'): entry["hex"] for entry in _ENTRY.finditer(section)}


def elements(found: Mapping[str, str], name: str, dtype: np.dtype, shape: tuple[int, ...], place: str) -> np.ndarray:
    """The elements of a resource. Raises CompileError where it is missing or has another length."""
    if name not in found:
        raise CompileError(f"{place}: dense_resource {name} is not in the text; print it without eliding resources")
    try:
        data = bytes.fromhex(found[name])[_ALIGNMENT:]
    except ValueError as error:
        raise CompileError(f"{place}: dense_resource {name}: no hexadecimal digits") from error
    needed = int(np.prod(shape)) * dtype.itemsize
    if len(data) != needed:
        raise CompileError(f"{place}: dense_resource {name} has {len(data)} bytes; {needed} are needed")
    return np.frombuffer(data, dtype).reshape(shape)
