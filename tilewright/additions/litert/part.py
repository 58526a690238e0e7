"""A part of LiteRT's graph that runs on our side: compiled for the shapes it meets, and run."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.compiler.importer.tflite.part import Shapes, Survey, import_part, survey
from tilewright.compiler.importer.tflite.schema import FileModel, read
from tilewright.compiler.options import CompileOptions
from tilewright.dynamic.programs import PartPrograms
from tilewright.errors import UsageError
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import Program
from tilewright.runtime.devices import Runner
from tilewright.runtime.layout import dtype_of

KEPT_MODELS = 16
LOCK = threading.RLock()
"""Held while a model is read or compiled: LiteRT may build interpreters in several threads."""


@dataclass(frozen=True)
class Target:
    """The machine and the options that parts are compiled for.

    Attributes:
        cache: keep programs on disk.
        everything: also parts without work for the NPU.
    """

    config: NpuConfig
    options: CompileOptions
    cache: bool
    everything: bool = False

    @property
    def programs(self) -> PartPrograms:
        """The programs compiled for it in this process."""
        return _programs(self)


@functools.cache
def _programs(target: Target) -> PartPrograms:
    return PartPrograms("part", {}, target.config, target.options, target.cache)


class Source:
    """A model that LiteRT has loaded; equal files are read once.

    Attributes:
        digest: of its bytes.
        model: as the file has it.
    """

    def __init__(self, digest: str, model: FileModel) -> None:
        self.digest, self.model = digest, model
        self._surveys: dict[tuple[tuple[int, ...], ...], Survey] = {}

    @staticmethod
    def of(data: bytes) -> Source:
        """Raises `CompileError`: damaged, or nothing that can be taken."""
        with LOCK:
            return _source(data)

    def survey(self, shapes: Shapes) -> Survey:
        """The model as far as it can be imported, for these shapes of its inputs. Raises `CompileError`."""
        key = tuple(tuple(shapes[i]) for i in self.model.inputs)
        with LOCK:
            if key not in self._surveys:
                changed = {i: tuple(shapes[i]) for i in self.model.inputs if shapes[i] != self.model.tensors[i].shape}
                while len(self._surveys) >= KEPT_MODELS:
                    self._surveys.pop(next(iter(self._surveys)))
                self._surveys[key] = survey(self.model, changed)
            return self._surveys[key]


def _source(data: bytes) -> Source:
    digest = hashlib.sha256(data).hexdigest()
    found = _sources.pop(digest, None) or Source(digest, read(data))
    _sources[digest] = found
    while len(_sources) > KEPT_MODELS:
        _sources.pop(next(iter(_sources)))
    return found


_sources: dict[str, Source] = {}


@dataclass(frozen=True)
class Piece:
    """A part of a model, compiled by itself.

    Attributes:
        ops: indices of operators, in the file's order.
        inputs: tensors made outside and not known before the model runs.
        outputs: tensors that others read.
    """

    source: Source
    target: Target
    ops: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    @staticmethod
    def of(source: Source, target: Target, found: Survey, ops: Sequence[int], outputs: Sequence[int] | None) -> Piece:
        """Makes the piece of these operators.

        Args:
            outputs: that LiteRT wants; None for those that others read.
        """
        model, inside = source.model, set(ops)
        made = {i for op in model.ops if op.index in inside for i in op.outputs}
        read: dict[int, None] = {}
        elsewhere = set(model.outputs)
        for op in model.ops:
            if op.index in inside:
                read |= dict.fromkeys(op.inputs)
            else:
                elsewhere |= set(op.inputs)
        known = found.known.keys()
        inputs = [i for i in read if i >= 0 and i not in made and i not in known and model.tensors[i].data is None]
        wanted = outputs if outputs is not None else sorted(made & elsewhere)
        return Piece(source, target, tuple(sorted(inside)), tuple(inputs), tuple(wanted))

    def program(self, shapes: Shapes) -> Program:
        """Compiles the piece for these shapes of the model's inputs and its own. Raises `CompileError`."""
        model = self.source.model
        given = tuple((i, tuple(shapes[i])) for i in sorted({*model.inputs, *self.inputs}))
        key = (self.source.digest, self.ops, self.inputs, self.outputs, given)
        with LOCK:
            found = self.source.survey(shapes)
            made = {i for op in model.ops if op.index in set(self.ops) for i in op.outputs}
            known = {i: value for i, value in found.known.items() if i not in made}
            return self.target.programs.program(
                key, lambda: import_part(model, self.ops, self.inputs, self.outputs, shapes, known)
            )


class Part:
    """A piece in an interpreter, with the program for the shapes it has there.

    Args:
        piece: what it computes.
        runner: of its delegate, with the lock that keeps it to one thread at a time.
        places: where the piece's inputs are among the tensors LiteRT hands over; outputs come last, in order.
    """

    def __init__(self, piece: Piece, runner: Runner, lock: threading.Lock, places: Sequence[int]) -> None:
        self.piece, self.runner, self.lock, self.places = piece, runner, lock, places
        self.program: Program | None = None

    def shape(self, shapes: Shapes) -> list[tuple[int, ...]]:
        """Compiles the piece for these shapes; returns the shapes of its outputs. Raises `CompileError`."""
        self.program = self.piece.program(shapes)
        return [info.shape for info in self.program.outputs]

    def run(self, addresses: Sequence[int], sizes: Sequence[int]) -> None:
        """Computes the outputs from the inputs, which lie in LiteRT's memory.

        Raises:
            UsageError: sizes that are not those it was compiled for. TilewrightError, DeviceError: as `Runner.run`.
        """
        program = self.program
        if program is None:
            raise UsageError("a part runs before its shapes are known")
        first = len(addresses) - len(program.outputs)
        places = [*self.places, *range(first, len(addresses))]
        tensors = [*program.inputs, *program.outputs]
        views = []
        for place, info in zip(places, tensors):
            dtype = dtype_of(info)
            count = int(np.prod(info.shape, dtype=np.int64))
            if not addresses[place] or sizes[place] != count * dtype.itemsize:
                raise UsageError(
                    f"{info.name!r} has {sizes[place]} bytes, {count * dtype.itemsize} were expected; call "
                    "allocate_tensors() after resizing an input"
                )
            memory = (ctypes.c_uint8 * sizes[place]).from_address(addresses[place])
            views.append(np.frombuffer(memory, dtype).reshape(info.shape))
        inputs = {info.name: view for info, view in zip(program.inputs, views)}
        with self.lock:
            found = self.runner.run(program, inputs)
        for info, view in zip(program.outputs, views[len(program.inputs) :]):
            view[...] = found[info.name]
