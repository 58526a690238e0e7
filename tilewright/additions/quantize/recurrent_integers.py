"""The steps of a recurrent layer as a Scan of integers.

Each product, sum and function is rounded to 8 bits, which is what the machine stores. 1 - z of a GRU is the sigmoid of
-z, a table as the others are. States and gates are integers outside of the body, so that each of its ops stands between
DequantizeLinear and QuantizeLinear.

The cells of an LSTM add up for many steps, by little each. Beyond a few units a byte has no steps for that, so that
they get two: one of coarse steps, and one of what is left. So does the state of a GRU that is kept for many steps,
where each product with z would be rounded to the state's steps again.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import helper

from tilewright.quantize.integers import Parameters, exact_sum, hold_bias, nearest_weights
from tilewright.quantize.layers import Layer, Network
from tilewright.quantize.names import SCALE, ZERO_POINT
from tilewright.quantize.recipe import Range
from tilewright.quantize.recurrent_ops import GATES
from tilewright.quantize.recurrent_steps import FloatSteps, late_reset, value_name

MOST_OF_CELL = 4.0
"""The largest cell of one byte."""

_LONG = 0.9
"""The largest update gate of a state of one byte: larger ones keep it for more than ten steps."""

_FINE = 30
"""Fine steps in one of the state's. A byte of fine ones reaches four steps of the state."""

_REACH_OF_TANH = 3.5
"""The largest cell that its tanh is taken of; beyond, it is 1 but for half a step."""

_DIGITS = {"Sigmoid": 1 / 8, "Tanh": 1 / 15}
"""Units of the upper digits of an input gate and of what it lets in."""

_FAR = 40.0
"""A value at which every gate has its limit."""

_UNIT = _DIGITS["Sigmoid"] * _DIGITS["Tanh"]
"""The unit of products of upper digits: a byte holds them all exactly."""


def _grid(unit: float) -> Range:
    """The range of all whole numbers of a unit that a byte holds, 0 in the middle."""
    return Range(-128 * unit, 127 * unit)


def _middle(dtype: np.dtype) -> int:
    """The zero point of a symmetric range."""
    return 128 if dtype == np.uint8 else 0


class IntegerSteps(FloatSteps):
    """The Scan of a layer in integers.

    Args:
        parameters: of the tensors outside and of the values inside, by name among ranges, and of fixed ranges.
        outside: the integers of a tensor outside, by its name.
        dtype: of activations.

    Attributes:
        handed_out: outputs that are integers but for scale and zero point.
        coarse, fine: both bytes of a cell, or of the state of a GRU; None where it has one byte.
    """

    def __init__(
        self, network: Network, layer: Layer, parameters: Callable[[str | Range], Parameters],
        outside: Callable[[str], str], dtype: np.dtype,
    ) -> None:  # fmt: skip
        self._parameters, self._integers = parameters, outside
        self.coarse: Parameters | None = None
        self.fine: Parameters | None = None
        self.dtype = dtype
        super().__init__(network, layer)

    def _of(self, name: str) -> Parameters:
        """The parameters of a gate, or of a value inside."""
        own = {"n": self.coarse, "m": self.fine}.get(name)
        if own is not None:
            return own
        gate = name.removeprefix("gate_")
        outside = dict(zip(GATES[self.kind], self.layer.inputs))
        return self._parameters(outside[gate] if name != gate else value_name(self.layer, name))

    def _outside(self, name: str) -> str:
        return self._integers(name)

    def _zero(self, state: str) -> int:
        return self._of(state).zero_point

    def _constant_state(self, state: str, value: np.ndarray) -> np.ndarray:
        return self._of(state).integers(value)

    def _hand_out(self, state: str, made: str, axis: int, result: str) -> None:
        super()._hand_out(state, made, axis, f"{result}:integers")
        self._dequantise(f"{result}:integers", self._of(state), result)
        self.handed_out.append(result)

    def _dequantise(self, integers: str, own: Parameters, result: str) -> str:
        """Makes floats of integers outside."""
        name = f"{result}_DequantizeLinear"
        self.nodes.append(helper.make_node("DequantizeLinear", [integers, *self._outer(result, own)], [result], name))
        return result

    def _outer(self, name: str, own: Parameters) -> list[str]:
        """Scale and zero point outside."""
        scale = self._constant(f"{name}{SCALE}", np.asarray(own.scale, np.float32))
        return [scale, self._constant(f"{name}{ZERO_POINT}", np.asarray(own.zero_point, self.dtype))]

    # -- cells of two bytes -------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        self.inside = ["h"]
        self.handed_out: list[str] = []
        self._rounded: dict[str, Parameters] = {}  # of values in the body
        bound = self._bound("c") if self.kind == "LSTM" else 0.0
        if bound > MOST_OF_CELL:
            self._part(np.float32(np.ceil(bound / 127 / _UNIT) * _UNIT), "hnm")
        if self.kind == "GRU" and self._largest("sum_z") > np.log(_LONG / (1 - _LONG)):
            self._part(self._of("h").scale, "hm")

    def _part(self, scale: np.float32, states: str) -> None:
        """Gives a state two bytes, of which the coarse one has this scale."""
        self.coarse, self.fine, self.states = self._symmetric(scale), self._symmetric(scale / 254), states

    def _symmetric(self, scale: float | np.float32) -> Parameters:
        return Parameters(np.float32(scale), _middle(self.dtype), self.dtype)

    def _largest(self, name: str) -> float:
        """The largest number of a value in the body."""
        return float(self._of(name).floats(np.array(np.iinfo(self.dtype).max)))

    def _bound(self, name: str) -> float:
        """The largest magnitude of a value in the body."""
        own, limits = self._of(name), np.iinfo(self.dtype)
        ends = (float(own.scale) * (end - own.zero_point) for end in (int(limits.min), int(limits.max)))
        return max(map(abs, ends))

    def _cell(self, i: str, c: str, f: str, state: dict[str, str]) -> str:
        """The new cell; of two bytes n and m, it is clamped to what its tanh can tell from 1.

            c = n + m,  e = 1 - f      c' = n - e n + f m + i g

        What is added is i g in exact and small parts, and -e n within the reach; beyond it, where the cell forgets
        much, e n is rounded coarsely. Of each the coarse steps go to n and the rest to m, both by tables, so that the
        only rounding of the sum of rests is that with f m: this one differs from step to step, where equal gates would
        make the same error again and again.
        """
        if self.coarse is None or self.fine is None:
            return super()._cell(i, c, f, state)
        step = float(self.coarse.scale)
        unit, half = max(_UNIT, step / 127), step / 2
        reach = int(127 * unit / step) * step
        inside = lambda value: self._clipped(value, -reach, reach)
        keep, lose = self._shares("f", f)
        lost = self._value("lost", self._op("Mul", lose, state["n"]), _grid(unit))
        coarse = self._as("lost_coarse", self._op("Mul", lose, state["n"]), self.coarse)
        n = self._as("far", self._op("Sub", coarse, inside(coarse)), self.coarse)
        n = self._as("left", self._op("Add", state["n"], n), self.coarse)
        kept = self._value("kept", self._op("Mul", keep, state["m"]), Range(-half, half))
        high, low, bound = self._product(i, c)
        wholes, rests = [], []
        for name, value in (("high", high), ("lost", inside(lost))):
            wholes.append(self._as(f"{name}_whole", self._whole(value, step), self.coarse))
            rests.append(self._value(f"{name}_rest", self._op("Sub", value, self._whole(value, step)), _grid(unit)))
        rest = self._total("rest", rests[0], rests[1], _grid(unit))
        near = self._total("near", low, kept, Range(-bound - half, bound + half))
        bound += half + step
        total = self._total("total", near, rest, Range(-bound, bound))
        wholes.append(self._as("carried", self._whole(total, step), self.coarse))
        for at, whole in enumerate(wholes):
            n = self._as(f"n_{at}" if whole != wholes[-1] else "n", self._op("Add", n, whole), self.coarse)
        m = self._as("m", self._op("Sub", total, self._whole(total, step)), self.fine)
        return self._total("c", n, m, Range(-_REACH_OF_TANH, _REACH_OF_TANH))

    def _product(self, i: str, c: str) -> tuple[str, str, float]:
        """The product i g in two parts: that of upper digits, which is exact, and the rest; and the bound of the rest.

        i = a + b,  g = d + e      i g = a d + (a e + b g)
        """
        parts = []
        for name, gate, given in (("i", "Sigmoid", i), ("g", "Tanh", c)):
            digit = _DIGITS[gate]
            made = self._op(gate, self._saturated(gate, given))
            rest = self._op("Sub", made, self._whole(made, digit))
            parts.append(self._value(f"{name}_high", self._whole(made, digit), _grid(digit)))
            parts.append(self._value(f"{name}_low", rest, Range(-digit / 2, digit / 2)))
        a, b, d, e = parts
        g, ends = self._function("Tanh", "c", c), [_DIGITS["Tanh"] / 2, _DIGITS["Sigmoid"] / 2]
        high = self._value("high", self._op("Mul", a, d), _grid(_UNIT))
        first, second = (
            self._value(f"low_{k}", self._op("Mul", x, y), Range(-end, end))
            for k, (x, y, end) in enumerate(zip((a, b), (e, g), ends))
        )
        return high, self._total("low", first, second, Range(-sum(ends), sum(ends))), sum(ends)

    def _saturated(self, gate: str, value: str) -> str:
        """A value that is far out where its range ends within a step of a byte of the gate's limits: what was clipped
        there has reached them, and what is left of the gate would add up from step to step."""
        own, limits = self._rounded[value], np.iinfo(self.dtype)
        low, high = (float(x) for x in own.floats(np.array([limits.min, limits.max])))
        near, half = np.log(254) * (1.0 if gate == "Sigmoid" else 0.5), float(own.scale) / 2
        low += half if low < -near else -half
        high -= half if high > near else -half
        inner = self._clipped(value, low, high)
        beyond = self._op("Mul", self._op("Sub", value, inner), self._number("far", _FAR / half))
        return self._op("Add", value, beyond)

    def _shares(self, gate: str, value: str) -> tuple[str, str]:
        """The share that a gate keeps, and, as a negative number, the one that it loses."""
        keep = self._function("Sigmoid", gate, value)
        lose = self._op("Neg", self._op("Sigmoid", self._op("Neg", value)))
        return keep, self._value("lose", lose, Range(-1.0, 0.0))

    def _clipped(self, value: str, low: float, high: float) -> str:
        return self._op("Clip", value, self._number("low", low), self._number("high", high))

    def _whole(self, value: str, unit: float) -> str:
        """The whole units of a value."""
        steps = self._op("Round", self._op("Mul", value, self._number("steps", 1 / unit)))
        return self._op("Mul", steps, self._number("step", unit))

    def _total(self, name: str, a: str, b: str, known: Range) -> str:
        """A sum of two values, rounded as the machine can."""
        return self._value(name, self._op("Add", a, b), exact_sum(known, self._rounded[a], self._rounded[b]))

    def _first_cell(self) -> list[str]:
        if self.coarse is None or self.fine is None:
            return super()._first_cell()
        name = self.node.input[6] if len(self.node.input) > 6 else ""
        known = self.network.constant(name) if name else None
        if known is not None:
            integers = self.coarse.integers(known[0])
            left = self.fine.integers(known[0] - self.coarse.floats(integers))
            return [self._constant("first_n", integers), self._constant("first_m", left)]
        if not name:
            return [self._first("n", 6), self._first("m", 6)]
        given = self._squeezed(name)
        n = self._move("QuantizeLinear", given, "", *self._outer("first_n", self.coarse))
        rest = self._move("Sub", given, "", self._dequantise(n, self.coarse, f"{self.name}:first_n"))
        return [n, self._move("QuantizeLinear", rest, "", *self._outer("first_m", self.fine))]

    def _hand_out_cell(self, axis: int, result: str) -> None:
        if self.coarse is None or self.fine is None:
            super()._hand_out_cell(axis, result)
            return
        parts = [self._dequantise(self._end(x), self._of(x), f"{self.name}:last_{x}") for x in "nm"]
        FloatSteps._hand_out(self, "c", self._move("Add", parts[0], "", parts[1]), axis, result)

    # -- states of two bytes ------------------------------------------------------------------------------------------

    def _mix(self, z: str, n: str, state: dict[str, str]) -> None:
        """The new state of a GRU; of two bytes h and m, of which products read the coarse one.

            h + m  =>  h + p + z m,    p = (1 - z) (tanh(n) - h)

        p is rounded finely within the reach, of a few steps of h; then to its steps, and beyond those of a byte to
        double ones. Of each the whole steps go to h and the rest to m, by tables.
        """
        if self.coarse is None or self.fine is None:
            super()._mix(z, n, state)
            return
        h, step = self._of("h"), float(self.coarse.scale)
        unit, reach, most = step / _FINE, 127 // _FINE * step, 126 * step
        inside = lambda value, end: self._clipped(value, -end, end)
        keep, lose = self._shares("z", z)
        to = self._function("Tanh", "h", self._op("Neg", n))
        bound = 1 + self._bound("h")
        gap = self._total("gap", state["h"], to, Range(-bound, bound))
        fine = inside(self._value("added_fine", self._op("Mul", lose, gap), _grid(unit)), reach)
        steps = self._as("added", self._op("Mul", lose, gap), self.coarse)
        double = self._as("added_double", self._op("Mul", lose, gap), self._symmetric(2 * step))
        whole = self._as("whole", self._whole(fine, step), self.coarse)
        rest = self._value("rest_of_it", self._op("Sub", fine, self._whole(fine, step)), _grid(unit))
        left = self._value("left", self._op("Mul", keep, state["m"]), Range(-step / 2, step / 2))
        total = self._total("total", rest, left, Range(-step, step))
        carried = self._as("carried", self._whole(total, step), self.coarse)
        self._as("m", self._op("Sub", total, self._whole(total, step)), self.fine)
        far = self._as("far", self._op("Sub", inside(steps, most), inside(steps, reach)), self.coarse)
        beyond = self._as("beyond", self._op("Sub", double, inside(double, most)), self._symmetric(2 * step))
        made = state["h"]
        for at, part in enumerate((whole, far, beyond, carried)):
            made = self._as(f"h_{at}" if part != carried else "h", self._op("Add", made, part), h)

    def _first_rest(self) -> list[str]:
        return [self._first_zero("m")] if "m" in self.states else []

    # -- values in the body -------------------------------------------------------------------------------------------

    def _begin(self, name: str) -> str:
        own = self._of(name)
        result = self._op("DequantizeLinear", f"{name}_before", *self._scale(f"{name}_before", own))
        self._rounded[result] = own
        return result

    def _value(self, name: str, given: str, known: Range | None = None) -> str:
        return self._as(name, given, self._of(name) if known is None else self._parameters(known))

    def _number(self, name: str, value: float) -> str:
        """A constant of functions in the body."""
        return self._held_value(f"{name}_{len(self._held)}", np.asarray(value, np.float32))

    def _as(self, name: str, given: str, parameters: Parameters) -> str:
        """A float value after rounding."""
        own = self._scale(name, parameters)
        self._body.append(helper.make_node("QuantizeLinear", [given, *own], [f"{name}_after"], f"{name}_after"))
        result = self._op("DequantizeLinear", f"{name}_after", *own)
        self._rounded[result] = parameters
        return result

    def _scale(self, name: str, own: Parameters) -> list[str]:
        scale = self._held_value(f"{name}{SCALE}", np.asarray(own.scale, np.float32))
        return [scale, self._held_value(f"{name}{ZERO_POINT}", np.asarray(own.zero_point, self.dtype))]

    def _weights(self, gate: str, value: np.ndarray, bias: np.ndarray | None) -> list[str]:
        late = self.kind == "GRU" and gate == "h" and not late_reset(self.layer)
        x = self._of("reset" if late else "h")
        rounded = nearest_weights(value, 1)
        if bias is not None:
            rounded = hold_bias(rounded, bias, float(x.scale), 1)
        assert rounded.scale is not None
        found = [(f"{gate}_weights", rounded.values, rounded.scale, 1)]
        if bias is not None:
            scale = np.asarray(np.float32(x.scale) * rounded.scale, np.float32)
            integers = np.clip(np.rint(bias.astype(np.float64) / scale), -(2.0**31), 2.0**31 - 1).astype(np.int32)
            found.append((f"{gate}_bias", integers, scale, 0))
        made = []
        for name, integers, scale, axis in found:
            parts = (("quantized", integers), ("scale", scale), ("zero_point", np.zeros(scale.shape, integers.dtype)))
            made.append(
                self._op("DequantizeLinear", *(self._held_value(f"{name}_{k}", x) for k, x in parts), axis=axis)
            )
        return made
