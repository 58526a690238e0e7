"""Ops of training: Dropout and batch normalisation in training mode, optimiser steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.compiler.errors import CompileError, UnsupportedError
from tilewright.compiler.graph.graph import Tensor
from tilewright.compiler.importer.onnx.builder import OnnxBuilder
from tilewright.compiler.importer.onnx.handlers import handles
from tilewright.compiler.importer.onnx.onnx_node import OnnxNode
from tilewright.compiler.importer.onnx.random import generator
from tilewright.compiler.onnx.onnx_ops import elem_type

TRAINING = "ai.onnx.preview.training"


@handles("Dropout")
def dropout(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Imports Dropout. Inference: the identity and ones as mask. Training: a mask drawn at compile time."""
    x = builder.tensor(node.input(0))
    mode = builder.need_const(node.input(2), "training_mode") if node.input(2) else np.False_
    ratio = 0.0
    if np.any(mode):
        ratio = float(builder.need_const(node.input(1), "ratio").reshape(-1)[0]) if node.input(1) else 0.5
        if not 0 <= ratio < 1:
            raise CompileError(f"{node.label}: ratio={ratio:g} must be at least 0 and less than 1")
    mask = np.ones(x.shape, np.bool_)
    if ratio:
        mask = generator(node).uniform(0, 1, x.shape) >= ratio
        kept = builder.constant("mask", mask / (1.0 - ratio), x.dtype)
        builder.emit("Mul", [node.input(0), kept], [node.output(0)])
    else:
        builder.emit("Identity", [node.input(0)], [node.output(0)])
    if node.output(1):
        # Until opset 10 the mask has the type of the data.
        mask = mask.astype(np.bool_ if node.version >= 10 else x.dtype)
        builder.graph.add(Tensor(node.output(1), mask.shape, mask.dtype, mask))


@handles("BatchNormalization")
def batch_normalization(builder: OnnxBuilder, node: OnnxNode) -> None:
    """Imports batch normalisation in training mode, named by an attribute since opset 14 and by the number of outputs
    before. It gives Y and the statistics of this batch mixed into the running ones, and until opset 13 also those of
    the batch alone.
    """
    if node.version < 9:
        node.accept("spatial", 1)
    epsilon, momentum = node.attrs.get("epsilon", 1e-5), float(node.attrs.get("momentum", 0.9))
    attrs = {"epsilon": epsilon, "momentum": None, "training_mode": 0}
    training = node.attrs.get("training_mode", 0) if node.version >= 14 else any(node.outputs[1:])
    if not training:
        builder.emit("BatchNormalization", node.inputs, [node.output(0)], attrs)
        return
    x, scale, bias, mean, variance = node.inputs
    rank = len(builder.shape(x))
    axes = builder.ints("axes", [0, *range(2, rank)])
    wide = builder.emit("ReduceMean", [x, axes], attrs={"keepdims": 1})
    difference = builder.emit("Sub", [x, wide])
    square = builder.emit("Mul", [difference, difference])
    dtype, spread = builder.tensor(mean).dtype, builder.emit("ReduceMean", [square, axes], attrs={"keepdims": 1})
    batch = [_cast(builder, builder.reshaped(v, [builder.shape(x)[1]]), dtype) for v in (wide, spread)]
    builder.emit("BatchNormalization", [x, scale, bias, *batch], [node.output(0)], attrs)
    for old, new, name in zip((mean, variance), batch, node.outputs[1:3]):
        if name:
            f = Arithmetic(builder, dtype)
            mixed = f.add(f.mul(old, momentum), f.mul(new, 1 - momentum))
            builder.emit("Identity", [mixed], [name])
    for new, name in zip(batch, node.outputs[3:5]):
        if name:
            builder.emit("Identity", [new], [name])


def _cast(builder: OnnxBuilder, name: str, dtype: np.dtype) -> str:
    return name if builder.tensor(name).dtype == dtype else builder.emit("Cast", [name], attrs={"to": elem_type(dtype)})


class Arithmetic:
    """A writer of formulas over tensors of one type; numbers become constants."""

    def __init__(self, builder: OnnxBuilder, dtype: np.dtype) -> None:
        self.builder, self.dtype = builder, dtype

    def _operand(self, value: str | float) -> str:
        return value if isinstance(value, str) else self.builder.constant("number", value, self.dtype)

    def _emit(self, op: str, *operands: str | float) -> str:
        return self.builder.emit(op, [self._operand(v) for v in operands])

    def add(self, a: str | float, b: str | float) -> str:
        return self._emit("Add", a, b)

    def sub(self, a: str | float, b: str | float) -> str:
        return self._emit("Sub", a, b)

    def mul(self, a: str | float, b: str | float) -> str:
        return self._emit("Mul", a, b)

    def div(self, a: str | float, b: str | float) -> str:
        return self._emit("Div", a, b)

    def power(self, a: str | float, b: str | float) -> str:
        return self._emit("Pow", a, b)

    def root(self, a: str) -> str:
        return self._emit("Sqrt", a)

    def where(self, condition: str, a: str | float, b: str | float) -> str:
        return self.builder.emit("Where", [condition, self._operand(a), self._operand(b)])


def _groups(node: OnnxNode, count: int) -> list[Sequence[str]]:
    """Groups the inputs behind rate and step count, `count` lists of equal length, into one tuple per parameter."""
    rest = node.inputs[2:]
    if not rest or len(rest) % count:
        raise CompileError(f"{node.label}: {len(node.inputs)} inputs; 2 and {count} per parameter are expected")
    n = len(rest) // count
    return [tuple(rest[i::n]) for i in range(n)]


def _setup(builder: OnnxBuilder, node: OnnxNode, x: str) -> tuple[Arithmetic, str, str, str]:
    """Returns a writer of formulas in the type of x; the rate and the step count in that type; and a condition that
    steps went before.
    """
    dtype = builder.tensor(x).dtype
    later = builder.emit("Greater", [node.input(1), builder.constant("zero", 0, builder.tensor(node.input(1)).dtype)])
    return Arithmetic(builder, dtype), _cast(builder, node.input(0), dtype), _cast(builder, node.input(1), dtype), later


def _finish(builder: OnnxBuilder, node: OnnxNode, results: list[list[str]]) -> None:
    """Names the outputs: the first result of every parameter, then the second of every parameter, and so on."""
    flat = [result[k] for k in range(len(results[0])) for result in results]
    for value, name in zip(flat, node.outputs):
        if name:
            builder.emit("Identity", [value], [name])


@handles("Adagrad", domain=TRAINING)
def adagrad(builder: OnnxBuilder, node: OnnxNode) -> None:
    a = node.attrs
    results = []
    for x, g, h in _groups(node, 3):
        f, rate, step, _ = _setup(builder, node, x)
        rate = f.div(rate, f.add(f.mul(step, a.get("decay_factor", 0.0)), 1.0))
        g = f.add(f.mul(x, a.get("norm_coefficient", 0.0)), g)
        h = f.add(h, f.mul(g, g))
        x = f.sub(x, f.div(f.mul(rate, g), f.add(f.root(h), a.get("epsilon", 1e-6))))
        results.append([x, h])
    _finish(builder, node, results)


@handles("Adam", domain=TRAINING)
def adam(builder: OnnxBuilder, node: OnnxNode) -> None:
    a = node.attrs
    alpha, beta = a.get("alpha", 0.9), a.get("beta", 0.999)
    results = []
    for x, g, v, h in _groups(node, 4):
        f, rate, step, later = _setup(builder, node, x)
        g = f.add(f.mul(x, a.get("norm_coefficient", 0.0)), g)
        v = f.add(f.mul(v, alpha), f.mul(g, 1 - alpha))
        h = f.add(f.mul(h, beta), f.mul(f.mul(g, g), 1 - beta))
        corrected = f.div(f.mul(rate, f.root(f.sub(1.0, f.power(beta, step)))), f.sub(1.0, f.power(alpha, step)))
        rate = f.where(later, corrected, rate)
        x = f.sub(x, f.mul(rate, f.div(v, f.add(f.root(h), a.get("epsilon", 1e-6)))))
        results.append([f.mul(x, 1 - a.get("norm_coefficient_post", 0.0)), v, h])
    _finish(builder, node, results)


@handles("Momentum", domain=TRAINING)
def momentum(builder: OnnxBuilder, node: OnnxNode) -> None:
    a = node.attrs
    mode = a.get("mode", "standard")
    if mode not in ("standard", "nesterov"):
        raise UnsupportedError(f"{node.label}: mode={mode!r} is not supported; accepted: 'standard', 'nesterov'")
    alpha, beta = float(a["alpha"]), float(a["beta"])
    results = []
    for x, g, v in _groups(node, 3):
        f, rate, _, later = _setup(builder, node, x)
        g = f.add(f.mul(x, a.get("norm_coefficient", 0.0)), g)
        v = f.add(f.mul(v, alpha), f.mul(g, f.where(later, beta, 1.0)))
        direction = f.add(g, f.mul(v, alpha)) if mode == "nesterov" else v
        results.append([f.sub(x, f.mul(rate, direction)), v])
    _finish(builder, node, results)
