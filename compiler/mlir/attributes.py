"""Types and attributes of the dialect: Python values as MLIR text, and xDSL's attributes as Python values.

| Python | MLIR |
|---|---|
| int, float, bool, str, None | `5`, `5.0`, `true`, `"five"`, `unit` |
| tuple of ints, bytes | `array<i64: 1, 2>`, `array<i8: 1, 2>` |
| list | `[1, 2]` |
| array | `dense<"0x0102"> : tensor<2xi8>` |
| any other tuple | `{tuple = [true, 2.0]}` |
| type of elements | `{dtype = "int8"}` |
| record of an op | `{AddConstants = {ma = 1, mb = 1, c = 0, shift = 4}}` |
"""

from __future__ import annotations

import inspect
import math
import re
import struct
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from tilewright.compiler.errors import CompileError, UnsupportedError
from tilewright.compiler.graph.ops.elementwise import AddConstants
from tilewright.compiler.graph.ops.interpolate import Places

#: Types of elements by MLIR's name.
DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(dtype)
    for name, dtype in {
        "i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
        "ui8": np.uint8, "ui16": np.uint16, "ui32": np.uint32, "ui64": np.uint64,
        "f16": np.float16, "f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16,
        "i4": ml_dtypes.int4, "ui4": ml_dtypes.uint4, "i2": ml_dtypes.int2, "ui2": ml_dtypes.uint2,
        "f8E4M3FN": ml_dtypes.float8_e4m3fn, "f8E5M2": ml_dtypes.float8_e5m2,
    }.items()
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
#: Types whose arrays are written as one byte per element, since MLIR packs or rounds them.
_AS_BYTES = ("i1", "i4", "ui4", "i2", "ui2", "f8E4M3FN", "f8E5M2")
_RECORDS = {record.__name__: record for record in (AddConstants, Places)}
_WORD = re.compile(r"[A-Za-z_][\w.]*")


def tensor_type(shape: tuple[int, ...], dtype: np.dtype[Any]) -> str:
    """The type of a tensor. Raises UnsupportedError for elements that have no name in MLIR."""
    if dtype not in _NAMES:
        raise UnsupportedError(f"tensors of {dtype} have no type in MLIR; {', '.join(_NAMES.values())} have one")
    return f"tensor<{''.join(f'{n}x' for n in shape)}{_NAMES[dtype]}>"


def quoted(text: str) -> str:
    """Text as a string of MLIR, in ASCII."""
    plain = (chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:02X}" for byte in text.encode())
    return f'"{"".join(plain)}"'


def dictionary(entries: Mapping[str, Any]) -> str:
    """Values by name as text in braces."""
    pairs = (f"{key if _WORD.fullmatch(key) else quoted(key)} = {written(value)}" for key, value in entries.items())
    return f"{{{', '.join(pairs)}}}"


def written(value: Any) -> str:
    """A value as an attribute. Raises UnsupportedError for one that no attribute holds."""
    if value is None:
        return "unit"
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, int | np.integer) and -(1 << 63) <= int(value) < 1 << 63:
        return str(int(value))
    if isinstance(value, np.float32):
        return f"{_real(float(value), value.tobytes())} : f32"
    if isinstance(value, float):
        return f"{_real(float(value), struct.pack('<d', value))} : f64"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, bytes):
        return _numbers("i8", np.frombuffer(value, np.int8).tolist())
    if isinstance(value, np.ndarray):
        return _dense(value)
    if isinstance(value, np.dtype):
        return dictionary({"dtype": value.name})
    if isinstance(value, list):
        return f"[{', '.join(map(written, value))}]"
    if isinstance(value, tuple):
        if all(isinstance(v, int | np.integer) and not isinstance(v, bool) for v in value):
            return _numbers("i64", [int(v) for v in value])
        return dictionary({"tuple": list(value)})
    if type(value).__name__ in _RECORDS:
        names = inspect.signature(type(value)).parameters
        return dictionary({type(value).__name__: {name: getattr(value, name) for name in names}})
    if isinstance(value, dict):
        return dictionary(value)
    raise UnsupportedError(f"{value!r} ({type(value).__name__}) has no form in MLIR")


def _real(value: float, stored: bytes) -> str:
    """A number exactly: as decimals, which MLIR wants with a point, or as its bits where it is not finite."""
    if not math.isfinite(value):
        return "0x" + stored[::-1].hex().upper()
    text = repr(value)
    return text if "." in text else text.replace("e", ".0e")


def _numbers(kind: str, values: list[int]) -> str:
    return f"array<{kind}: {', '.join(map(str, values))}>" if values else f"array<{kind}>"


def _dense(array: np.ndarray) -> str:
    """An array by its bytes, little-endian, last axis innermost."""
    kind = tensor_type(array.shape, array.dtype)
    if _NAMES[array.dtype] in _AS_BYTES:
        kind = tensor_type(array.shape, np.dtype(np.uint8))
    stored = np.ascontiguousarray(array).tobytes()
    return f'dense<"0x{stored.hex().upper()}"> : {kind}' if stored else f"dense<> : {kind}"


def type_of(given: Any, line: int) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of elements of a tensor. Raises CompileError for what the dialect has not."""
    element = str(given.element_type) if given.name == "tensor" else ""
    if element not in DTYPES:
        raise CompileError(f"line {line}: {given}; tensors of {', '.join(DTYPES)} are accepted")
    shape = tuple(int(n) for n in given.get_shape())
    if any(n < 0 for n in shape):
        raise CompileError(f"line {line}: {given} leaves a size open")
    return shape, DTYPES[element]


def value_of(attribute: Any) -> Any:
    """The value of an attribute, as `written` got it. Raises CompileError for an attribute of another kind."""
    kind = attribute.name
    if kind == "unit":
        return None
    if kind == "integer":
        value = attribute.value.data
        return bool(value) if str(attribute.type) == "i1" else value
    if kind == "float":
        value = attribute.value.data
        return np.float32(value) if str(attribute.type) == "f32" else value
    if kind == "string":
        return attribute.data
    if kind == "bytes":  # text that is not ASCII
        return attribute.data.decode()
    if kind == "dense":
        shape, dtype = type_of(attribute.type, 0)
        data = np.frombuffer(attribute.data.data, dtype)
        return np.resize(data, shape) if data.size == 1 else data.reshape(shape).copy()
    if kind == "array" and hasattr(attribute, "elt_type") and str(attribute.elt_type) in ("i8", "i64"):
        stored = attribute.data.data
        return stored if str(attribute.elt_type) == "i8" else tuple(np.frombuffer(stored, np.int64).tolist())
    if kind == "array" and not hasattr(attribute, "elt_type"):
        return [value_of(v) for v in attribute.data]
    if kind == "dictionary":
        return _of_entries({key: value_of(v) for key, v in attribute.data.items()})
    raise CompileError(f"attribute {attribute}; integers, floats, text, arrays, lists and dictionaries are accepted")


def _of_entries(entries: dict[str, Any]) -> Any:
    """The value of a dictionary: a tuple, a type or a record where it has one entry of that name."""
    if len(entries) == 1:
        ((key, value),) = entries.items()
        if key == "tuple" and isinstance(value, list):
            return tuple(value)
        if key == "dtype" and isinstance(value, str):
            return np.dtype(getattr(ml_dtypes, value, value))
        if key in _RECORDS and isinstance(value, dict):
            return _RECORDS[key](**value)
    return entries


def array_of(value: Any, shape: tuple[int, ...], dtype: np.dtype[Any], line: int) -> np.ndarray:
    """The array of a constant with this type. Raises CompileError if it is none or has another shape or type."""
    if isinstance(value, np.ndarray) and value.dtype == np.uint8 and _NAMES[dtype] in _AS_BYTES:
        value = value.view(dtype)
    if not isinstance(value, np.ndarray) or value.shape != shape or value.dtype != dtype:
        found = f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else repr(value)
        raise CompileError(f"line {line}: a value of {found} for {tensor_type(shape, dtype)}")
    return value


__all__ = ["DTYPES", "array_of", "dictionary", "quoted", "tensor_type", "type_of", "value_of", "written"]
