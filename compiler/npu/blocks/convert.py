"""Conversions between plain tensors and blocks, which become tasks where the required form is missing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.compiler.graph.graph import Node, Tensor
from tilewright.compiler.graph.moves import permutation
from tilewright.compiler.graph.states import blocked_shape
from tilewright.compiler.npu.blocks.blocked import BlockedBuffer, Contents
from tilewright.compiler.npu.blocks.layouts import Layouts
from tilewright.compiler.npu.blocks.tables import (
    IndexTable,
    join_bytes_tables,
    pack_tables,
    split_bytes_tables,
    unpack_tables,
)
from tilewright.compiler.npu.blocks.tasks import Task
from tilewright.compiler.npu.blocks.wiring import Wiring
from tilewright.compiler.npu.layers.layer import Layer
from tilewright.compiler.npu.views import View, dense_view, planes_of
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import ARENA_REGION, CONSTANT_REGION, Layout


class Converter:
    """Builds the list of tasks, and adds the conversions that their operands need.

    A plain tensor is made on the first request: out of blocks if a layer made them, else by its own node. So nodes that
    only move data run only where the moved bytes are needed.

    Attributes:
        keep_all: True if every tensor of the model is an output, so that no Transpose may merge into a conversion.
        tasks: layers and nodes in an order in which every operand is made before it is read.
        buffers: buffers in the arena, by name.
        constants: bytes of the blocked constants that the NPU reads, by name.
    """

    def __init__(self, wiring: Wiring, layouts: Layouts, config: NpuConfig, keep_all: bool = False) -> None:
        self.keep_all = keep_all
        self.wiring, self.graph, self.layouts = wiring, wiring.graph, layouts
        self.block = config.block_in
        self.tasks: list[Task] = []
        self.buffers: dict[str, BlockedBuffer] = {}
        for state in self.graph.states:
            if state.plain:
                shape = blocked_shape(self.graph, state)
                for name in (state.begin, state.end):
                    self.buffers[name] = BlockedBuffer(name, state.plain, Contents.TENSOR, shape, Layout.CHANNELS_LAST)
        self.constants: dict[str, bytes] = {}
        self._plain = set(self.graph.inputs) | {name for name, t in self.graph.tensors.items() if t.is_const}

    def made(self, name: str) -> None:
        """Notes that a layer makes the plain form of a tensor."""
        self._plain.add(name)

    def run_layer(self, layer: Layer) -> None:
        """Appends a layer to the tasks."""
        self.tasks.append(layer)

    def run_node(self, node: Node) -> None:
        """Appends a node of the model to the tasks, for the CPU, after the conversions that make its operands plain."""
        for name in node.inputs:
            self.plain(name)
        self._plain.update(name for name in node.outputs if name)
        self.tasks.append(node)

    def plain(self, name: str) -> str:
        """Adds the tasks that make the plain form of a tensor unless it exists; returns its name."""
        if not name or name in self._plain:
            return name
        t, source, perm = self.graph.tensor(name), name, list(range(len(self.graph.tensor(name).shape)))
        while (found := self.layouts.blocked.get(source)) is None or found.alias:
            maker = self.wiring.producers[source]
            if maker.op != "Transpose" or maker.inputs[0] in self._plain or self.keep_all:
                self.run_node(self.wiring.producers[name])
                return name
            own = permutation(maker)
            source, perm = maker.inputs[0], [own[axis] for axis in perm]
        self._plain.add(name)
        tables = unpack_tables(self.graph.tensor(source).shape, found.layout, self.block)
        moved = [{perm.index(axis): table for axis, table in entry.items()} for entry in tables]
        if found.view.bytes > 1:
            both = self.graph.add(Tensor(self.graph.unique(f"{name}@bytes"), (2, *t.shape), np.dtype(np.int8)))
            self._relayout(found.view.buffer, both, join_bytes_tables(moved, found.view.first_bytes.cb), flip=False)
            self.tasks.append(Node("JoinBytes", [both.name], [name], {}, name))
            return name
        self._relayout(found.view.buffer, t, moved, flip=t.dtype == np.uint8)
        return name

    def blocked(self, t: Tensor, shape: tuple[int, ...], layout: Layout) -> View:
        """Adds the conversion of a tensor, reshaped to `shape`, into blocks; returns the view of the result."""
        if t.data is not None:
            return self.constant(t, t.data.reshape(shape), layout)
        blocks, tables = pack_tables(shape, layout, self.block)
        if shape == t.shape:
            source, tables = self.moved(t.name, tables)
        else:
            source = self._reshape(self.plain(t.name), shape)
        if t.dtype == np.int16:
            source, blocks, tables = self.split_bytes(source), (2 * blocks[0], *blocks[1:]), split_bytes_tables(tables)
        name = self.pack(t, source, blocks, tables, f"{t.name}@{layout}", Contents.TENSOR, layout=layout)
        return dense_view(t.name, name, ARENA_REGION, planes_of(shape, layout), self.block, t.dtype.itemsize)

    def split_bytes(self, source: str, border: Sequence[tuple[int, int]] = ()) -> str:
        """Adds a node that splits a plain int16 tensor into its bytes, int8 [2, axes]; returns the result's name.

        Args:
            source: name of the tensor.
            border: zeros before and behind each axis; empty for no border.
        """
        t = self.graph.tensor(source)
        border = list(border) or [(0, 0)] * len(t.shape)
        shape = (2, *(before + size + behind for size, (before, behind) in zip(t.shape, border, strict=True)))
        both = self.graph.add(Tensor(self.graph.unique(f"{source}@bytes"), shape, np.dtype(np.int8)))
        attrs = {"begin": [before for before, _ in border]}
        self.tasks.append(Node("SplitBytes", [source], [both.name], attrs, both.name))
        return both.name

    def moved(self, name: str, tables: list[IndexTable]) -> tuple[str, list[IndexTable]]:
        """Follows Transposes back to a tensor that is plain, or made otherwise; returns its name and its tables.

        Args:
            name: the tensor to convert.
            tables: one table for each axis of `name`.
        """
        while name not in self._plain and name not in self.layouts.blocked and not self.keep_all:
            maker = self.wiring.producers[name]
            if maker.op != "Transpose":
                break
            perm = permutation(maker)
            name, tables = maker.inputs[0], [tables[perm.index(axis)] for axis in range(len(tables))]
        return self.plain(name), tables

    def constant(self, t: Tensor, data: np.ndarray, layout: Layout) -> View:
        """Stores the values `data` of a constant in blocks, in the constant region; returns their view."""
        name = f"{t.name}@{layout}:{'x'.join(map(str, data.shape))}"
        n, c, h, w = planes_of(data.shape, layout)
        stored = (data.view(np.uint8) ^ 0x80).view(np.int8) if data.dtype == np.uint8 else data
        last = layout is Layout.CHANNELS_LAST
        planes = stored.reshape(n, h, w, c).transpose(0, 3, 1, 2) if last else stored.reshape(n, c, h, w)
        cb = -(-c // self.block)
        padded = np.zeros((n, cb * self.block, h, w), np.int8)
        padded[:, :c] = planes
        blocks = padded.reshape(n, cb, self.block, h, w).transpose(0, 1, 3, 4, 2)
        self.constants[name] = np.ascontiguousarray(blocks).tobytes()
        return dense_view(t.name, name, CONSTANT_REGION, (n, c, h, w), self.block)

    def pack(
        self,
        t: Tensor,
        source: str,
        shape: tuple[int, ...],
        tables: list[IndexTable],
        stem: str,
        contents: Contents,
        *,
        layout: Layout | None = None,
        fill: int = 0,
        block: int = 0,
    ) -> str:
        """Adds the `Relayout` of a plain tensor into a new buffer; returns the buffer's name.

        Args:
            t: the model tensor whose values these are.
            source: name of the plain tensor.
            shape, tables: shape of the result, and a table for each axis of the source.
            stem: name of the buffer, if it is free.
            contents: the form in which the buffer holds the values.
            layout: layout of the result, where it has one.
            fill: value of lanes outside the tensor.
            block: channels of a block, where the tables have them on the last axis and the result in blocks; else 0.
        """
        name = stem if stem not in self.graph.tensors else self.graph.unique(stem)
        target = self.graph.add(Tensor(name, shape, np.dtype(np.int8)))
        self._relayout(source, target, tables, self.graph.tensor(source).dtype == np.uint8, fill, block)
        self.buffers[name] = BlockedBuffer(name, t.name, contents, shape, layout)
        return name

    def _relayout(
        self, source: str, target: Tensor, tables: list[IndexTable], flip: bool, fill: int = 0, block: int = 0
    ) -> None:
        """Appends a `Relayout` to the tasks.

        Args:
            flip: True if values change between uint8 and the machine's int8, which is uint8 minus 128.
        """
        attrs = {"shape": target.shape, "tables": tables, "fill": fill, "xor": 0x80 if flip else 0, "block": block}
        self.tasks.append(Node("Relayout", [source], [target.name], attrs, target.name))

    def _reshape(self, source: str, shape: tuple[int, ...]) -> str:
        """Appends a Reshape of a plain tensor to the tasks; returns the name of its result."""
        t = self.graph.tensor(source)
        name = self.graph.like(t, f"{source}@shape", shape)
        target = self.graph.constant(f"{name}.shape", np.array(shape, np.int64))
        self._plain.add(target)
        self.tasks.append(Node("Reshape", [source, target], [name], {}, name))
        return name
