"""Constants of a kernel: weights of products and windows, biases with scales, tables. They are loaded where used."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.compiler.npu.emit.context import Context
from tilewright.compiler.npu.emit.tile_program import PostFields
from tilewright.compiler.npu.layers.depthwise import DepthwiseLayer
from tilewright.compiler.npu.layers.layer import Post
from tilewright.compiler.npu.layers.params import channel_params
from tilewright.compiler.npu.layers.sliding_window import SlidingWindow
from tilewright.compiler.npu.views import dense_view
from tilewright.isa import packing
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import ARENA_REGION
from tilewright.kernel.errors import KernelError, call
from tilewright.kernel.places import Range, as_range
from tilewright.kernel.rooms import Origin

Pair = int | tuple[int, int]


def pair(value: Pair, what: str, least: int) -> tuple[int, int]:
    """Returns (rows, columns) of a number for both or one for each.

    Raises:
        KernelError: one is below `least`.
    """
    found = (value, value) if isinstance(value, int) else (int(value[0]), int(value[1]))
    if min(found) < least:
        raise KernelError(f"{what} must be {least} or more, not {value}")
    return found


def int8_array(what: str, values: Any, ranks: tuple[int, ...]) -> np.ndarray:
    """Returns int8 values as an array of one of some ranks.

    Raises:
        KernelError: the values are no int8, or have another rank or an empty axis.
    """
    found = np.asarray(values)
    if found.ndim not in ranks or found.size == 0:
        raise KernelError(f"{what} must have {' or '.join(map(str, ranks))} axes, none empty, not shape {found.shape}")
    if found.dtype != np.int8:
        if not np.issubdtype(found.dtype, np.integer) or found.min() < -128 or found.max() > 127:
            raise KernelError(f"{what} must be int8 (-128..127), not {found.dtype} {found.min()}..{found.max()}")
        found = found.astype(np.int8)
    return np.ascontiguousarray(found)


def digest(*values: Any) -> str:
    """Returns a key that is equal for equal arrays and numbers."""
    found = hashlib.sha1(usedforsecurity=False)
    for value in values:
        found.update(value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode())
    return found.hexdigest()


class Windowed:
    """Weights that slide over a tensor.

    Attributes:
        window: kernel, padding, stride and dilation.
    """

    window: SlidingWindow

    def rows(self, outputs: range) -> range:
        """Returns the rows of the input that rows `outputs` of the result need, padding included."""
        return range(*self.window.span(outputs.start, outputs.stop, 0))

    def columns(self, outputs: range) -> range:
        """Returns the columns of the input that columns `outputs` of the result need, padding included."""
        return range(*self.window.span(outputs.start, outputs.stop, 1))

    @call
    def result(self, size: tuple[int, int]) -> tuple[int, int]:
        """Returns the rows and columns of the result for an input of `size`, with padding on both sides."""
        padded = [n + 2 * pad for n, pad in zip(size, self.window.pad, strict=True)]
        return self.fits((padded[0], padded[1]))

    def fits(self, size: tuple[int, int]) -> tuple[int, int]:
        """Returns the outputs that an input tile of `size` (rows, columns) gives, padding included.

        Raises:
            KernelError: it is smaller than the window.
        """
        found = []
        for axis, n in enumerate(size):
            reach = (self.window.kernel[axis] - 1) * self.window.dilation[axis] + 1
            if n < reach:
                raise KernelError(f"{n} {('rows', 'columns')[axis]} are fewer than the {reach} of the window")
            found.append((n - reach) // self.window.stride[axis] + 1)
        return found[0], found[1]


class Weights(Windowed):
    """Weights of a product: int8 [outputs, inputs] or [outputs, inputs, kernel rows, kernel columns].

    Attributes:
        config: the machine.
        shape: outputs, inputs, rows and columns of the kernel.
        outputs, inputs: blocks of output and of input channels.
        key: digest of the values.
        packed: True if they lie in memory two a byte.
    """

    def __init__(
        self, config: NpuConfig, values: Any, stride: Pair, pad: Pair, dilation: Pair, packed: bool | None = None
    ) -> None:
        found = int8_array("weights", values, (2, 4))
        if packed and not config.packed_weights:
            raise KernelError(f"{config.name!r} unpacks no weights: packed_weights = 0 in its configuration")
        if packed and not packing.fits(found):
            raise KernelError(
                f"packed weights must be {packing.LEAST}..{packing.MOST}, not {found.min()}..{found.max()}"
            )
        self.packed = bool(config.packed_weights) and packing.fits(found) if packed is None else packed
        self.values = found if found.ndim == 4 else found[:, :, None, None]
        self.config, self.key, self.shape = config, digest(self.values, self.values.shape), self.values.shape
        kernel = self.shape[2], self.shape[3]
        self.window = SlidingWindow(
            kernel, pair(pad, "pad", 0), pair(stride, "stride", 1), pair(dilation, "dilation", 1)
        )
        lanes = config.block_in
        self.outputs = range(-(-self.shape[0] // lanes))
        self.inputs = range(-(-self.shape[1] // lanes))

    def __repr__(self) -> str:
        return f"the weights {list(self.shape)}"

    @call
    def at(self, outputs: Range = None, inputs: Range = None) -> Weights:
        """Returns the weights of some blocks of output and input channels.

        Raises:
            KernelError: a range is empty or leaves the weights, or outputs begin within a row of the array.
        """
        some = object.__new__(type(self))
        some.__dict__.update(self.__dict__)
        own = as_range(repr(self), "outputs", outputs, len(self.outputs))
        wide = max(1, self.config.block_out // self.config.block_in)
        if own.start % wide:
            raise KernelError(f"{self!r}: outputs must begin at a multiple of {wide} blocks, not at {own.start}")
        some.outputs = range(self.outputs.start + own.start, self.outputs.start + own.stop)
        found = as_range(repr(self), "inputs", inputs, len(self.inputs))
        some.inputs = range(self.inputs.start + found.start, self.inputs.start + found.stop)
        return some

    @property
    def channels(self) -> tuple[int, int]:
        """The channels of the output and of the input that the blocks hold."""
        found = []
        for blocks, size in zip((self.outputs, self.inputs), self.shape[:2], strict=True):
            found.append(min(blocks.stop * self.config.block_in, size) - blocks.start * self.config.block_in)
        return found[0], found[1]

    @property
    def array_rows(self) -> range:
        """The rows of the array's output blocks: each has `block_out` channels."""
        bi, bo = self.config.block_in, self.config.block_out
        return range(self.outputs.start * bi // bo, -(-self.outputs.stop * bi // bo))

    @property
    def tiles(self) -> int:
        """The tiles of WGT that they take."""
        return len(self.array_rows) * len(self.inputs) * self.window.kernel[0] * self.window.kernel[1]

    def load(self, context: Context) -> int:
        """Loads them into WGT unless they are there; returns the first tile.

        Raises:
            KernelError: WGT is too small.
        """
        if self.tiles > context.weights.rows:
            raise KernelError(
                f"{self!r} take {self.tiles} tiles of the {context.weights.rows} of WGT: multiply by part, "
                "weights.at(outputs=..., inputs=...)"
            )
        return self._loaded(context)

    def _loaded(self, context: Context) -> int:
        """Loads them into WGT, in which they fit, unless they are there; returns the first tile."""
        return context.load_weights(
            (self.key, self.packed, self.outputs, self.inputs), self.tiles, self.in_tiles, packed=self.packed
        )

    def in_tiles(self) -> np.ndarray:
        """Returns tiles [row of the array][kernel row][kernel column][input block] of int8 [block_out, block_in]."""
        bi, bo, (kh, kw) = self.config.block_in, self.config.block_out, self.window.kernel
        rows, blocks = len(self.array_rows), len(self.inputs)
        o, i = self.array_rows.start * bo, self.inputs.start * bi
        part = self.values[o : o + rows * bo, i : i + blocks * bi]
        found = np.zeros((rows * bo, blocks * bi, kh, kw), np.int8)
        found[: part.shape[0], : part.shape[1]] = part
        return found.reshape(rows, bo, blocks, bi, kh, kw).transpose(0, 4, 5, 2, 1, 3).reshape(-1, bo, bi)


class _KeyedByContent(DepthwiseLayer):
    """A layer whose constants are found again by their values: kernels make such layers anew in each run."""

    @property
    def constants_key(self) -> Hashable:
        return digest(self.weights, self.weights.shape, self.window, bool(self.fill), self.fill)


class WindowWeights(Windowed):
    """Weights of a depthwise convolution: int8 [channels, kernel rows, kernel columns].

    Attributes:
        blocks: channel blocks.
    """

    def __init__(self, config: NpuConfig, values: Any, stride: Pair, pad: Pair, dilation: Pair) -> None:
        self.values = int8_array("window weights", values, (3,))
        self.config = config
        self.window = SlidingWindow(
            (self.values.shape[1], self.values.shape[2]), pair(pad, "pad", 0), pair(stride, "stride", 1),
            pair(dilation, "dilation", 1),
        )  # fmt: skip
        self.blocks = range(-(-self.values.shape[0] // config.block_in))
        self._layers: dict[tuple[int, int, int], DepthwiseLayer] = {}

    def __repr__(self) -> str:
        return f"the window weights {list(self.values.shape)}"

    @call
    def at(self, blocks: Range) -> WindowWeights:
        """Returns the weights of some channel blocks. Raises `KernelError` for a range that leaves the weights."""
        some = object.__new__(WindowWeights)
        some.__dict__.update(self.__dict__)
        found = as_range(repr(self), "blocks", blocks, len(self.blocks))
        some.blocks = range(self.blocks.start + found.start, self.blocks.start + found.stop)
        return some

    @property
    def channels(self) -> int:
        """The channels that the blocks hold."""
        lanes = self.config.block_in
        return min(self.blocks.stop * lanes, len(self.values)) - self.blocks.start * lanes

    def layer(self, origin: Origin) -> DepthwiseLayer:
        """Returns the compiler's layer that pushes a tile with this origin through the window."""
        key = (*origin.size, origin.fill)
        if key not in self._layers:
            channels, lanes = self.values.shape[0], self.config.block_in
            x = dense_view("x", "x", ARENA_REGION, (1, channels, *origin.size), lanes)
            w = self.window
            self._layers[key] = _KeyedByContent(
                "kernel", "kernel", [x], x, Post(), weights=self.values, pad=w.pad, stride=w.stride,
                dilation=w.dilation, fill=origin.fill,
            )  # fmt: skip
        return self._layers[key]


class Params:
    """Biases and scales of the requantiser, one pair for each channel or one for all.

    Attributes:
        channels: number of channels; None for one pair.
    """

    def __init__(self, config: NpuConfig, bias: Any, scale: Any) -> None:
        found_bias, found_scale = np.asarray(bias), np.asarray(scale, np.float32)
        if not np.issubdtype(found_bias.dtype, np.integer) or max(found_bias.ndim, found_scale.ndim) > 1:
            raise KernelError(
                f"biases must be integers and scales floats, one or one per channel, not {found_bias.dtype}"
            )
        if not ((np.abs(found_scale) < 2.0**126) & (np.abs(found_scale) > 2.0**-126)).all():
            raise KernelError(f"scales must be normal float32 numbers within 2^-126..2^126, not {scale}")
        if np.abs(found_bias.astype(np.int64)).max(initial=0) >= 1 << 31:
            raise KernelError(f"biases must fit int32, not {found_bias.max()}")
        sizes = {a.size for a in (found_bias, found_scale) if a.ndim}
        if len(sizes) > 1 or 0 in sizes:
            raise KernelError(f"{found_bias.size} biases do not go with {found_scale.size} scales")
        self.channels = sizes.pop() if sizes else None
        self.config = config
        self.bias, self.scale = np.broadcast_arrays(found_bias.astype(np.int32), found_scale)
        self.key = digest(self.bias, self.scale, self.channels)

    @classmethod
    def of_words(cls, config: NpuConfig, bias: np.ndarray, scale: np.ndarray) -> Params:
        """Returns biases and scales, both [channels], of which any number is accepted."""
        made = object.__new__(cls)
        made.config, made.channels, made.bias, made.scale = config, len(bias), bias, scale
        made.key = digest(bias, scale, made.channels)
        return made

    @property
    def step(self) -> int:
        """The rows of PRM from one channel block to the next: 0 for one pair."""
        return 0 if self.channels is None else 1

    def load(self, context: Context, block: int, blocks: int) -> int:
        """Loads the pairs of channel blocks into PRM unless they are there; returns the first row.

        Raises:
            KernelError: there are fewer channels, or PRM is too small.
        """
        lanes = self.config.block_in
        if self.channels is None:
            every = np.full(lanes, self.bias), np.full(lanes, self.scale)
            return context.load_params((self.key, "all"), 1, lambda: every)
        if -(-self.channels // lanes) < block + blocks:
            raise KernelError(
                f"biases of {self.channels} channels do not cover channel blocks {block}..{block + blocks - 1}"
            )
        if blocks > context.params.rows:
            raise KernelError(f"{blocks} rows of biases and scales do not fit the {context.params.rows} of PRM")
        make = lambda: channel_params(self.bias, self.scale, block, blocks, lanes)
        return context.load_params((self.key, block, blocks), blocks, make)


@dataclass(frozen=True)
class Table:
    """A table of 256 int8 results: entry v & 255 is that of int8 v."""

    values: bytes

    @staticmethod
    def of(values: Any) -> Table:
        """Returns the table of 256 results: of -128, ..., 127 in this order.

        Raises:
            KernelError: there are not 256 int8 values.
        """
        found = int8_array("a table", values, (1,))
        if found.size != 256:
            raise KernelError(f"a table has 256 results, those of -128..127, not {found.size}")
        return Table(np.roll(found, -128).tobytes())


@dataclass(frozen=True)
class Addend:
    """An integer Add behind a value: (value * ma + other * mb + c) >> shift, clamped to low..high.

    Attributes:
        other: tile of the other operand, of the value's size.
        ma, mb, c, shift: fields of VECTOR_ADD.
    """

    other: Any
    ma: int = 1
    mb: int = 1
    c: int = 0
    shift: int = 0
    low: int = -128
    high: int = 127

    @property
    def constants(self) -> dict[str, int]:
        """The fields of VECTOR_ADD by name."""
        return {"ma": self.ma, "mb": self.mb, "c": self.c, "shift": self.shift}


@dataclass
class PostWork:
    """Work of VECTOR behind a source: the fields of its registers and what it reads besides."""

    fields: PostFields = field(default_factory=PostFields)
    add: Addend | None = None
    table: Table | None = None
