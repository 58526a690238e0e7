"""Overwriting tensors while a program runs: each forced tensor is replaced as soon as a step has written it.

Which step writes a tensor is seen, not guessed. Before the run every forced buffer is filled with bytes far from the
values it will be forced to, so every correct or nearly correct byte is a change. After each step, bytes that changed
are taken down as computed and then replaced by the forced value; once nearly all have changed, the few that happen to
look like the fill are replaced too. Bytes that never change are reported as unwritten. For this a forced tensor must
have memory of its own (programs compiled with keep="all" give it).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from tilewright.errors import UsageError
from tilewright.isa.program import Buffer, Program, TensorInfo
from tilewright.runtime.layout import dtype_of

#: Exclusive-or with any of these moves a byte by at least 40 steps, so that a rounding that went the other way is never
#: taken for the fill; there are many, so that a constant tensor does not look like it either.
_MARKS = np.array([x for x in range(64, 256) if 2 * (1 << (x.bit_length() - 1)) - x >= 40], np.uint8)
#: Share of bytes that must have changed for the whole tensor to count as written.
_NEARLY_ALL = 0.9


class TensorMemory(Protocol):
    """A program in memory, whose tensors can be read and overwritten: what forcing needs of an `Executor`."""

    program: Program

    def get(self, info: TensorInfo) -> np.ndarray:
        """The value of a tensor kept in memory, as a fresh array."""
        ...

    def put(self, info: TensorInfo, value: np.ndarray) -> None:
        """Overwrites a tensor kept in memory."""
        ...


def kept_tensors(program_tensors: list[TensorInfo]) -> dict[str, TensorInfo]:
    """The tensors with a buffer, by name."""
    return {t.name: t for t in program_tensors if t.buffer}


def sharing(buffers: list[Buffer], name: str) -> str | None:
    """The name of another buffer that overlaps this one in memory, None if it is alone."""
    me = next(b for b in buffers if b.name == name)
    for b in buffers:
        if (
            b.name != name
            and b.space == me.space
            and b.offset < me.offset + me.nbytes
            and me.offset < b.offset + b.nbytes
        ):
            return b.name
    return None


class Forcing:
    """The forced tensors of one run.

    Args:
        executor: runs the program and holds its tensors.
        force: values by tensor.

    Raises:
        UsageError: a tensor is not kept, shares its memory, or its value does not fit.
    """

    def __init__(self, executor: TensorMemory, force: Mapping[str, np.ndarray]) -> None:
        self.executor = executor
        known = kept_tensors(executor.program.tensors)
        self.infos: dict[str, TensorInfo] = {}
        self.values: dict[str, np.ndarray] = {}
        self.fill: dict[str, np.ndarray] = {}
        self.touched: dict[str, np.ndarray] = {}
        self.current: dict[str, np.ndarray] = {}
        self.observed: dict[str, np.ndarray] = {}
        self.step_of: dict[str, int] = {}
        buffers: dict[str, str] = {}
        for name, value in force.items():
            info = known.get(name)
            if info is None:
                raise UsageError(f'tensor {name!r} is not kept in memory and cannot be forced; compile with keep="all"')
            value = np.ascontiguousarray(value)
            if value.dtype != dtype_of(info) or value.shape != tuple(info.shape):
                raise UsageError(
                    f"tensor {name!r} can be forced to {info.dtype}{list(info.shape)}, "
                    f"not {value.dtype}{list(value.shape)}"
                )
            other = sharing(executor.program.buffers, info.buffer)
            if other is not None:
                raise UsageError(f"tensor {name!r} shares its memory with buffer {other!r} and cannot be forced")
            if info.buffer in buffers:
                raise UsageError(
                    f"tensors {buffers[info.buffer]!r} and {name!r} are the same buffer: force one of them"
                )
            buffers[info.buffer] = name
            self.infos[name] = info
            self.values[name] = value.reshape(-1).view(np.uint8)

    def _get(self, name: str) -> np.ndarray:
        return self.executor.get(self.infos[name]).reshape(-1).view(np.uint8)

    def _put(self, name: str, data: np.ndarray) -> None:
        info = self.infos[name]
        self.executor.put(info, data.view(dtype_of(info)).reshape(info.shape))

    def prepare(self) -> None:
        """Fills every forced buffer with marked bytes, before the run."""
        random = np.random.default_rng(0)
        for name, value in self.values.items():
            self.fill[name] = value ^ random.choice(_MARKS, value.size)
            self.touched[name] = np.zeros(value.size, np.bool_)
            self.current[name] = self.fill[name]
            self._put(name, self.current[name])
            info = self.infos[name]
            self.observed[name] = self.current[name].copy().view(dtype_of(info)).reshape(info.shape)

    def after_step(self, index: int) -> None:
        """Records and overwrites the forced tensors that a step has written."""
        for name, value in self.values.items():
            found = self._get(name)
            changed = found != self.current[name]
            if not changed.any():
                continue
            self.step_of[name] = index
            self.observed[name].reshape(-1).view(np.uint8)[changed] = found[changed]
            touched = self.touched[name]
            touched |= changed
            whole = np.count_nonzero(touched) >= _NEARLY_ALL * touched.size
            self.current[name] = value.copy() if whole else np.where(changed, value, found)
            self._put(name, self.current[name])

    def unwritten(self) -> dict[str, int]:
        """Bytes of each forced tensor that no step changed."""
        return {name: int(np.count_nonzero(~touched)) for name, touched in self.touched.items()}
