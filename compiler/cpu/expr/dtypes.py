"""Element types by short names: f16 bf16 f32 f64 i8 .. i64 u8 .. u64, b (bool, one byte in memory).

The types of `tilewright.compiler.cpu.expr.small_types` can only be moved and converted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_NAMES = {
    "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "bool": "b",
    **{f"{u}int{n}": f"{'u' if u else 'i'}{n}" for u in ("", "u") for n in (2, 4, 8, 16, 32, 64)},
    **{f"float{n}": f"f{n.replace('_', '')}"
       for n in ("8_e4m3fn", "8_e4m3fnuz", "8_e5m2", "8_e5m2fnuz", "8_e8m0fnu", "4_e2m1fn")},
}  # fmt: skip
SIZES = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8, "b": 1, **{f"{s}{n}": n // 8 for s in "iu" for n in (8, 16, 32, 64)},
         **dict.fromkeys(("i4", "u4", "i2", "u2"), 1),
         **dict.fromkeys(("f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f8e8m0fnu", "f4e2m1fn"), 1)}  # fmt: skip
FLOATS = ("f16", "bf16", "f32", "f64")


def dtype_of(dtype: Any) -> str | None:
    """The short name of a numpy dtype, None where the kernels have no such type."""
    return _NAMES.get(np.dtype(dtype).name)


def int_range(dtype: str) -> tuple[int, int]:
    bits = int(dtype[1:])
    return (0, 2**bits - 1) if dtype[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
