"""Proofs about the requantiser."""

from __future__ import annotations

import functools

from tilewright.isa.instructions import Rounding
from verification.formal.engine import Cut
from verification.formal.proof import Proof, Property
from verification.formal.vector import requantizer_benches

_MODES: dict[Rounding | None, str] = {
    Rounding.EVEN: "clamp(round(f32(product)) + zp), ties to even",
    Rounding.EVEN_ZERO_POINT_INSIDE: "clamp(round(f32(f32(product) + zp))), ties to even",
    Rounding.HALF_AWAY: "clamp(round(f32(product)) + zp), ties away from zero",
    None: "clamp(round(f32(product) + bias / 2**23) + zp), ties to even, of products below 2**9",
}

PROOFS: tuple[Proof, ...] = (
    Proof(
        "requantizer_convert",
        requantizer_benches.convert,
        False,
        5,
        (
            Property("mantissa", "Requantiser: the mantissa is that of f32(acc)", Cut("part.nibbles")),
            Property("exponent", "Requantiser: so is the exponent", Cut("part.zeros2")),
            Property("normal", "Requantiser: the mantissa is 0 or from 2**23 to 2**24", Cut("part.partly")),
        ),
    ),
    Proof(
        "requantizer_multiply",
        requantizer_benches.multiply,
        False,
        5,
        (
            Property(
                "product",
                "Requantiser: mantissa times that of the scale, 0 where its exponent is 0",
                Cut("part.part01"),
            ),
            Property("exponent", "Requantiser: that of the scale is subtracted from the shift", Cut("part.offset4")),
            Property("sign", "Requantiser: the product is negative if one of its factors is", Cut("part.negative4")),
            Property(
                "normal",
                "Requantiser: the product is 0 or has its highest bit in one of two places",
                Cut("part.part11"),
            ),
        ),
    ),
    *(
        Proof(
            f"requantizer_{mode.name.lower() if mode is not None else 'norm'}",
            functools.partial(requantizer_benches.rounded, mode=mode),
            False,
            9,
            (
                Property(
                    "result", f"Requantiser, {mode.name if mode is not None else 'NORM'}: {text}", Cut("part.near10")
                ),
            ),
            quick=False,
        )
        for mode, text in _MODES.items()
    ),
)
