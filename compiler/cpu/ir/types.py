"""Types and constants in LLVM's IR syntax."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from tilewright.compiler.cpu.expr import SIZES
from tilewright.compiler.cpu.expr.small_types import NUMPY, code_of

_TYPES = {"f16": "half", "bf16": "i16", "f32": "float", "f64": "double", "b": "i1", **dict.fromkeys(NUMPY, "i8")}
_SHORT = {"float": "f32", "double": "f64", "half": "f16"}


def llvm_type(dtype: str, memory: bool = False) -> str:
    """The type of an element in a register, or in memory, where a bool is a byte."""
    if memory and dtype == "b":
        return "i8"
    return _TYPES.get(dtype) or f"i{dtype[1:]}"


def vector(type_: str, lanes: int) -> str:
    """The type of `lanes` elements of a type; the type itself for 0."""
    return f"<{lanes} x {type_}>" if lanes else type_


def lanes_of(type_: str) -> int:
    """The number of elements of a vector type, 0 for any other."""
    return int(type_[1:].partition(" ")[0]) if type_.startswith("<") else 0


def element_of(type_: str) -> str:
    """The type of a vector's elements, any other type itself."""
    return type_[1:-1].partition(" x ")[2] if type_.startswith("<") else type_


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
    """The spelling of a type in names of intrinsics."""
    lanes, element = lanes_of(type_), element_of(type_)
    return f"{f'v{lanes}' if lanes else ''}{_SHORT.get(element, element)}"
