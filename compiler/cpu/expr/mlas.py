"""Activations of float32 equal to onnxruntime's in every bit: the rational functions of its library MLAS.

They are needed for values quantised with a dynamic scale: a difference in the last place may change the scale, and with
it every step.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.compiler.cpu.expr.form import Expr, clamp
from tilewright.compiler.cpu.expr.mathlib import polynomial

# Numerator over x and denominator in x^2, the constant term first.
_TANH = (
    (4.89352455891786e-03, 6.37261928875436e-04, 1.48572235717979e-05, 5.12229709037114e-08, -8.60467152213735e-11,
     2.00018790482477e-13, -2.76076847742355e-16),
    (4.89352518554385e-03, 2.26843463243900e-03, 1.18534705686654e-04, 1.19825839466702e-06),
)  # fmt: skip
_SIGMOID = (
    (2.48287947061529e-01, 8.51377133304701e-03, 6.08574864600143e-05, 1.15627324459942e-07, 4.37031012579801e-11),
    (9.93151921023180e-01, 1.16817656904453e-01, 1.70198817374094e-03, 6.29106785017040e-06, 5.76102136993427e-09,
     6.10247389755681e-13),
)  # fmt: skip


def _rational(x: Expr, limit: float, parts: tuple[Sequence[float], Sequence[float]]) -> Expr:
    v = clamp(x, -limit, limit)
    u = v * v
    return (polynomial(u, parts[0]) * v) / polynomial(u, parts[1])


def tanh(x: Expr) -> Expr:
    """Tanh by MLAS's rational function."""
    return _rational(x, 9.0, _TANH)


def sigmoid(x: Expr) -> Expr:
    """The logistic function by MLAS's rational function."""
    return clamp(_rational(x, 18.0, _SIGMOID) + 0.5, 0.0, 1.0)
