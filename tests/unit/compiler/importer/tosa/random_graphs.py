"""Random TOSA 1.0 programs as MLIR text: 8-bit networks with every form of RESCALE around their operations."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence

import numpy as np

Value = tuple[str, tuple[int, ...], str]
"""Name, shape and type of the elements."""


def typed(shape: Sequence[int], element: str) -> str:
    return f"tensor<{''.join(f'{n}x' for n in shape)}{element}>"


def digest(arrays: Iterable[np.ndarray]) -> str:
    """A short hash of the bytes of arrays."""
    return hashlib.sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)).hexdigest()[:16]


class RandomProgram:
    """A program of some random operations.

    Args:
        seed: of everything that is drawn.
    """

    def __init__(self, seed: int, ops: int = 5) -> None:
        self.seed, self.r = seed, np.random.default_rng(seed)
        self.lines: list[str] = []
        self.zeros: dict[str, int] = {}
        self.count = 0
        side = int(self.r.integers(4, 9))
        self.input = ("arg0", (1, side, int(self.r.integers(4, 9)), int(self.r.choice([1, 3, 4, 8]))), "i8")
        self.zeros["arg0"] = self._zero()
        self.bytes: list[Value] = [self.input]
        self.outputs: list[Value] = []
        steps = [
            self.conv, self.depthwise, self.transposed, self.add, self.mul, self.pool, self.average, self.table,
            self.move, self.matmul, self.again, self.reduced, self.resized, self.compared, self.clamped, self.joined,
            self.indexed, self.bits, self.sixteen,
        ]  # fmt: skip
        for _ in range(ops):
            step: Callable[[Value], Value | None] = steps[int(self.r.integers(len(steps)))]
            made = step(self._byte())
            if made is not None:
                self.bytes.append(made)
        self.outputs.append(self.bytes[-1])

    def text(self) -> str:
        """The program as MLIR text, in the generic form."""
        types = ", ".join(typed(s, e) for _, s, e in self.outputs)
        names = ", ".join(f"%{n}" for n, _, _ in self.outputs)
        body = "\n".join(f"    {line}" for line in self.lines)
        head = f"  func.func @main(%arg0: {typed(*self.input[1:])}) -> ({types}) {{"
        return f"module {{\n{head}\n{body}\n    return {names} : {types}\n  }}\n}}\n"

    def arrays(self) -> dict[str, np.ndarray]:
        """Values of the input, the same at every call."""
        return {"input": np.random.default_rng(self.seed).integers(-128, 128, self.input[1]).astype(np.int8)}

    # --- pieces of text ---

    def op(self, name: str, operands: Sequence[Value], shape: Sequence[int], element: str, attrs: str = "") -> Value:
        self.count += 1
        made = f"v{self.count}"
        given = ", ".join(f"%{n}" for n, _, _ in operands)
        types = ", ".join(e if e.startswith("!") else typed(s, e) for _, s, e in operands)
        attrs = f" <{{{attrs}}}>" if attrs else ""
        self.lines.append(f'%{made} = "tosa.{name}"({given}){attrs} : ({types}) -> {typed(shape, element)}')
        return made, tuple(int(n) for n in shape), element

    def const(self, value: object, element: str, shape: Sequence[int] | None = None) -> Value:
        array = np.asarray(value)
        shape = tuple(array.shape if shape is None else shape)
        text = str(array.tolist()) if array.ndim else str(array.item())
        text = text.replace("True", "true").replace("False", "false")
        self.count += 1
        of = typed(shape, element)
        self.lines.append(f'%c{self.count} = "tosa.const"() <{{values = dense<{text}> : {of}}}> : () -> {of}')
        return f"c{self.count}", shape, element

    def sizes(self, values: Sequence[int]) -> Value:
        self.count += 1
        n = len(values)
        text = f"dense<{list(values)}> : tensor<{n}xindex>"
        self.lines.append(f'%c{self.count} = "tosa.const_shape"() <{{values = {text}}}> : () -> !tosa.shape<{n}>')
        return f"c{self.count}", (n,), f"!tosa.shape<{n}>"

    def rescale(
        self, x: Value, element: str, factor: float, zero: int = 0, out_zero: int = 0, per_channel: bool = False
    ) -> Value:
        channels = x[1][-1] if per_channel else 1
        factors = factor * self.r.uniform(0.5, 1.5, channels)
        wide = bool(self.r.random() < 0.8) and x[2] != "i48"
        bits = 31 if wide else 15
        mantissa, power = np.frexp(factors)
        multiplier = np.minimum(np.floor(mantissa * 2.0**bits), 2**bits - 1).astype(np.int64)
        if self.r.random() < 0.3:
            multiplier = multiplier >> (bits - 12) << (bits - 12)
        shift = np.clip(bits - power, 2, 62 if wide else 46)
        mode = "DOUBLE_ROUND" if wide and self.r.random() < 0.4 else "SINGLE_ROUND"
        given = [
            self.const(multiplier, "i32" if wide else "i16"), self.const(shift, "i8"),
            self.const([zero], x[2]), self.const([out_zero], element),
        ]  # fmt: skip
        flag = lambda v: "true" if v else "false"
        attrs = (
            f"scale32 = {flag(wide)}, rounding_mode = #tosa.rounding_mode<{mode}>, per_channel = {flag(per_channel)}, "
            "input_unsigned = false, output_unsigned = false"
        )
        return self.op("rescale", [x, *given], x[1], element, attrs)

    def to_bytes(self, x: Value, factor: float) -> Value:
        zero = self._zero()
        y = self.rescale(x, "i8", factor, 0, zero, per_channel=bool(self.r.random() < 0.5) and len(x[1]) > 0)
        self.zeros[y[0]] = zero
        if self.r.random() < 0.4:
            low, high = sorted(int(v) for v in self.r.integers(-128, 128, 2))
            low = zero if self.r.random() < 0.5 else low
            y = self._clamp(y, min(low, high), max(low, high))
        return y

    def _clamp(self, x: Value, low: int, high: int) -> Value:
        y = self.op("clamp", [x], x[1], x[2], f"min_val = {low} : {x[2]}, max_val = {high} : {x[2]}")
        self.zeros[y[0]] = self.zeros.get(x[0], 0)
        return y

    def _zero(self) -> int:
        return int(self.r.choice([0, -128, int(self.r.integers(-128, 128))]))

    def _byte(self) -> Value:
        return self.bytes[-1] if self.r.random() < 0.7 else self.bytes[int(self.r.integers(len(self.bytes)))]

    def _of(self, x: Value) -> Value:
        return self.const([self.zeros[x[0]]], "i8")

    # --- operations: each makes an 8-bit tensor of one, or nothing where it does not fit ---

    def conv(self, x: Value) -> Value | None:
        n, h, w, c = x[1]
        out, kh, kw = int(self.r.choice([1, 4, 8, 16])), int(self.r.integers(1, 4)), int(self.r.integers(1, 4))
        pad, stride = [int(v) for v in self.r.integers(0, 2, 4)], [int(v) for v in self.r.integers(1, 3, 2)]
        pad[1] += -(h + pad[0] + pad[1] - kh) % stride[0]
        pad[3] += -(w + pad[2] + pad[3] - kw) % stride[1]
        if h < kh or w < kw:
            return None
        weights = self.const(self.r.integers(-127, 128, (out, kh, kw, c)), "i8")
        bias = self.const(self.r.integers(-5000, 5000, out), "i32")
        shape = n, (h + pad[0] + pad[1] - kh) // stride[0] + 1, (w + pad[2] + pad[3] - kw) // stride[1] + 1, out
        attrs = f"acc_type = i32, pad = array<i64: {str(pad)[1:-1]}>, stride = array<i64: {str(stride)[1:-1]}>"
        operands = [x, weights, bias, self._of(x), self.const([0], "i8")]
        sums = self.op("conv2d", operands, shape, "i32", attrs + ", dilation = array<i64: 1, 1>")
        return self.to_bytes(sums, 1 / (60 * (kh * kw * c) ** 0.5) * float(self.r.choice([0.3, 1, 3])))

    def depthwise(self, x: Value, k: int = 0, m: int = 0) -> Value:
        n, h, w, c = x[1]
        k, m = k or int(self.r.integers(2, 4)), m or int(self.r.integers(1, 3))
        weights = self.const(self.r.integers(-127, 128, (k, k, c, m)), "i8")
        bias = self.const(self.r.integers(-3000, 3000, c * m), "i32")
        shape = n, h + 2 - k + 1, w + 2 - k + 1, c * m
        attrs = "acc_type = i32, pad = array<i64: 1, 1, 1, 1>, stride = array<i64: 1, 1>, dilation = array<i64: 1, 1>"
        operands = [x, weights, bias, self._of(x), self.const([0], "i8")]
        return self.to_bytes(self.op("depthwise_conv2d", operands, shape, "i32", attrs), 1 / (60 * k))

    def transposed(self, x: Value) -> Value | None:
        n, h, w, c = x[1]
        out, k, s = int(self.r.choice([1, 4])), int(self.r.integers(2, 4)), int(self.r.integers(1, 3))
        pads = [int(v) for v in self.r.integers(-1, 2, 4)]
        shape = n, (h - 1) * s + pads[0] + pads[1] + k, (w - 1) * s + pads[2] + pads[3] + k, out
        if min(shape) < 1:
            return None
        weights = self.const(self.r.integers(-127, 128, (out, k, k, c)), "i8")
        bias = self.const(self.r.integers(-3000, 3000, out), "i32")
        attrs = f"acc_type = i32, out_pad = array<i64: {str(pads)[1:-1]}>, stride = array<i64: {s}, {s}>"
        operands = [x, weights, bias, self._of(x), self.const([0], "i8")]
        return self.to_bytes(self.op("transpose_conv2d", operands, shape, "i32", attrs), 1 / (60 * c**0.5))

    def _pair(self, x: Value) -> Value:
        others = [v for v in self.bytes if v[1] == x[1]]
        return others[int(self.r.integers(len(others)))]

    def add(self, x: Value) -> Value:
        y = self._pair(x)
        a, b = (self.rescale(v, "i32", f * 2.0**10, self.zeros[v[0]]) for v, f in ((x, 0.7), (y, 0.4)))
        total = self.op(str(self.r.choice(["add", "sub", "maximum", "minimum"])), [a, b], x[1], "i32")
        return self.to_bytes(total, 2.0**-10)

    def mul(self, x: Value) -> Value:
        y = self._pair(x)
        a, b = (self.rescale(v, "i32", 0.9, self.zeros[v[0]]) for v in (x, y))
        return self.to_bytes(self.op("mul", [a, b, self.const([0], "i8")], x[1], "i32"), 1 / 70)

    def pool(self, x: Value) -> Value | None:
        n, h, w, c = x[1]
        if min(h, w) < 3:
            return None
        attrs = "kernel = array<i64: 2, 3>, stride = array<i64: 1, 1>, pad = array<i64: 0, 1, 1, 1>"
        y = self.op("max_pool2d", [x], (n, h, w, c), "i8", attrs)
        self.zeros[y[0]] = self.zeros[x[0]]
        return y

    def average(self, x: Value) -> Value | None:
        n, h, w, c = x[1]
        kh, kw = int(self.r.integers(1, min(h, 4) + 1)), int(self.r.integers(1, min(w, 4) + 1))
        pad = int(self.r.integers(0, 2)) if min(kh, kw) > 1 else 0
        zero = self._zero()
        attrs = f"acc_type = i32, kernel = array<i64: {kh}, {kw}>, stride = array<i64: 1, 1>"
        attrs += f", pad = array<i64: {pad}, {pad}, {pad}, {pad}>"
        shape = n, h + 2 * pad - kh + 1, w + 2 * pad - kw + 1, c
        y = self.op("avg_pool2d", [x, self._of(x), self.const([zero], "i8")], shape, "i8", attrs)
        self.zeros[y[0]] = zero
        return y

    def table(self, x: Value) -> Value:
        y = self.op("table", [x, self.const(self.r.integers(-128, 128, 256), "i8")], x[1], "i8")
        self.zeros[y[0]] = self._zero()
        return y

    def move(self, x: Value) -> Value | None:
        n, h, w, c = x[1]
        kind = int(self.r.integers(5))
        if kind == 0:
            y = self.op("transpose", [x], (n, w, c, h), "i8", "perms = array<i32: 0, 2, 3, 1>")
        elif kind == 1:
            y = self.op("reshape", [x, self.sizes([n, w, h, c])], (n, w, h, c), "i8")
        elif kind == 2:
            y = self.op("slice", [x, self.sizes([0, 0, w // 2, 0]), self.sizes([n, h, 1, c])], (n, h, 1, c), "i8")
        elif kind == 3:
            value = self.const([self.zeros[x[0]]], "i8")
            y = self.op("pad", [x, self.sizes([0, 0, 1, 0, 0, 2, 0, 0]), value], (n, h + 1, w + 2, c), "i8")
        else:
            y = self.op("reverse", [x], x[1], "i8", "axis = 2 : i32")
        self.zeros[y[0]] = self.zeros[x[0]]
        return y

    def matmul(self, x: Value) -> Value:
        """Makes a product by weights: of a tensor by its own transpose IREE 3.13 errs if a TABLE or CLAMP follows."""
        _, h, w, c = x[1]
        rows = self.op("reshape", [x, self.sizes([1, h * w, c])], (1, h * w, c), "i8")
        other = self.const(self.r.integers(-127, 128, (1, c, 8)), "i8")
        zero, out = self.const([0], "i8"), 8
        sums = self.op("matmul", [rows, other, self._of(x), zero], (1, h * w, out), "i32")
        made = self.to_bytes(sums, 1 / (70 * c**0.5))
        zero_point = self.zeros[made[0]]
        made = self.op("reshape", [made, self.sizes([1, h, w, out])], (1, h, w, out), "i8")
        self.zeros[made[0]] = zero_point
        return made

    def again(self, x: Value) -> Value:
        zero = self._zero()
        y = self.rescale(x, "i8", float(self.r.choice([0.5, 1, 1.7])), self.zeros[x[0]], zero)
        self.zeros[y[0]] = zero
        return y

    def reduced(self, x: Value) -> Value:
        axis = int(self.r.integers(1, 4))
        wide = self.rescale(x, "i32", 1.0, self.zeros[x[0]])
        shape = [1 if k == axis else n for k, n in enumerate(x[1])]
        kind = str(self.r.choice(["reduce_sum", "reduce_max", "reduce_min"]))
        return self.to_bytes(self.op(kind, [wide], shape, "i32", f"axis = {axis} : i32"), 0.4)

    def resized(self, x: Value) -> Value:
        n, h, w, c = x[1]
        nearest = bool(self.r.random() < 0.5)
        shape = n, 2 * h - 1, 2 * w - 1, c
        operands = [x, self.sizes([4, 2, 4, 2]), self.sizes([0, 0]), self.sizes([0, 0])]
        mode = "NEAREST_NEIGHBOR" if nearest else "BILINEAR"
        y = self.op("resize", operands, shape, "i8" if nearest else "i32", f"mode = #tosa.resize_mode<{mode}>")
        if nearest:
            self.zeros[y[0]] = self.zeros[x[0]]
            return y
        return self.to_bytes(y, 1 / 16)

    def compared(self, x: Value) -> Value:
        y = self._pair(x)
        a, b = (self.rescale(v, "i32", 1.0, self.zeros[v[0]]) for v in (x, y))
        flag = self.op(str(self.r.choice(["greater", "greater_equal", "equal"])), [a, b], x[1], "i1")
        if self.r.random() < 0.3:
            flag = self.op("logical_not", [flag], x[1], "i1")
        negative = self.op("negate", [b, self.const([0], "i32"), self.const([0], "i32")], x[1], "i32")
        return self.to_bytes(self.op("select", [flag, a, negative], x[1], "i32"), 0.9)

    def clamped(self, x: Value) -> Value:
        low, high = sorted(int(v) for v in self.r.integers(-128, 128, 2))
        return self._clamp(x, low, high)

    def joined(self, x: Value) -> Value:
        y = self._pair(x)
        axis = int(self.r.integers(1, 4))
        shape = [2 * s if k == axis else s for k, s in enumerate(x[1])]
        if int(np.prod(shape)) > 4000:
            return x
        made = self.op("concat", [x, y], shape, "i8", f"axis = {axis} : i32")
        self.zeros[made[0]] = self.zeros[x[0]]
        return made

    def indexed(self, x: Value) -> Value | None:
        _, h, w, c = x[1]
        rows = self.op("reshape", [x, self.sizes([1, h * w, c])], (1, h * w, c), "i8")
        count = h * w
        at = self.r.permutation(h * w)[None] if self.r.random() < 0.5 else self.r.integers(0, h * w, (1, count))
        y = self.op("gather", [rows, self.const(at, "i32")], (1, count, c), "i8")
        y = self.op("reshape", [y, self.sizes(x[1])], x[1], "i8")
        self.zeros[y[0]] = self.zeros[x[0]]
        found = self.op("argmax", [x], x[1][:3], "i32", "axis = 3 : i32")
        if len(self.outputs) < 2:
            self.outputs.append(found)
        return y

    def bits(self, x: Value) -> Value:
        wide = self.rescale(x, "i32", 300.0, self.zeros[x[0]])
        amount = self.const(self.r.integers(0, 9, [1] * len(x[1])), "i32")
        kind = int(self.r.integers(5))
        if kind < 2:
            flag = "true" if self.r.random() < 0.5 else "false"
            y = self.op("arithmetic_right_shift", [wide, amount], x[1], "i32", f"round = {flag}")
        elif kind == 2:
            y = self.op("logical_right_shift", [wide, amount], x[1], "i32")
        elif kind == 3:
            y = self.op("bitwise_xor", [wide, self.op("abs", [wide], x[1], "i32")], x[1], "i32")
        else:
            y = self.op("clz", [wide], x[1], "i32")
        return self.to_bytes(y, 0.02)

    def sixteen(self, x: Value) -> Value:
        y = self.rescale(x, "i16", 200.0, self.zeros[x[0]])
        entries = np.clip(np.cumsum(self.r.integers(-200, 200, 513)), -32768, 32767)
        wide = self.op("table", [y, self.const(entries, "i16")], y[1], "i32")
        return self.to_bytes(wide, 2.0**-14)
