"""Transcendental functions as expressions: no libm, so they vectorise and need no linking.

float32 `exp` (1 ulp), `log` (2 ulp), `tanh` and `erf` (6 ulp) have their own polynomials; everything else is computed
in float64, whose versions are good to about 1e-13, and rounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tilewright.compiler.cpu.expr.form import Expr, call, clamp, const, fma, select

LOG2E = 1.4426950408889634
LN2_HI, LN2_LO = 0.6931471803691238, 1.9082149292705877e-10
PIO2_HI, PIO2_LO = 1.5707963267948966, 6.123233995736766e-17

# exp(r) on |r| <= ln(2) / 2, from r^2 on; relative error 3e-9.
EXP32 = (0.4999999403953552, 0.1666652113199234, 0.04166838899254799, 0.008368716575205326, 0.0013814597623422742)
# tanh(x)/x and erf(x)/x as quotients of polynomials in x^2, relative errors 6e-8 and 2e-8 before rounding, up to
# where the functions are 1. Least squares weighted towards the largest relative error.
TANH32 = ((1.0, 0.12919287383556366, 0.0029208241030573845, 9.267955647374038e-06, -1.278189998288326e-08,
           1.8258564798978583e-11),
          (1.0, 0.46252572536468506, 0.023763427510857582, 0.00022810859081801027))  # fmt: skip
ERF32 = ((1.1283791065216064, 0.19039741158485413, 0.052747584879398346, 0.0037652491591870785, 0.00028487760573625565,
          2.0501929611782543e-06),
         (1.0, 0.502068042755127, 0.11410542577505112, 0.01496847253292799, 0.0011624526232481003,
          3.809255576925352e-05))  # fmt: skip
TANH32_ONE, ERF32_ONE = 9.0, 3.92
# erf(x)/x in x^2 on [0, 1], and erfcx(x) in t = 2/(2+x); Chebyshev fits.
ERF64 = (1.1283791670955128, -0.37612638903182016, 0.1128379167091027, -0.02686617064012473, 0.005223977597677105,
         -0.0008548326268357069, 0.00012055328072776429, -1.4925948937556036e-05, 1.647215541778383e-06,
         -1.6516502751524549e-07, 1.6050311610470225e-08, -1.7658776116161027e-09, 1.7946527054637394e-10)  # fmt: skip
ERFCX64 = (1.942890293094024e-16, 0.28209479177388347, 0.28209479177287927, 0.24683294268357794, 0.1763092602024392,
           0.08374620127803545, -0.004390205808091591, -0.05704171689937361, -0.049993618878276726,
           -0.033996224209813554, 0.25172303906987015, -0.9994927753965608, 4.327372544779858, -14.273336746942725,
           36.95590279678208, -76.71237154200219, 125.55144705631818, -158.36423134794262, 150.35276318413057,
           -103.98221122275308, 49.526966571246085, -14.549501085279624, 1.9893813661216606)  # fmt: skip


def polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    """The polynomial at x by Horner's rule with fma; the constant term first."""
    y = const(coefficients[-1], x.dtype)
    for c in reversed(coefficients[:-1]):
        y = fma(y, x, c)
    return y


def scaled(y: Expr, n: Expr) -> Expr:
    """y * 2^n for targets without an instruction, in two steps so that neither factor overflows; n is integral."""
    bits, bias, integer = (23, 127, "i32") if y.dtype == "f32" else (52, 1023, "i64")
    i = n.to(integer)
    half = i.shr(1)
    z = y
    for k in (half, i - half):
        z = z * (k + bias).shl(bits).bits(y.dtype)
    return select(y.eq(y), z, y)


def exp(x: Expr, negative: bool = False) -> Expr:
    """e^x; `negative` promises that x is not above 0."""
    single = x.dtype == "f32"
    low, high = (-104.0, 89.0) if single else (-746.0, 710.0)
    z = clamp(x, low, None if negative else high)
    n = call("roundeven", z * LOG2E)
    if single:
        r = fma(n, -1.428606765330187e-06, fma(n, -0.693145751953125, z))
        return call("scale2", polynomial(r, (1.0, 1.0, *EXP32)), n)
    r = fma(n, -LN2_LO, fma(n, -LN2_HI, z))
    return call("scale2", polynomial(r, [1 / math.factorial(k) for k in range(14)]), n)


def _nan_through(x: Expr, y: Expr) -> Expr:
    return select(x.eq(x), y, x)


def log(x: Expr) -> Expr:
    if x.dtype == "f32":
        tiny = x < 1.17549435e-38
        z = select(tiny, x * 8388608.0, x)
        bits = z.bits("i32")
        e = (bits - 0x3F3504F3).shr(23)
        m = (bits - e.shl(23)).bits("f32") - 1.0  # in [sqrt(1/2) - 1, sqrt(2) - 1]
        n = e.to("f32") - select(tiny, const(23.0, "f32"), 0.0)
        terms = [3.3333331174e-1, -2.4999993993e-1, 2.0000714765e-1, -1.6668057665e-1, 1.4249322787e-1,
                 -1.2420140846e-1, 1.1676998740e-1, -1.1514610310e-1, 7.0376836292e-2]  # fmt: skip
        m2 = m * m
        y = polynomial(m, terms) * m * m2
        y = fma(n, -2.12194440e-4, y)
        y = fma(m2, -0.5, y)
        y = fma(n, 0.693359375, m + y)
    else:
        tiny = x < 2.2250738585072014e-308
        z = select(tiny, x * 2.0**54, x)
        bits = z.bits("i64")
        e = (bits - 0x3FE6A09E667F3BCD).shr(52)
        m = (bits - e.shl(52)).bits("f64")
        n = e.to("f64") - select(tiny, const(54.0, "f64"), 0.0)
        f = (m - 1.0) / (m + 1.0)
        y = 2.0 * f * polynomial(f * f, [1 / (2 * k + 1) for k in range(12)])
        y = fma(n, LN2_HI, fma(n, LN2_LO, y))
    y = select(x.eq(0.0), const(-math.inf, x.dtype), select(x < 0.0, const(math.nan, x.dtype), y))
    return select(x < math.inf, y, x)


def _quotient(x: Expr, one: float, numerator: Sequence[float], denominator: Sequence[float]) -> Expr:
    """x * P(x^2) / Q(x^2) up to `one`, the odd function's value there being 1."""
    z = clamp(x, -one, one)
    u = z * z
    return clamp(z * polynomial(u, numerator) / polynomial(u, denominator), -1.0, 1.0)


def tanh(x: Expr) -> Expr:
    if x.dtype == "f32":
        return _quotient(x, TANH32_ONE, *TANH32)
    a = call("fabs", x)
    small = x * polynomial(x * x, [1.0, -1 / 3, 2 / 15, -17 / 315, 62 / 2835])
    return _nan_through(x, select(a < 0.01, small, call("copysign", 1.0 - 2.0 / (exp(a + a) + 1.0), x)))


def erf(x: Expr) -> Expr:
    if x.dtype == "f32":
        return _quotient(x, ERF32_ONE, *ERF32)
    a = call("fabs", x)
    small = x * polynomial(x * x, ERF64)
    t = 2.0 / (a + 2.0)
    big = call("copysign", 1.0 - exp(-(a * a), negative=True) * polynomial(t, ERFCX64), x)
    return _nan_through(x, select(a < 1.0, small, big))


def sigmoid(x: Expr) -> Expr:
    e = exp(-call("fabs", x), negative=True)
    return select(x >= 0.0, const(1.0, x.dtype), e) / (e + 1.0)


def log1p(x: Expr) -> Expr:
    """log(1 + x), accurate for small x by the classic correction."""
    u = x + 1.0
    return select(u.eq(1.0), x, select(u < math.inf, log(u) * (x / (u - 1.0)), u))


def expm1(x: Expr) -> Expr:
    """exp(x) - 1 for float64 and float32."""
    series = x * polynomial(x, [1 / math.factorial(k + 1) for k in range(9 if x.dtype == "f32" else 13)])
    return select(call("fabs", x) < 0.5, series, exp(x) - 1.0)


def softplus(x: Expr) -> Expr:
    e = exp(-call("fabs", x), negative=True)
    return clamp(x, 0.0, None) + log1p(e)


def _wide(fn: Callable[..., Expr]) -> Callable[..., Expr]:
    """Wraps a function to compute in float64, whatever the type of its arguments."""
    return lambda *args: fn(*(a.to("f64") for a in args)).to(args[0].dtype)


def _sin_cos(x: Expr, shift: int) -> Expr:
    n = call("roundeven", x * (2 / math.pi))
    r = fma(n, -PIO2_LO, fma(n, -PIO2_HI, x))
    z = r * r
    s = r * polynomial(z, [(-1.0) ** k / math.factorial(2 * k + 1) for k in range(9)])
    c = polynomial(z, [(-1.0) ** k / math.factorial(2 * k) for k in range(10)])
    q = n.to("i64") + shift
    y = select((q & 1).ne(0), c, s)
    return select((q & 2).ne(0), -y, y)


def _atan(x: Expr) -> Expr:
    a = call("fabs", x)
    inverse = a > 1.0
    z = select(inverse, 1.0 / a, a)
    for _ in range(2):  # halve the angle
        z = z / (call("sqrt", fma(z, z, 1.0)) + 1.0)
    y = 4.0 * z * polynomial(z * z, [(-1.0) ** k / (2 * k + 1) for k in range(12)])
    return call("copysign", select(inverse, math.pi / 2 - y, y), x)


def _asin(x: Expr) -> Expr:
    return _atan(x / call("sqrt", (1.0 - x) * (x + 1.0)))


def _acos(x: Expr) -> Expr:
    return 2.0 * _atan(call("sqrt", 1.0 - x) / call("sqrt", x + 1.0))


def _asinh(x: Expr) -> Expr:
    a = call("fabs", x)
    z = a * a
    near = log1p(a + z / (call("sqrt", z + 1.0) + 1.0))
    return call("copysign", select(a < 1e9, near, log(a) + math.log(2)), x)


def _sinh(x: Expr) -> Expr:
    a = call("fabs", x)
    return call("copysign", 0.5 * (expm1(a) - expm1(-a)), x)


def _pow(x: Expr, y: Expr) -> Expr:
    """IEEE pow but for signed zeros and infinities of odd exponents."""
    r = exp(y * log(call("fabs", x)))
    whole = call("trunc", y).eq(y)
    half = y * 0.5
    odd = call("trunc", half).ne(half)
    negative = select(whole, select(odd, -r, r), const(math.nan, "f64"))
    r = select(x < 0.0, negative, r)
    zero = select(y > 0.0, const(0.0, "f64"), math.inf)
    r = select(x.eq(0.0), zero, r)
    return select(y.eq(0.0), const(1.0, "f64"), select(x.eq(1.0), const(1.0, "f64"), r))


sin = _wide(lambda x: _sin_cos(x, 0))
cos = _wide(lambda x: _sin_cos(x, 1))
tan = _wide(lambda x: _sin_cos(x, 0) / _sin_cos(x, 1))
atan = _wide(_atan)
asin = _wide(_asin)
acos = _wide(_acos)
sinh = _wide(_sinh)
cosh = _wide(lambda x: 0.5 * (exp(x) + exp(-x)))
asinh = _wide(_asinh)
acosh = _wide(lambda x: log(x + call("sqrt", (x - 1.0) * (x + 1.0))))
atanh = _wide(lambda x: 0.5 * log1p(2.0 * x / (1.0 - x)))
power = _wide(_pow)
