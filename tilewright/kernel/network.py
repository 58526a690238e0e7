"""Kernels inside networks: a layer of the compiler that a kernel emits, and the facts of the one before."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tilewright.compiler.errors import CompileError
from tilewright.compiler.graph.ops.kernel import QKernel
from tilewright.compiler.npu.emit.context import ConstantPool, Context
from tilewright.compiler.npu.emit.emitter import Emitter
from tilewright.compiler.npu.emit.geometry import Border
from tilewright.compiler.npu.emit.plan import Pools, TilePlan
from tilewright.compiler.npu.emit.scratch import ScratchpadFull
from tilewright.compiler.npu.layers.conv import ConvLayer
from tilewright.compiler.npu.layers.depthwise import DepthwiseLayer
from tilewright.compiler.npu.layers.elementwise import ElementLayer
from tilewright.compiler.npu.layers.layer import Layer, Post
from tilewright.compiler.npu.layers.pooling import MaxPoolLayer
from tilewright.compiler.npu.layers.products import Products
from tilewright.compiler.npu.layers.tiling import OutputPart
from tilewright.compiler.npu.views import View
from tilewright.isa.instructions import Rounding
from tilewright.kernel.chip import Chip
from tilewright.kernel.constants import Addend
from tilewright.kernel.errors import KernelError, Line
from tilewright.kernel.places import Tensor, Tile
from tilewright.kernel.trace import Function, require_outputs

_ROUNDINGS = {Rounding.EVEN: "even", Rounding.EVEN_ZERO_POINT_INSIDE: "inside", Rounding.HALF_AWAY: "away"}
Pair = tuple[int, int]


@dataclass(frozen=True)
class LayerFacts:
    """A layer of a network, for a kernel that may take its place.

    Attributes:
        name, op: node of the model and its quantised op, several joined by " + " where they are fused.
        kind: "conv" (also matrix products), "depthwise", "max_pool", "copy", "add" or "mul".
        shapes: shapes of the kernel's inputs, [N, C, H, W]; a fused Add's operand is the last one. Where all tensors
            are planes of one row, and there is no window, they are [rows, channels].
        output: shape of the result.
        weights: int8 [outputs, inputs], [outputs, inputs, rows, columns] or, depthwise, [channels, rows, columns]; None
            where there are none.
        bias, scale: of the requantiser.
        size, stride, pad, dilation: (rows, columns) of the window; `pad` is that before the first row and column.
        fill: value of padding.
        post: `zero_point`, `low`, `high` and `rounding` of the requantiser, by the names of `Chip.requantise`.
        table: int8 results for -128..127 of a table behind all; None for none.
        add: fields of `Addend` of a fused Add, and of "add"; None for none.
        za, zb: zero points of the factors of "mul".
    """

    name: str
    op: str
    kind: str
    shapes: list[tuple[int, ...]]
    output: tuple[int, ...]
    weights: np.ndarray | None = None
    bias: Any = 0
    scale: Any = 1.0
    size: Pair = (1, 1)
    stride: Pair = (1, 1)
    pad: Pair = (0, 0)
    dilation: Pair = (1, 1)
    fill: int = 0
    post: dict[str, Any] = field(default_factory=dict)
    table: np.ndarray | None = None
    add: dict[str, int] | None = None
    za: int = 0
    zb: int = 0

    def addend(self, other: Tile) -> Addend:
        """Returns the fused Add of another operand. Raises `KernelError` where there is none."""
        if self.add is None:
            raise KernelError(f"{self.name} has no Add")
        return Addend(other, **self.add)

    @staticmethod
    def of(layer: Layer) -> LayerFacts | None:
        """Returns the facts of a layer; None for kinds, and forms of them, that kernels cannot take the place of."""
        if any(view.bytes > 1 for view in (*layer.reads, layer.output)):
            return None
        found = _of_kind(layer)
        if found is None:
            return None
        post = layer.post
        own = {"zero_point": post.zp, "low": post.low, "high": post.high, "rounding": _ROUNDINGS[post.rounding]}
        table = None if post.lut is None else np.roll(np.frombuffer(post.lut, np.int8), 128)
        add = None
        if post.add is not None:
            add = {**post.add.constants, "low": post.add.low, "high": post.add.high}
        shapes, output = shapes_of(layer)
        return LayerFacts(
            layer.name, layer.op, shapes=shapes, output=output, post=own, table=table, add=add, za=post.za,
            zb=post.zb, **found,
        )  # fmt: skip


def _of_kind(layer: Layer) -> dict[str, Any] | None:
    """Returns the facts that a kind of layers has, None for a kind without."""
    if isinstance(layer, ConvLayer):
        phase = layer.phases[0]
        plain = len(layer.phases) == 1 and layer.group == 1 and layer.dynamic is None and phase.rest is None
        if not plain or len(phase.weights) > 1:
            return None
        weights = phase.weights[0]
        if weights.shape[2:] == (1, 1):
            weights = weights[:, :, 0, 0]
        window = {"size": phase.kernel, "stride": phase.stride, "pad": phase.pad, "dilation": phase.dilation}
        constants = {"weights": weights, "bias": layer.bias.reshape(-1), "scale": layer.scale.reshape(-1)}
        return {"kind": "conv", "fill": layer.fill, **constants, **window}
    if isinstance(layer, DepthwiseLayer):
        if layer.rest is not None:
            return None
        window = {"size": layer.window.kernel, "stride": layer.stride, "pad": layer.pad, "dilation": layer.dilation}
        constants = {"weights": layer.weights, "bias": layer.bias, "scale": layer.scale}
        return {"kind": "depthwise", "fill": layer.fill, **constants, **window}
    if isinstance(layer, MaxPoolLayer):
        window = {"size": layer.kernel, "stride": layer.stride, "pad": layer.pad, "dilation": layer.dilation}
        return {"kind": "max_pool", "fill": -128, **window}
    if type(layer) is ElementLayer:
        return {"kind": layer.kind, "scale": layer.scale}
    return None


def shapes_of(layer: Layer) -> tuple[list[tuple[int, ...]], tuple[int, ...]]:
    """Returns the shapes of the tensors that a layer reads and of its result, as kernels have them.

    They are matrices where all of them are planes of one row, and no window moves along it.
    """
    views, found = [*layer.reads, layer.output], _of_kind(layer) or {}
    moves = (found.get("size", (1, 1)), found.get("stride", (1, 1)), found.get("pad", (0, 0)))
    matrices = moves == ((1, 1), (1, 1), (0, 0)) and all(view.n == 1 and view.h == 1 for view in views)
    shapes: list[tuple[int, ...]] = [(v.w, v.c) if matrices else (v.n, v.c, v.h, v.w) for v in views]
    return shapes[:-1], shapes[-1]


class KernelTiling(NamedTuple):
    """The tiling of a kernel, which chooses its tiles itself; `rows` are the most of ACT that are alive at once."""

    rows: int

    def __str__(self) -> str:
        return f"{self.rows} rows of ACT"


@dataclass
class KernelLayer(Layer):
    """A layer whose tile program a kernel writes.

    Attributes:
        function: the kernel's function.
        constants_: its arguments by keyword.
        shapes: shapes of the tensors that it reads, as kernels have them, and behind them that of the result.
        before: the layer in whose place it is; None for a node of the model that only a kernel runs.
        digest: digest of the function's source, so that schedules of a log are for it alone.
    """

    datapath = "array"
    cheapest = True
    offers_tiles: ClassVar[bool] = False

    function: Function | None = None
    constants_: Mapping[str, Any] = field(default_factory=dict)
    shapes: Sequence[tuple[int, ...]] = ()
    before: Layer | None = None
    digest: str = ""

    @staticmethod
    def of(layer: Layer, name: str, function: Function, constants: Mapping[str, Any]) -> KernelLayer:
        """Returns the layer in which a kernel makes what `layer` does."""
        shapes, wanted = shapes_of(layer)
        return KernelLayer(
            layer.name, f"kernel {name}", layer.inputs, layer.output, layer.post, layer.macs, layer.products,
            layer.extra_reads, layer.source, function=function, constants_=constants, shapes=[*shapes, wanted],
            before=layer, digest=_digest(function),
        )  # fmt: skip

    @staticmethod
    def of_node(op: QKernel, function: Function, inputs: Sequence[View], output: View) -> KernelLayer:
        """Returns the layer in which a kernel runs a node of the model, on views."""
        shapes = [value.shape for value in (*op.facts.tensors, op.facts.output) if value.shape is not None]
        return KernelLayer(
            op.facts.name, f"kernel {op.kernel.name}", list(inputs), output, Post(), function=function,
            constants_=op.constants, shapes=shapes, digest=_digest(function),
        )  # fmt: skip

    @property
    def what(self) -> str:
        """The kernel and what it does in the network, for messages."""
        return f"{self.op} for {self.name!r}" if self.before is None else f"{self.op} in place of {self.name!r}"

    @property
    def plan_key(self) -> Hashable:
        return ("kernel", id(self))

    @property
    def fusible(self) -> bool:
        return False

    @property
    def dense(self) -> bool:
        return self.before is None or self.before.dense

    def taken(self, axis: int, outputs: np.ndarray) -> np.ndarray:
        if self.before is not None:
            return self.before.taken(axis, outputs)
        x = self.inputs[0]
        return np.ones((x.h, x.w)[axis], bool)

    def input_border(self) -> tuple[Border, int]:
        return (Border(), 0) if self.before is None else self.before.input_border()

    def constants(self) -> Iterable[tuple[Hashable, int]]:
        return () if self.before is None else self.before.constants()

    def plans(
        self, context: Context, budget: int, span: tuple[int, int] | None = None, every: bool = False
    ) -> Iterator[TilePlan[KernelTiling]]:
        """Yields the one way in which the kernel runs.

        Raises:
            CompileError: the kernel cannot be right, or does not fit a machine with nothing else in ACT.
        """
        trial = Context(
            context.config, Emitter(context.config, 0, dry=True, memory=context.memory), ConstantPool(),
            context.offsets, plans=context.plans, timing_only=True,
        )  # fmt: skip
        for view in (*self.reads, self.output):
            if context.on_chip(view) and view.buffer in context.resident:
                trial.resident[view.buffer] = context.resident[view.buffer]
        try:
            rows = self._run(trial)
        except ScratchpadFull as error:
            raise CompileError(f"{self.what}: {error}") from None
        if rows <= budget:
            yield TilePlan(KernelTiling(rows), Pools(0, rows, 0))

    def emit(self, context: Context, plan: TilePlan[Any], part: OutputPart | None = None) -> None:
        self._run(context)

    def _run(self, context: Context) -> int:
        """Runs the kernel on a context; returns the most rows of ACT that its tiles take at once."""
        assert self.function is not None
        fill, (*shapes, wanted) = self.input_border()[1], self.shapes
        inputs = [
            Tensor(f"input {number}", shape, view, line=None, written=True, border=None if number else fill)
            for number, (shape, view) in enumerate(zip(shapes, self.reads, strict=True))
        ]

        def make(name: str, shape: Sequence[int], line: Line) -> Tensor:
            if tuple(shape) != wanted:
                raise KernelError(
                    f"in {self.name!r} the kernel makes the tensor {list(wanted)} and no other, not {list(shape)}"
                )
            return Tensor(name, shape, self.output, line=line, written=False)

        chip = Chip(context, make)
        try:
            returned = self.function(chip, *inputs, **self.constants_)
            require_outputs([returned], chip)
        except KernelError as error:
            if error.full:
                raise ScratchpadFull(str(error)) from None
            raise CompileError(f"{self.what}: {error}") from None
        finally:
            chip.close()
        if self.before is None and chip.macs:
            y, self.macs = self.output, chip.macs
            each = np.ones(y.h, np.int64), np.ones(y.w, np.int64)
            self.products = Products(*each, self.macs // (y.n * y.c * y.h * y.w), y.n * y.c)
        return chip.peak


def _digest(function: Function) -> str:
    """Returns a digest of a function's source, or of its code where that is all there is, as at a prompt."""
    try:
        text = inspect.getsource(function).encode()
    except OSError:
        text = function.__code__.co_code + repr(function.__code__.co_consts).encode()
    return hashlib.sha256(text).hexdigest()[:16]


#: Returns the constants with which a kernel takes the place of a layer; None to leave the layer as it is.
Matcher = Callable[[LayerFacts], Mapping[str, Any] | None]
