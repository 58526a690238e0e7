"""Types and constants in LLVM's IR syntax."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from compiler.cpu.expr import SIZES
from compiler.cpu.small_types import NUMPY, code_of

_TYPES = {"f16": "half", "bf16": "i16", "f32": "float", "f64": "double", "b": "i1", **dict.fromkeys(NUMPY, "i8")}
_SHORT = {"float": "f32", "double": "f64", "half": "f16"}


def llvm_type(dtype: str, memory: bool = False) -> str:
    if memory and dtype == "b":
        return "i8"
    return _TYPES.get(dtype) or f"i{dtype[1:]}"


def literal(value: Any, dtype: str) -> str:
    """A constant in IR syntax; floats by their exact bits."""
    if dtype in ("f32", "f64"):
        with np.errstate(over="ignore"):
            wide = float(np.float32(value)) if dtype == "f32" else float(value)
        return f"0x{struct.unpack('<Q', struct.pack('<d', wide))[0]:016X}"
    if dtype == "f16":
        return f"0xH{np.float16(value).view(np.uint16):04X}"
    if dtype == "bf16":
        bits = int(np.float32(value).view(np.uint32))
        return str(((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) & 0xFFFF)
    if dtype == "b":
        return "true" if value else "false"
    if dtype in NUMPY:
        return str(code_of(value, dtype))
    bits = 8 * SIZES[dtype]
    v = int(value) & (2**bits - 1)
    return str(v - 2**bits if v >> (bits - 1) else v)


def suffix(type_: str) -> str:
    """How intrinsics' names spell a type."""
    if type_.startswith("<"):
        count, _, element = type_[1:-1].partition(" x ")
        return f"v{count}{suffix(element)}"
    return _SHORT.get(type_, type_)
