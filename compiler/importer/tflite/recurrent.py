"""UNIDIRECTIONAL_SEQUENCE_LSTM, BIDIRECTIONAL_SEQUENCE_LSTM and SVDF. Runs begin from the reset state.

An LSTM of bytes is one kernel, a float LSTM is ONNX's where possible; other forms are unrolled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from tilewright.compiler.graph.graph import Quant
from tilewright.compiler.importer.tflite.builder import FILE, TfliteBuilder
from tilewright.compiler.importer.tflite.fixed_point import Integers, logistic_table, tanh_table
from tilewright.compiler.importer.tflite.handlers import HANDLERS, PLAIN, handles
from tilewright.compiler.importer.tflite.package import tflite
from tilewright.compiler.importer.tflite.schema import FileOp
from tilewright.isa.numerics import litert_multiplier

_ACTIVATIONS = {
    tflite.ActivationFunctionType.RELU: "Relu", tflite.ActivationFunctionType.TANH: "Tanh",
}  # fmt: skip
_ONNX_GATES = (0, 3, 1, 2)  # ONNX has input, output, forget, cell
_MAX_STEPS = 4096


class _Inputs(Struct, frozen=True):
    """The indices of one direction's inputs among the operator's; gates in the order input, forget, cell, output."""

    weights: tuple[int, ...]
    recurrent: tuple[int, ...]
    peepholes: tuple[int, ...]
    biases: tuple[int, ...]
    projection: tuple[int, int]
    states: tuple[int, int]
    norms: tuple[int, ...] = ()


def _direction(first: int, states: int, norms: tuple[int, ...]) -> _Inputs:
    at = iter(range(first, first + 17))
    groups = [tuple(next(at) for _ in range(n)) for n in (4, 4, 3, 4, 2)]
    return _Inputs(
        groups[0], groups[1], groups[2], groups[3], (groups[4][0], groups[4][1]), (states, states + 1), norms
    )


_SINGLE = _direction(1, 18, (20, 21, 22, 23))
_FORWARD, _BACKWARD = _direction(1, 35, ()), _direction(18, 37, ())


def _sequence(b: TfliteBuilder, time_major: bool) -> tuple[str, tuple[int, int, int]]:
    """Input 0 as rows [T*B, K] of its own type, with the sizes T, B and K."""
    shape = b.shape(0)
    if len(shape) != 3 or min(shape) < 1:
        raise b.damaged(f"input has shape {list(shape)}, rank 3 is needed")
    x, (n, t) = b.value(0, FILE), shape[:2]
    if time_major:
        n, t = t, n
    else:
        x = b.onnx("Transpose", [x], {"perm": [1, 0, 2]})
    return b.reshaped(x, [t * n, shape[2]]), (t, n, shape[2])


def _unrollable(b: TfliteBuilder, steps: int) -> None:
    if steps > _MAX_STEPS:
        raise b.refuse(f"{steps} steps; up to {_MAX_STEPS} are unrolled")


def _accept(b: TfliteBuilder, at: _Inputs, allowed: bool) -> None:
    given = {
        "peepholes": any(map(b.has, at.peepholes)), "a projection": b.has(at.projection[0]),
        "layer normalisation": any(map(b.has, at.norms)),
    }  # fmt: skip
    if allowed:
        given = {"layer normalisation": given["layer normalisation"]}
    for what, there in given.items():
        if there:
            raise b.refuse(f"{what} in this form is not supported")
    if at is _SINGLE and b.op.option("DiagonalRecurrentTensors", False):
        raise b.refuse("diagonal recurrent weights are not supported")


def _matrix(b: TfliteBuilder, k: int, what: str, rows: int, columns: int) -> np.ndarray:
    data = b.const(k, what)
    if data.shape != (rows, columns):
        raise b.damaged(f"{what} {b.source(k).name!r} have shape {list(data.shape)}, not {[rows, columns]}")
    return data


def _real_matrices(
    b: TfliteBuilder, ks: tuple[int, ...], gates: Sequence[int], shape: tuple[int, int]
) -> list[np.ndarray]:
    """The float32 weights of some gates, each of one shape; `ks` has their inputs."""
    parts = []
    for g in gates:
        _matrix(b, ks[g], "weights", *shape)
        data = b.graph.const(b.real(ks[g]))
        assert data is not None
        parts.append(data.astype(np.float32))
    return parts


def _unrolled(
    b: TfliteBuilder, gates: str, sizes: tuple[int, int], reverse: bool, step: Callable[[str], str], shape: list[int]
) -> str:
    """Runs `step` once for each time, on that time's rows of the gates [T*B, N]; returns its results as [T, B, ...]."""
    t, n = sizes
    outputs = {}
    for time in reversed(range(t)) if reverse else range(t):
        outputs[time] = b.reshaped(step(b.onnx("Slice", b.section(gates, time * n, (time + 1) * n, 0))), shape)
    return outputs[0] if t == 1 else b.onnx("Concat", [outputs[i] for i in range(t)], {"axis": 0})


def _parts(b: TfliteBuilder, gates: str, count: int, cells: int) -> list[str]:
    """Splits gates that lie side by side in the last axis."""
    limits = [b.section(gates, i * cells, (i + 1) * cells, 1) for i in range(count)]
    return [b.onnx("Slice", inputs) for inputs in limits]


def _onnx_lstm(b: TfliteBuilder, at: _Inputs, x: str, sizes: tuple[int, int, int], reverse: bool) -> str:
    """Emits the LSTM as an ONNX node: all four gates, no projection, no clipping."""
    t, n, k = sizes
    cells = b.shape(at.weights[1])[0]
    biases = [b.const(at.biases[g], "bias").astype(np.float32).reshape(-1) for g in _ONNX_GATES]
    if any(bias.size != cells for bias in biases):
        raise b.damaged(f"biases of {[bias.size for bias in biases]} cells, there are {cells}")
    bias = np.concatenate([*biases, np.zeros(4 * cells, np.float32)])[None]
    rows = b.reshaped(x, [t, n, k])
    sides = ((at.weights, k), (at.recurrent, cells))
    matrices = [np.concatenate(_real_matrices(b, ks, _ONNX_GATES, (cells, columns)))[None] for ks, columns in sides]
    inputs = [
        rows,
        *(b.constant(name, data) for name, data in zip(("weights", "recurrent", "bias"), (*matrices, bias))),
    ]
    if b.has(at.peepholes[0]):
        given = [b.graph.const(b.real(at.peepholes[which])) for which in (0, 2, 1)]
        found = [p.astype(np.float32).reshape(-1) for p in given if p is not None]
        if [p.size for p in found] != [cells] * 3:
            raise b.damaged(f"peepholes of {[p.size for p in found]} cells, there are {cells}")
        inputs += ["", "", "", b.constant("peepholes", np.concatenate(found)[None])]
    kind = _ACTIVATIONS[b.op.option("FusedActivationFunction", 0)]
    direction = "reverse" if reverse else "forward"
    made = b.onnx(
        "LSTM", inputs, {"activations": ["Sigmoid", kind, kind], "hidden_size": cells, "direction": direction}
    )
    return b.reshaped(made, [t, n, cells])


def _float_lstm(b: TfliteBuilder, at: _Inputs, x: str, sizes: tuple[int, int, int], reverse: bool) -> str:
    """Emits a float LSTM [T, B, N]; integer weights become the floats they represent."""
    _accept(b, at, allowed=True)
    t, n, k = sizes
    cells, units = b.shape(at.weights[1])[0], b.shape(at.recurrent[1])[1]
    gates = [g for g in range(4) if b.has(at.weights[g])]  # without an input gate it is 1 - forget
    if gates not in ([0, 1, 2, 3], [1, 2, 3]):
        raise b.damaged("weights of gates are missing")
    kind = _ACTIVATIONS.get(b.op.option("FusedActivationFunction", 0))
    if kind is None:
        # With NONE LiteRT's output is the output gate times the cell gate, not times the cell state.
        raise b.refuse(f"activation {b.op.option('FusedActivationFunction', 0)}; TANH and RELU are accepted")
    plain = len(gates) == 4 and not b.has(at.projection[0]) and not b.op.option("CellClip", 0.0)
    if plain and sum(map(b.has, at.peepholes)) in (0, 3):
        return _onnx_lstm(b, at, x, sizes, reverse)
    _unrollable(b, t)

    def joined(ks: tuple[int, ...], columns: int) -> str:
        parts = [data.T for data in _real_matrices(b, ks, gates, (cells, columns))]
        return b.constant("weights", np.ascontiguousarray(np.concatenate(parts, 1)))

    bias = np.concatenate([b.const(at.biases[g], "bias").astype(np.float32).reshape(-1) for g in gates])
    if bias.size != cells * len(gates):
        raise b.damaged(f"{bias.size} biases of {len(gates)} gates of {cells}")
    recurrent = joined(at.recurrent, units)
    rows = b.onnx("Add", [b.onnx("MatMul", [x, joined(at.weights, k)]), b.constant("bias", bias)])
    state = {
        "h": b.constant("h", np.zeros((n, units), np.float32)),
        "c": b.constant("c", np.zeros((n, cells), np.float32)),
    }

    def active(name: str) -> str:
        return b.onnx(kind, [name])

    def peephole(name: str, which: int, cell: str) -> str:
        if not b.has(at.peepholes[which]):
            return name
        return b.onnx("Add", [name, b.onnx("Mul", [cell, b.real(at.peepholes[which])])])

    def clipped(name: str, accessor: str) -> str:
        limit = float(b.op.option(accessor, 0.0))
        return b.clipped(name, -limit, limit) if limit > 0 else name

    def step(row: str) -> str:
        made = _parts(b, b.onnx("Add", [row, b.onnx("MatMul", [state["h"], recurrent])]), len(gates), cells)
        forget, cell, output = made[-3:]
        forget = b.onnx("Sigmoid", [peephole(forget, 1, state["c"])])
        if len(made) == 4:
            enter = b.onnx("Sigmoid", [peephole(made[0], 0, state["c"])])
        else:
            enter = b.onnx("Sub", [b.constant("one", 1, np.float32), forget])
        kept = b.onnx("Mul", [forget, state["c"]])
        state["c"] = clipped(b.onnx("Add", [kept, b.onnx("Mul", [enter, active(cell)])]), "CellClip")
        output = b.onnx("Sigmoid", [peephole(output, 2, state["c"])])
        state["h"] = b.onnx("Mul", [output, active(state["c"])])
        if b.has(at.projection[0]):
            data = b.graph.const(b.real(at.projection[0]))
            if data is None or data.shape != (units, cells):
                raise b.damaged(f"projection weights are not of shape {[units, cells]}")
            state["h"] = b.onnx("MatMul", [state["h"], b.constant("weights", np.ascontiguousarray(data.T))])
            if b.has(at.projection[1]):
                state["h"] = b.onnx("Add", [state["h"], b.real(at.projection[1])])
            state["h"] = clipped(state["h"], "ProjClip")
        return state["h"]

    return _unrolled(b, rows, (t, n), reverse, step, [1, n, units])


def _finish(b: TfliteBuilder, made: str, time_major: bool, k: int = 0) -> None:
    """Brings [T, B, N] into the order of the file."""
    b.quantize_into(made if time_major else b.onnx("Transpose", [made], {"perm": [1, 0, 2]}), FILE, k)


@handles("UNIDIRECTIONAL_SEQUENCE_LSTM", table=PLAIN)
def float_lstm(b: TfliteBuilder, op: FileOp) -> None:
    major = bool(op.option("TimeMajor", False))
    x, sizes = _sequence(b, major)
    _finish(b, _float_lstm(b, _SINGLE, b.dequantized(x, b.source(0)), sizes, False), major)


@handles("BIDIRECTIONAL_SEQUENCE_LSTM", table=PLAIN)
def bidirectional_lstm(b: TfliteBuilder, op: FileOp) -> None:
    if any(map(b.has, range(39, 48))):
        raise b.refuse("auxiliary inputs are not supported")
    major = bool(op.option("TimeMajor", True))
    x, sizes = _sequence(b, major)
    x = b.dequantized(x, b.source(0))
    made = [_float_lstm(b, _FORWARD, x, sizes, False), _float_lstm(b, _BACKWARD, x, sizes, True)]
    if op.option("MergeOutputs", False):
        made = [b.onnx("Concat", made, {"axis": 2})]
    for k, name in enumerate(made):
        _finish(b, name, major, k)


def _scale(q: Quant | None) -> np.float32:
    assert q is not None
    return np.float32(q.scale.reshape(-1)[0])


@handles("UNIDIRECTIONAL_SEQUENCE_LSTM", table=HANDLERS)
def integer_lstm(b: TfliteBuilder, op: FileOp) -> None:
    """Imports an LSTM of 8-bit tensors and 16-bit cell: gates with 3 integer bits, states rounded away from zero."""
    at, ints = _SINGLE, Integers(b)
    _accept(b, at, allowed=False)
    qx, qc = b.byte_quant(b.source(0)), b.source(at.states[1]).quant
    if len(op.intermediates) < 5 or qc is None or b.source(at.states[1]).dtype != np.int16:
        raise b.refuse("8-bit form without a 16-bit cell state or the scale of the hidden state")
    hidden = b.model.tensors[op.intermediates[4]].quant
    cell_bits = int(np.rint(np.log2(_scale(qc))))
    if hidden is None or _scale(qc) != np.float32(2.0**cell_bits) or not -15 <= cell_bits <= -9:
        raise b.refuse(f"the cell state has scale {_scale(qc)}; powers of two from 2^-15 to 2^-9 are accepted")
    major = bool(op.option("TimeMajor", False))
    x, (t, n, k) = _sequence(b, major)
    cells = b.shape(at.weights[1])[0]
    gates = [g for g in range(4) if b.has(at.weights[g])]

    if b.target().dtype != np.int8:
        raise b.refuse(f"output of type {b.target().type_name}; int8 is accepted")

    def side(ks: tuple[int, ...], columns: int, q: Quant) -> tuple[np.ndarray, list[tuple[int, int]]]:
        """Weights [gates*N, K], and mantissa and shift of every gate's products."""
        data = np.concatenate([_matrix(b, ks[g], "weights", cells, columns) for g in gates])
        if data.dtype != np.int8:
            raise b.refuse(f"weights of type {data.dtype}; int8 is accepted")
        reals = [np.float32(_scale(b.source(ks[g]).quant) * _scale(q)) / np.float32(2.0**-12) for g in gates]
        return data, [litert_multiplier(float(real)) for real in reals]

    weights, factors = side(at.weights, k, qx)
    bias = -int(qx.zero_point) * weights.astype(np.int64).sum(1)
    given = [b.const(at.biases[g], "bias") if b.has(at.biases[g]) else np.zeros(cells, np.int32) for g in gates]
    bias += np.concatenate([part.reshape(-1) for part in given])
    mantissas, shifts = (np.repeat([f[which] for f in factors], cells) for which in (0, 1))
    sums = ints.add(ints.product(x, weights.T), bias)
    rows = ints.cast(ints.clamped(ints.scaled(sums, mantissas, shifts), -32768, 32767), np.int16)
    qh = b.byte_quant(b.source(at.states[0]))
    recurrent, factors = side(at.recurrent, cells, qh)
    h_factor = litert_multiplier(float(np.float32(2.0**-15 / float(_scale(hidden)) * 2.0**-15)))
    clip = float(op.option("CellClip", 0.0))
    bound = (min(int(np.float32(clip) / _scale(qc)), 32767) if clip > 0 else 0) or 32768
    tables = [logistic_table(), tanh_table(3), tanh_table(15 + cell_bits)]
    made = b.onnx(
        "IntegerLSTM",
        [b.reshaped(rows, [t, n, cells * len(gates)]),
         b.constant("recurrent", recurrent), *(b.constant("table", table) for table in tables)],
        {"shape": [t, n, cells], "mantissas": [m for m, _ in factors], "shifts": [s for _, s in factors],
         "state": [*h_factor, int(hidden.zero_point.reshape(-1)[0]), int(qh.zero_point)],
         "cell_bits": cell_bits, "bounds": [-bound, min(bound, 32767)]},
    )  # fmt: skip
    _finish(b, made, major)


def _svdf_sizes(b: TfliteBuilder) -> tuple[int, int]:
    """The rank and the number of units. Raises CompileError where the inputs disagree."""
    shape, rank = b.shape(0), b.op.option("Rank", 1)
    filters, columns = _matrix(b, 1, "weights", b.shape(1)[0], shape[-1]).shape if len(b.shape(1)) == 2 else (0, 0)
    if len(shape) != 2 or rank < 1 or filters < 1 or filters % rank or columns != shape[1]:
        raise b.damaged(f"input {list(shape)}, weights {list(b.shape(1))} and rank {rank}")
    if len(b.shape(2)) != 2 or b.shape(2)[0] != filters or b.shape(2)[1] < 1:
        raise b.damaged(f"weights of time have shape {list(b.shape(2))}")
    return rank, filters // rank


@handles("SVDF", table=PLAIN)
def float_svdf(b: TfliteBuilder, op: FileOp) -> None:
    """Imports SVDF in floats. The state is 0 at the start, so only the newest entry of each filter's memory counts."""
    rank, units = _svdf_sizes(b)
    n = b.shape(0)[0]
    features, times = b.graph.const(b.real(1)), b.graph.const(b.real(2))
    if features is None or times is None:
        raise b.refuse("weights must be constants")
    newest = features.astype(np.float32) * times.astype(np.float32)[:, -1:]
    made = b.onnx("MatMul", [b.real(0), b.constant("weights", newest.reshape(units, rank, -1).sum(1).T.copy())])
    if b.has(3):
        made = b.onnx("Add", [made, b.real(3)])
    b.quantize_into(b.activated(b.reshaped(made, [n, units])))


@handles("SVDF", table=HANDLERS)
def integer_svdf(b: TfliteBuilder, op: FileOp) -> None:
    """Imports SVDF of 8-bit features, with 16-bit state and weights of time."""
    ints = Integers(b)
    rank, units = _svdf_sizes(b)
    qx, qy, qs = b.byte_quant(b.source(0)), b.byte_quant(b.target()), b.source(4).quant
    data, times = b.const(1, "weights"), b.const(2, "weights of time")
    if times.dtype != np.int16 or qs is None or b.target().dtype != np.int8:
        raise b.refuse(f"weights of time of type {b.source(2).type_name}; int16 with int8 activations is accepted")
    first = litert_multiplier(float(_scale(qx) * _scale(b.source(1).quant) / _scale(qs)))
    second = litert_multiplier(float(_scale(qs) * _scale(b.source(2).quant) / _scale(qy)))
    sums = ints.sub(ints.product(b.value(0), data.T), int(qx.zero_point) * data.astype(np.int64).sum(1))
    state = ints.clamped(ints.scaled(sums, *first), -32768, 32767)
    parts = b.reshaped(ints.mul(state, times[:, -1]), [-1, units, rank])
    total = b.onnx("ReduceSum", [parts, b.constant("axes", [2], np.int64)], {"keepdims": 0})
    if b.has(3):
        total = ints.add(total, b.const(3, "bias").reshape(-1))
    ints.finish(ints.add(ints.scaled(total, *second), int(qy.zero_point)))
