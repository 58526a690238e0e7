"""Checks of what a user feeds into a program, and seeded random inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.errors import InputError
from tilewright.isa.program import Program, TensorInfo
from tilewright.runtime.layout import dtype_of

#: Random integers wider than a byte, if nothing is known of them, stay below this: they often are indices.
INDEX_LIMIT = 10


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def check_inputs(program: Program, inputs: Mapping[str, Any] | np.ndarray) -> dict[str, np.ndarray]:
    """The inputs as contiguous arrays in the program's order; a bare array will do where there is one input.

    Raises:
        InputError: listing every name, shape and type that does not fit, and a value of each input outside its range.
    """
    expected = {t.name: t for t in program.inputs}
    if isinstance(inputs, np.ndarray):
        if len(expected) != 1:
            raise InputError(f"{program.name} has {len(expected)} inputs ({_names(expected)}): give a dict of them")
        inputs = {next(iter(expected)): inputs}
    if not isinstance(inputs, Mapping):
        raise InputError(f"inputs must be a dict of name -> array, not {type(inputs).__name__}")
    problems = [f"unknown input {name!r}" for name in inputs if name not in expected]
    problems += [f"missing input {_describe(t)}" for name, t in expected.items() if name not in inputs]
    arrays = {}
    for name, info in expected.items():
        if name not in inputs:
            continue
        try:
            array = np.asarray(inputs[name])
        except ValueError as error:
            problems.append(f"input {name!r} is no array: {error}")
            continue
        array = as_declared(array, tuple(info.shape))
        problem = misfit(info, array.dtype, array.shape)
        if problem:
            problems.append(problem)
            continue
        arrays[name] = array if array.flags.c_contiguous else array.copy()
        problems += _outside(name, array, program.input_ranges.get(name)) or _falls(program, name, array)
    if problems:
        known = f" (inputs: {', '.join(_describe(t) for t in program.inputs)})" if "unknown" in problems[0] else ""
        raise InputError(f"{program.name}: {'; '.join(problems)}{known}")
    return arrays


def as_declared(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Reshapes an array of one value to the input's shape, where one of the two is a scalar and the other has one axis.
    onnxruntime takes any single value for a scalar."""
    one = array.size == 1 and math.prod(shape) == 1
    return array.reshape(shape) if one and (not shape or (array.ndim == 0 and len(shape) == 1)) else array


def misfit(info: TensorInfo, dtype: np.dtype, shape: tuple[int, ...], what: str = "") -> str:
    """Why an array cannot be an input (or `what` it is to be), "" if it can."""
    what = what or f"input {info.name!r}"
    if dtype != dtype_of(info):
        return f"{what} must be {info.dtype}, not {dtype}"
    if shape != tuple(info.shape):
        return f"{what} must have shape {_text(tuple(info.shape))}, not {_text(shape)}"
    return ""


def _outside(name: str, array: np.ndarray, limits: tuple[float, float] | None) -> list[str]:
    """An error for the first index outside its limits; floats saturate and have none."""
    if limits is None or array.dtype.kind not in "iu":
        return []
    wrong = np.argwhere((array < limits[0]) | (array > limits[1]))
    if not len(wrong):
        return []
    at = tuple(int(i) for i in wrong[0])
    more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    where = f" (at {list(at)}{more})" if at else ""
    return [f"input {name!r} must be within {limits[0]:.0f}..{limits[1]:.0f}, not {array[at]}{where}"]


def _falls(program: Program, name: str, array: np.ndarray) -> list[str]:
    """An error for values that are not those of rows next to each other, where they have to be."""
    if name not in program.rising or array.size < 2:
        return []
    values = array.reshape(-1).astype(np.int64)
    wrong = np.flatnonzero(np.diff(values) != 1)
    if len(wrong):
        at = int(wrong[0])
        return [f"input {name!r} must rise by one, as it was compiled, not from {values[at]} to {values[at + 1]}"]
    rows = min((w.period for w in program.windows if w.tensor == name and w.space == "arena"), default=None)
    if rows is not None and values[0] % rows + len(values) > rows:
        return [f"input {name!r} goes round the {rows} rows of a state: {values[0]}..{values[-1]}; split it there"]
    return []


def _describe(info: TensorInfo) -> str:
    return f"{info.name!r} {info.dtype} {_text(tuple(info.shape))}"


def _names(infos: Mapping[str, TensorInfo]) -> str:
    return ", ".join(map(repr, infos))


def input_range(program: Program, name: str) -> tuple[float, float] | None:
    """The real values that the input's quantisation can represent, or the limits of indices along an axis; None where
    neither is known."""
    info = next(t for t in program.inputs if t.name == name)
    found = program.input_ranges.get(name)
    if found is not None:
        return found
    if isinstance(info.scale, float | int) and isinstance(info.zero_point, int) and info.dtype in ("int8", "uint8"):
        limits = np.iinfo(info.dtype)
        low, high = sorted(info.scale * (int(limit) - info.zero_point) for limit in (limits.min, limits.max))
        return low, high
    return None


def random_inputs(program: Program, seed: int = 0) -> dict[str, np.ndarray]:
    """Seeded inputs: floats uniform over the range the input's quantisation represents, standard normal where there is
    none; places uniform over those there are, from 0 on where they must rise; other bytes over all values, other
    integers over 0..9, booleans fair."""
    random = np.random.default_rng(seed)
    found = {info.name: random_input(info, input_range(program, info.name), random) for info in program.inputs}
    for name, x in found.items():
        if name in program.rising:
            found[name] = np.arange(x.size, dtype=x.dtype).reshape(x.shape)
    return found


def random_input(info: TensorInfo, limits: tuple[float, float] | None, random: np.random.Generator) -> np.ndarray:
    """A random array for one input, floats within `limits` if there are any."""
    dtype, shape = dtype_of(info), tuple(info.shape)
    if dtype == np.bool_:
        return random.integers(0, 2, shape).astype(np.bool_)
    if np.issubdtype(dtype, np.integer):
        if limits is not None and info.scale is None:
            return random.integers(max(0, int(limits[0])), int(limits[1]), shape, np.int64, endpoint=True).astype(dtype)
        if dtype.itemsize == 1:
            return random.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)
        return random.integers(0, INDEX_LIMIT, shape).astype(dtype)
    if limits is not None:
        most = float(np.finfo(np.float32).max)
        return np.clip(random.uniform(*limits, shape), -most, most).astype(dtype)
    return random.standard_normal(shape, np.float32).astype(dtype)
