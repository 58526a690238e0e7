"""`Binding`: addresses that the runs of a program need, looked up once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.isa.program import CpuStep, Program, TensorInfo
from tilewright.runtime.layout import dtype_of, nbytes_of


class Binding:
    """A program's CPU steps and tensors in memory that this process shares with the device.

    Args:
        steps: the CPU steps.
        infos: inputs, outputs and states.
        memory_of: from the name of a buffer to its bytes, None where they are behind a link.
        kernels: the loaded kernels by section and symbol.
        workspace: of the kernels, uint8.
    """

    def __init__(
        self,
        steps: Sequence[CpuStep],
        infos: Sequence[TensorInfo],
        memory_of: Callable[[str], np.ndarray | None],
        kernels: Mapping[tuple[str, str], Callable[..., None]],
        workspace: np.ndarray,
    ) -> None:
        self._calls: dict[int, Callable[[], None]] = {}
        self._views: dict[int, np.ndarray] = {}
        self._kept = [*steps, *infos]  # so that no other object gets one of their ids
        for step in steps:
            memories = [memory_of(name) for name in step.buffers]
            if all(memory is not None for memory in memories):
                addresses = [memory.ctypes.data for memory in memories if memory is not None]
                room = workspace.ctypes.data if step.workspace else None
                self._calls[id(step)] = bound(kernels[step.section, step.symbol], addresses, room)
        for info in infos:
            memory = memory_of(info.buffer) if info.buffer and info.relayout is None else None
            if memory is not None:
                flat = memory[: nbytes_of(info)].view(dtype_of(info))
                self._views[id(info)] = flat.reshape(tuple(info.shape))

    def call(self, step: CpuStep) -> Callable[[], None] | None:
        """Runs a step's kernels on what the memory holds; None where a buffer is behind a link."""
        return self._calls.get(id(step))

    def view(self, info: TensorInfo) -> np.ndarray | None:
        """The tensor itself, as it lies in memory; None where it is behind a link or in blocks of channels."""
        return self._views.get(id(info))


def bound(kernel: Callable[..., None], addresses: Sequence[int], workspace: int | None) -> Callable[[], None]:
    """A call of a kernel with these addresses."""
    bind = getattr(kernel, "bound", None)
    if bind is not None:
        found: Callable[[], None] = bind(addresses, workspace)
        return found
    return functools.partial(kernel, list(addresses), workspace)


class ExpectedInputs:
    """Tells, quickly, inputs that need no check: exactly the arrays that a program declares.

    Args:
        program: with the inputs and the limits of their values.
    """

    def __init__(self, program: Program) -> None:
        self._inputs = [(t.name, dtype_of(t), tuple(t.shape)) for t in program.inputs]
        self._plain = not program.rising and not any(
            dtype.kind in "iu" and program.input_ranges.get(name) is not None for name, dtype, _ in self._inputs
        )

    def fit(self, inputs: Mapping[str, Any] | np.ndarray) -> bool:
        """Whether each is a numpy array of its type and shape, without others, and none has limits or must rise."""
        if not self._plain or type(inputs) is not dict or len(inputs) != len(self._inputs):
            return False
        for name, dtype, shape in self._inputs:
            value = inputs.get(name)
            if type(value) is not np.ndarray or value.shape != shape or value.dtype != dtype:
                return False
        return True
