"""Conversions between plain tensors and blocks, added to the tasks where one is missing."""

from __future__ import annotations

import numpy as np

from compiler.graph import Node, Tensor
from compiler.npu.blocks.blocked import BlockedBuffer, Contents
from compiler.npu.blocks.layouts import Layouts
from compiler.npu.blocks.tables import Table, pack_tables, unpack_tables
from compiler.npu.blocks.tasks import Task
from compiler.npu.blocks.wiring import Wiring
from compiler.npu.layers.layer import Layer
from compiler.npu.views import View, dense_view, planes_of
from isa.config import NpuConfig
from isa.program import ARENA_REGION, CONSTANT_REGION, Layout


class Converter:
    """The list of tasks as it grows. Whoever needs a tensor in a form that is not there asks here for the conversion.

    A plain tensor is made when it is asked for: out of blocks if a layer made them, else by its own node. So nodes that
    only move data run where somebody needs the moved bytes.

    Attributes:
        tasks: in an order that works.
        buffers: in the arena, by name.
        constants: bytes of blocked constants the NPU reads, by name.
    """

    def __init__(self, wiring: Wiring, layouts: Layouts, config: NpuConfig) -> None:
        self.wiring, self.graph, self.layouts = wiring, wiring.graph, layouts
        self.block = config.block_in
        self.tasks: list[Task] = []
        self.buffers: dict[str, BlockedBuffer] = {}
        self.constants: dict[str, bytes] = {}
        self._plain = set(self.graph.inputs) | {name for name, t in self.graph.tensors.items() if t.is_const}

    def run_layer(self, layer: Layer) -> None:
        self.tasks.append(layer)

    def run_node(self, node: Node) -> None:
        """Adds a node of the model to the CPU's tasks, and what makes its operands plain."""
        for name in node.inputs:
            self.plain(name)
        self._plain.update(name for name in node.outputs if name)
        self.tasks.append(node)

    def plain(self, name: str) -> str:
        """Makes sure that the plain form of a tensor is there; returns its name."""
        if not name or name in self._plain:
            return name
        found = self.layouts.blocked.get(name)
        if found is None or found.alias:
            self.run_node(self.wiring.producers[name])
            return name
        self._plain.add(name)
        t = self.graph.tensor(name)
        tables = unpack_tables(t.shape, found.layout, self.block)
        self._relayout(found.view.buffer, t, tables, flip=t.dtype == np.uint8)
        return name

    def blocked(self, t: Tensor, shape: tuple[int, ...], layout: Layout) -> View:
        """A tensor, reshaped to `shape`, in blocks that a conversion makes."""
        if t.data is not None:
            return self.constant(t, t.data.reshape(shape), layout)
        source = self.plain(t.name)
        if shape != t.shape:
            source = self._reshape(source, shape)
        blocks, tables = pack_tables(shape, layout, self.block)
        name = self.pack(t, source, blocks, tables, f"{t.name}@{layout}", Contents.TENSOR, layout=layout)
        return dense_view(t.name, name, ARENA_REGION, planes_of(shape, layout), self.block)

    def constant(self, t: Tensor, data: np.ndarray, layout: Layout) -> View:
        """The values `data` of a constant in blocks, in the constant region."""
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
        tables: list[Table],
        stem: str,
        contents: Contents | None,
        *,
        layout: Layout | None = None,
        fill: int = 0,
    ) -> str:
        """Adds the `Relayout` of a plain tensor into a new buffer; returns the buffer's name.

        Args:
            t: of the model, whose values these are.
            source: the plain tensor.
            shape, tables: of the result.
            stem: name of the buffer, if it is free.
            contents: what the buffer holds for the NPU; None for a buffer that only the CPU uses.
            fill: value of lanes outside the tensor.
        """
        name = stem if stem not in self.graph.tensors else self.graph.unique(stem)
        target = self.graph.add(Tensor(name, shape, np.dtype(np.int8)))
        self._relayout(source, target, tables, flip=self.graph.tensor(source).dtype == np.uint8, fill=fill)
        if contents is not None:
            self.buffers[name] = BlockedBuffer(name, t.name, contents, shape, layout)
        return name

    def _relayout(self, source: str, target: Tensor, tables: list[Table], flip: bool, fill: int = 0) -> None:
        """Args:
        flip: values move between uint8 and the machine's int8, which is uint8 minus 128.
        """
        attrs = {"shape": target.shape, "tables": tables, "fill": fill, "xor": 0x80 if flip else 0}
        self.tasks.append(Node("Relayout", [source], [target.name], attrs, target.name))

    def _reshape(self, source: str, shape: tuple[int, ...]) -> str:
        t = self.graph.tensor(source)
        name = self.graph.unique(f"{source}@shape")
        self.graph.add(Tensor(name, shape, t.dtype, None, t.quant))
        target = self.graph.constant(f"{name}.shape", np.array(shape, np.int64))
        self._plain.add(target)
        self.tasks.append(Node("Reshape", [source, target], [name], {}, name))
        return name
