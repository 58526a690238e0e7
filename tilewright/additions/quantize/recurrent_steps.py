"""The steps of a recurrent layer as a Scan: in floats here, to see the values inside, in `recurrent_integers` of bytes.

LSTM   i, o, f = sigmoid(gate + h R),  g = tanh(gate + h R),  c = f c + i g,  h = o tanh(c)
GRU    z, r = sigmoid(gate + h R),  n = tanh(gate + r (h R + b)) or tanh(gate + (r h) R),  h = (1 - z) n + z h
RNN    h = tanh(gate + h R)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tilewright.quantize.layers import Kind, Layer, Network, attributes_of
from tilewright.quantize.recipe import Range
from tilewright.quantize.recurrent_ops import GATES

STATES = {"LSTM": "hc", "GRU": "h", "RNN": "h"}
"""States from step to step."""

_FIXED = {"Sigmoid": Range(0.0, 1.0), "Tanh": Range(-1.0, 1.0)}


def value_name(layer: Layer, value: str) -> str:
    """The name of a value inside of the steps, among ranges."""
    return f"{layer.nodes[-1].name}:{value}"


def values_of(layer: Layer) -> list[str]:
    """Returns the values inside of the steps that have ranges of their own; `h` and `c` are the states."""
    kind = layer.nodes[-1].op_type
    found = [f"{what}_{gate}" for gate in GATES[kind] for what in ("product", "sum")]
    return [*found, *{"LSTM": ("old", "new"), "GRU": ("old", "new", "reset"), "RNN": ()}[kind], *STATES[kind]]


def sums_of(layer: Layer) -> list[tuple[str, str, str]]:
    """Returns the sums inside of the steps: result and both operands, by name among ranges."""
    kind, gates = layer.nodes[-1].op_type, dict(zip(GATES[layer.nodes[-1].op_type], layer.inputs))
    inner = lambda gate: "reset" if kind == "GRU" and gate == "h" and late_reset(layer) else f"product_{gate}"
    own = lambda name: value_name(layer, name)
    found = [(own(f"sum_{gate}"), name, own(inner(gate))) for gate, name in gates.items()]
    state = {"LSTM": "c", "GRU": "h", "RNN": ""}[kind]
    return [*found, (own(state), own("old"), own("new"))] if state else found


def functions_of(layer: Layer) -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    """Returns the functions that are the only readers of values inside."""
    gates = GATES[layer.nodes[-1].op_type]
    return {value_name(layer, f"sum_{g}"): np.tanh if g == gates[-1] else _sigmoid for g in gates}


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(0.5 + 0.5 * np.tanh(0.5 * x))


def states_of(layer: Layer) -> dict[str, list[str]]:
    """The tensors outside that hold a state, by the state."""
    node, found = layer.nodes[-1], {}
    for k, state in enumerate(STATES[node.op_type]):
        outside = [*node.input[5 + k : 6 + k], *([node.output[0]] if k == 0 else []), *node.output[1 + k : 2 + k]]
        found[state] = [name for name in outside if name in layer.inputs or name in layer.outputs]
    return found


def opened(network: Network) -> tuple[onnx.ModelProto, list[str]]:
    """The model with the steps of its recurrent layers as Scans in floats, and the tensors that hold what is inside, by
    `value_name`. The model as it is, where it has no such layer."""
    model = network.model
    layers = {layer.nodes[-1].name: layer for layer in network.layers if layer.kind is Kind.RECURRENT}
    if not layers:
        return model, []
    made = onnx.ModelProto()
    made.CopyFrom(model)
    nodes: list[onnx.NodeProto] = []
    for node in network.nodes:
        layer = layers.get(node.name)
        if layer is None:
            nodes.append(node)
            continue
        scan = FloatSteps(network, layer)
        nodes += scan.nodes
        made.graph.initializer.extend(scan.constants)
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    return made, [value_name(layer, value) for layer in layers.values() for value in values_of(layer)]


def late_reset(layer: Layer) -> bool:
    """Whether the reset gate of a GRU multiplies the product of the state."""
    return bool(attributes_of(layer.nodes[-1]).get("linear_before_reset", 0))


class FloatSteps:
    """The Scan of a layer, in floats.

    Args:
        network: of the prepared model.
        layer: of kind RECURRENT.

    Attributes:
        nodes: that compute what the recurrent node writes.
        constants: initialisers that they read.
        states: from step to step.
        inside: values that are handed out for every step, by `value_name`.
    """

    dtype: np.dtype = np.dtype(np.float32)

    def __init__(self, network: Network, layer: Layer) -> None:
        self.network, self.layer, self.node = network, layer, layer.nodes[-1]
        self.kind = str(self.node.op_type)
        self.name = str(self.node.name)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._body: list[onnx.NodeProto] = []
        self._held: list[onnx.TensorProto] = []
        self.states = STATES[self.kind]
        self.inside = values_of(layer)
        self._prepare()
        self._step()
        self._scan()

    # -- what differs between floats and integers ---------------------------------------------------------------------

    def _prepare(self) -> None:
        """Sets what a kind of steps needs."""

    def _outside(self, name: str) -> str:
        """The tensor outside of the steps that the Scan reads."""
        return name

    def _zero(self, state: str) -> int:
        """The number that is 0 in a state."""
        return 0

    def _constant_state(self, state: str, value: np.ndarray) -> np.ndarray:
        return value

    def _hand_out(self, state: str, made: str, axis: int, result: str) -> None:
        """Makes a tensor that others read of one that holds states, with an axis of directions."""
        self._move("Unsqueeze", made, result, self._constant(f"{result}_axis", np.array([axis])))

    def _hand_out_cell(self, axis: int, result: str) -> None:
        """Makes the tensor of the last cells."""
        self._hand_out("c", self._end("c"), axis, result)

    def _first_cell(self) -> list[str]:
        """The states of the first cells."""
        return [self._first("c", 6)]

    def _cell(self, i: str, c: str, f: str, state: dict[str, str]) -> str:
        """The new cell.

        Args:
            i, c, f: what the gates are functions of.
            state: at the beginning of the step.
        """
        new = self._value("new", self._op("Mul", self._function("Sigmoid", "i", i), self._function("Tanh", "c", c)))
        old = self._value("old", self._op("Mul", self._function("Sigmoid", "f", f), state["c"]))
        return self._value("c", self._op("Add", old, new))

    def _mix(self, z: str, n: str, state: dict[str, str]) -> None:
        """Makes the new state of a GRU.

        Args:
            z, n: what the gates are functions of.
            state: at the beginning of the step.
        """
        keep, rest = self._function("Sigmoid", "z", z), self._function("Sigmoid", "rest", self._op("Neg", z))
        new = self._value("new", self._op("Mul", rest, self._function("Tanh", "h", n)))
        old = self._value("old", self._op("Mul", keep, state["h"]))
        self._value("h", self._op("Add", old, new))

    def _first_rest(self) -> list[str]:
        """The first states that a kind of steps has beside those of the layer."""
        return []

    def _begin(self, name: str) -> str:
        """The float value of a state or gate at the beginning of a step."""
        return f"{name}_before"

    def _weights(self, gate: str, value: np.ndarray, bias: np.ndarray | None) -> list[str]:
        """Operands of a product beside the state."""
        return [self._held_value(f"{gate}_{k}", x) for k, x in (("weights", value), ("bias", bias)) if x is not None]

    def _value(self, name: str, given: str, known: Range | None = None) -> str:
        """A float value after rounding.

        Args:
            known: its range, where it is that of a function.
        """
        if known is None:
            self._body.append(helper.make_node("Identity", [given], [f"{name}_after"], f"{name}_after"))
        return given

    # -- the nodes ----------------------------------------------------------------------------------------------------

    def _held_value(self, name: str, value: np.ndarray) -> str:
        """A constant of the body."""
        self._held.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def _op(self, op: str, *inputs: str, **attributes: object) -> str:
        name = f"{op.lower()}_{len(self._body)}"
        self._body.append(helper.make_node(op, inputs, [name], name, **attributes))
        return name

    def _step(self) -> None:
        """Writes the body."""
        r = self.network.constant(self.node.input[2])
        assert r is not None
        size = r.shape[2]
        weights = {gate: r[0, k * size : (k + 1) * size].T for k, gate in enumerate(GATES[self.kind])}
        given = self.network.constant(self.node.input[3]) if len(self.node.input) > 3 and self.node.input[3] else None
        gates = {gate: self._begin(f"gate_{gate}") for gate in weights}
        state = {name: self._begin(name) for name in self.states}

        def product(gate: str, of: str, bias: np.ndarray | None = None) -> str:
            more = self._weights(gate, weights[gate], bias)
            return self._value(f"product_{gate}", self._op("MatMul" if bias is None else "Gemm", of, *more))

        def summed(gate: str) -> str:
            return self._value(f"sum_{gate}", self._op("Add", gates[gate], product(gate, state["h"])))

        function = self._function
        if self.kind == "LSTM":
            cell = self._cell(summed("i"), summed("c"), summed("f"), state)
            self._value("h", self._op("Mul", function("Sigmoid", "o", summed("o")), function("Tanh", "cell", cell)))
        elif self.kind == "GRU":
            z_sum, r_gate = summed("z"), function("Sigmoid", "r", summed("r"))
            if late_reset(self.layer):
                bias = None if given is None else given[0, -size:]
                inner = self._value("reset", self._op("Mul", r_gate, product("h", state["h"], bias)))
            else:
                inner = product("h", self._value("reset", self._op("Mul", r_gate, state["h"])))
            self._mix(z_sum, self._value("sum_h", self._op("Add", gates["h"], inner)), state)
        else:
            self._value("h", self._op("Tanh", summed("h")))

    def _function(self, op: str, gate: str, of: str) -> str:
        return self._value(f"{op}_{gate}", self._op(op, of), _FIXED[op])

    def _end(self, state: str) -> str:
        """The tensor outside that has the last values of a state, [batch, hidden]."""
        return f"{self.name}:scan_{state}_end"

    def _scan(self) -> None:
        """Writes the Scan with what hands states and gates in and out."""
        gates, states, inside = GATES[self.kind], self.states, self.inside
        kind = helper.np_dtype_to_tensor_dtype(self.dtype)
        hidden = list(self.network.constants[self.node.input[2]].dims)[2]
        info = lambda name: helper.make_tensor_value_info(name, kind, ["batch", hidden])  # onnxruntime wants shapes
        self._body += [helper.make_node("Identity", [f"{x}_after"], [f"{x}_row"], f"{x}_row") for x in inside]
        before = [info(f"{name}_before") for name in (*states, *(f"gate_{gate}" for gate in gates))]
        after = [info(name) for name in (*(f"{x}_after" for x in states), *(f"{x}_row" for x in inside))]
        body = helper.make_graph(self._body, "step", before, after, self._held)
        back = int(attributes_of(self.node).get("direction", b"forward") == b"reverse")
        results = [*map(self._end, states), *(value_name(self.layer, name) for name in inside)]
        first = [self._first("h", 5), *(self._first_cell() if self.kind == "LSTM" else self._first_rest())]
        inputs = [*first, *map(self._outside, self.layer.inputs[: len(gates)])]
        self.nodes.append(
            helper.make_node(
                "Scan", inputs, results, f"{self.name}_steps", body=body, num_scan_inputs=len(gates),
                scan_input_directions=[back] * len(gates), scan_output_directions=[back] * len(inside),
            )
        )  # fmt: skip
        y, y_h, y_c = (name if name in self.layer.outputs else "" for name in [*self.node.output, "", ""][:3])
        if y:
            self._hand_out("h", value_name(self.layer, "h"), 1, y)
        if y_h:
            self._hand_out("h", self._end("h"), 0, y_h)
        if y_c:
            self._hand_out_cell(0, y_c)

    def _first(self, state: str, at: int) -> str:
        """The first state, [batch, hidden], of the node's input `at`."""
        name = self.node.input[at] if len(self.node.input) > at else ""
        known = self.network.constant(name) if name else None
        if known is not None:
            return self._constant(f"first_{state}", self._constant_state(state, known[0]))
        if name:
            return self._squeezed(self._outside(name))
        return self._first_zero(state)

    def _first_zero(self, state: str) -> str:
        """Zeros as the first state, [batch, hidden]."""
        gates, first = self._outside(self.layer.inputs[0]), self._constant(f"at_{state}", np.array(0))
        shape = self._move("Shape", self._move("Gather", gates, "", first, axis=0), "")
        zero = numpy_helper.from_array(np.array([self._zero(state)], self.dtype))
        return self._move("ConstantOfShape", shape, "", value=zero)

    def _squeezed(self, state: str) -> str:
        """A state without the axis of directions."""
        return self._move("Squeeze", state, "", self._constant(f"axis_{len(self.nodes)}", np.array([0])))

    def _move(self, op: str, source: str, result: str, *more: str, **attributes: object) -> str:
        name = result or f"{self.name}:move_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, [source, *more], [name], f"{name}_{op}", **attributes))
        return name

    def _constant(self, name: str, value: np.ndarray) -> str:
        """A constant outside of the body."""
        self.constants.append(numpy_helper.from_array(np.asarray(value), f"{self.name}:{name}"))
        return f"{self.name}:{name}"
