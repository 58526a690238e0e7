"""Limits of a model: beyond them the compiler refuses it with the node, the value and what is accepted.

A model of a few hundred bytes can name a window of 2^24 positions, or functions that each call the one before twice.
No network that is used comes near these limits; within them compiling ends, and takes memory that machines have.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tilewright.compiler.errors import CompileError

#: Elements of a tensor that is computed or given. Program files address 4 GiB of memory.
MAX_ELEMENTS = 1 << 30
#: Elements of a tensor the NPU computes; larger ones are left to the CPU, whose kernels do not grow with them.
MAX_NPU_ELEMENTS = 1 << 27
#: Nodes of a model once functions, loops and branches are written out.
MAX_NODES = 50_000
#: Inputs or outputs of a node; a loop that is written out stacks as many results as it has steps.
MAX_OPERANDS = 20_000
#: Positions of a window: the product of its sizes.
MAX_WINDOW = 1 << 22
#: Most positions of a MaxPool with indices, whose kernel has each position written out.
MAX_INDEXED = 1 << 10
#: Rows or columns of a kernel that the NPU walks; longer ones are left to the CPU.
MAX_KERNEL = 63
#: The largest stride or dilation, and padding, of a window that the NPU walks.
MAX_NPU_STEP, MAX_NPU_PAD = 64, 255
#: A stride, dilation or padding.
MAX_STEP = 1 << 24
#: Elements of a constant the compiler makes, such as the result of a Range.
MAX_CONSTANT = 1 << 24
#: Positions along an axis that is resampled, or pooled with averages: kernels hold a table of them.
MAX_POSITIONS = 1 << 16
#: Most elements of an axis that is padded with values of the tensor, such as its mirror image.
MAX_PADDED = 1 << 22

#: Scales of activations, from its inverse: products and ratios of three stay normal float32 numbers.
MAX_SCALE = 2.0**40

#: A number of an axis, from either end: onnx drops the upper half of larger ones.
MAX_AXIS = 1 << 20

_AXES = ("axis", "axes", "perm", "batch_axis", "time_axis", "batch_dims")
_STEPS = ("strides", "dilations", "pads", "output_padding")
_TABLED = ("Resize", "AveragePool")


def check_shape(what: str, name: str, shape: Iterable[int]) -> None:
    """Raises `CompileError` for a tensor of more than MAX_ELEMENTS."""
    sizes = [int(n) for n in shape]
    if math.prod(sizes) > MAX_ELEMENTS:
        raise CompileError(
            f"{what}: {name!r} would have shape {sizes}: {math.prod(sizes)} elements, too large; "
            f"up to {MAX_ELEMENTS} are accepted"
        )


def check_attributes(what: str, attributes: Mapping[str, Any]) -> None:
    """Raises `CompileError` for a window, a step or an axis that no tensor of MAX_ELEMENTS has."""
    kernel = attributes.get("kernel_shape")
    if isinstance(kernel, Sequence) and math.prod(max(int(k), 0) for k in kernel) > MAX_WINDOW:
        raise CompileError(
            f"{what}: kernel_shape={[int(k) for k in kernel]} has {math.prod(int(k) for k in kernel)} positions; "
            f"up to {MAX_WINDOW} are accepted"
        )
    for names, most in ((_STEPS, MAX_STEP), (_AXES, MAX_AXIS)):
        for name in names:
            values = attributes.get(name)
            for value in [values] if isinstance(values, int) else values if isinstance(values, list | tuple) else ():
                if not -most <= int(value) <= most:
                    raise CompileError(f"{what}: {name} has {int(value)}; up to {most} is accepted")


def check_indexed(what: str, kernel: Sequence[int]) -> None:
    """Raises `CompileError` for a pool with indices of the maxima over too many positions."""
    if math.prod(int(k) for k in kernel) > MAX_INDEXED:
        raise CompileError(
            f"{what}: kernel_shape={list(kernel)} with indices; up to {MAX_INDEXED} positions are accepted"
        )


def check_positions(what: str, op: str, shape: Sequence[int]) -> None:
    """Raises `CompileError` for the result of an op whose kernel has a table of positions, where that is too long."""
    long = [int(n) for n in shape[2:] if n > MAX_POSITIONS]
    if op in _TABLED and long:
        raise CompileError(f"{what}: {long[0]} positions along an axis; {op} accepts up to {MAX_POSITIONS}")


def check_padded(what: str, mode: str, positions: int) -> None:
    """Raises `CompileError` for an axis padded with values of the tensor, where its table is too long."""
    if positions > MAX_PADDED:
        raise CompileError(f"{what}: {positions} positions along an axis; mode {mode!r} accepts up to {MAX_PADDED}")


def check_operands(what: str, count: int) -> None:
    """Raises `CompileError` for a node with more inputs or outputs than MAX_OPERANDS."""
    if count > MAX_OPERANDS:
        raise CompileError(f"{what}: {count} inputs or outputs; up to {MAX_OPERANDS} are accepted")


def check_nodes(what: str, count: int) -> None:
    """Raises `CompileError` for a graph of more than MAX_NODES."""
    if count > MAX_NODES:
        raise CompileError(
            f"{what}: the model has more than {MAX_NODES} nodes once functions, loops and branches are written out"
        )
