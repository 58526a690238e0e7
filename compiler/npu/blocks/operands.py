"""Operands: the views that lowering passes to a layer, with the conversions that make them."""

from __future__ import annotations

import math

import numpy as np
from msgspec.structs import replace

from tilewright.compiler.graph.graph import Node, Tensor
from tilewright.compiler.graph.ops.elementwise import IDENTITY_TABLE
from tilewright.compiler.npu.blocks.blocked import BlockedBuffer, Contents
from tilewright.compiler.npu.blocks.convert import Converter
from tilewright.compiler.npu.blocks.layouts import Layouts
from tilewright.compiler.npu.blocks.packing import PackedInput, plan_packing, repack_weights
from tilewright.compiler.npu.blocks.tables import IndexTable, out_of_bounds, shifted, split_bytes_tables
from tilewright.compiler.npu.int8_storage import stored_zero_point
from tilewright.compiler.npu.layers.conv_constants import DynamicWeights
from tilewright.compiler.npu.views import View, channel_axis, dense_view, planes_of
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import ARENA_REGION, Layout
from tilewright.isa.timing import DEFAULT_MEMORY, MemoryTiming


class Operands:
    """Provides the views that a layer reads and writes, in the layout it asks for, and adds missing conversions.

    Attributes:
        config: the machine.
        graph: the graph of the model.
        byte_cycles: cycles of the NPU in which the CPU converts a byte; 0 if the CPU's speed is unknown.
        memory: the timing of the NPU's memory.
    """

    def __init__(
        self, config: NpuConfig, layouts: Layouts, converter: Converter, byte_cycles: float = 0.0,
        memory: MemoryTiming = DEFAULT_MEMORY,
    ) -> None:  # fmt: skip
        self.byte_cycles, self.memory = byte_cycles, memory
        self.config, self.graph = config, converter.graph
        self._layouts, self._converter = layouts, converter
        self._views: dict[tuple[str, Layout, tuple[int, ...]], View] = {}
        self._constants: dict[tuple[str, tuple[int, ...], bytes], View] = {}

    def layout(self, head: Node) -> Layout:
        """Returns the layout chosen for the chain that begins with `head`."""
        return self._layouts.of(head)

    def planes(self, name: str, layout: Layout) -> tuple[int, int, int, int]:
        """Returns the (N, C, H, W) of a tensor."""
        return planes_of(self.graph.tensor(name).shape, layout)

    def view(self, name: str, layout: Layout, like: str | None = None) -> View:
        """Returns the view of a tensor's blocked form, which is made if it is missing.

        Args:
            name: name of the tensor.
            layout: layout of the view.
            like: the tensor to whose shape the operand is broadcast; None for its own shape.
        """
        t = self.graph.tensor(name)
        out = t.shape if like is None else self.graph.tensor(like).shape
        key = name, layout, out
        if key not in self._views:
            self._views[key] = self._make_view(t, layout, out)
        return self._views[key]

    def _make_view(self, t: Tensor, layout: Layout, out: tuple[int, ...]) -> View:
        """Returns the view of a tensor broadcast to shape `out`: its blocked form, a new constant or a conversion."""
        full = (1,) * (len(out) - len(t.shape)) + t.shape
        found = self._layouts.find(t.name)
        same = full == t.shape or (layout is Layout.CHANNELS_LAST and len(t.shape) > 1)  # more images of one are none
        if found is not None and same and (found.layout is layout or _view_fits(t.shape, layout, found.view)):
            return found.view
        if t.data is not None and t.shape != out:  # one channel of a constant is spread over all lanes
            axis = channel_axis(len(out), layout)
            spread = (*full[:axis], planes_of(out, layout)[1], *full[axis + 1 :])
            data = np.ascontiguousarray(np.broadcast_to(t.data.reshape(full), spread))
            return self._converter.constant(t, data, layout)
        return self._converter.blocked(t, full, layout)

    def output(self, name: str) -> View:
        """Adds the buffer of a tensor that a chain makes; returns its view."""
        made = self._layouts.blocked[name]
        v = made.view
        shape = v.n, v.cb, v.h, v.w, v.block
        self.graph.add(Tensor(v.buffer, shape, np.dtype(np.int8)))
        self._converter.buffers[v.buffer] = BlockedBuffer(v.buffer, name, Contents.TENSOR, shape, made.layout)
        return v

    def in_place(self, name: str) -> None:
        """Notes that a layer makes the blocks of a state where they are kept, so that nothing else has to."""
        self._converter.made(name)

    def temporary(self, stem: str, tensor: str, layout: Layout, dims: tuple[int, int, int, int]) -> View:
        """Adds a buffer of int8 [N, C, H, W] between two layers, with values of `tensor`; returns its view."""
        name = self.graph.unique(stem)
        v = dense_view(tensor, name, ARENA_REGION, dims, self.config.block_in)
        shape = v.n, v.cb, v.h, v.w, v.block
        self.graph.add(Tensor(name, shape, np.dtype(np.int8)))
        self._converter.buffers[name] = BlockedBuffer(name, tensor, Contents.PARTIAL, shape, layout)
        return v

    def table(self, table: bytes | None, x: str, y: str) -> bytes:
        """Returns a 256-byte table between bytes of tensors x and y, as the machine has them: int8 to int8.

        Args:
            table: the table between the model's bytes, None for the identity.
            x, y: names of the tensors.
        """
        raw = np.frombuffer(IDENTITY_TABLE if table is None else table, np.uint8)
        flip_in, flip_out = (np.uint8(0x80 if self.graph.tensor(t).dtype == np.uint8 else 0) for t in (x, y))
        return bytes(raw[np.arange(256, dtype=np.uint8) ^ flip_in] ^ flip_out)

    def pack_input(
        self,
        node: Node,
        kernel_shape: tuple[int, ...],
        stride: tuple[int, int],
        dilation: tuple[int, int],
        pad: tuple[int, int],
        group: int,
    ) -> PackedInput | None:
        """Adds the packing of a convolution's input with few channels, on the CPU.

        Args:
            node: the convolution.
            kernel_shape: [O, C/group, kernel rows, kernel columns].
            stride, dilation, pad: (rows, columns); pad is that before the first row and column.
            group: groups of channels.

        Returns:
            The packed input; None where packing does not pay or the NPU makes the input.
        """
        t, y = self.graph.tensor(node.inputs[0]), self.graph.tensor(node.outputs[0])
        if group != 1 or self._layouts.find(t.name) is not None or t.is_const:
            return None
        first, block = Layout.CHANNELS_FIRST, self.config.block_in
        size, out = planes_of(t.shape, first)[2:], planes_of(y.shape, first)[2:]
        o, c, kh, kw = kernel_shape
        plan = plan_packing(
            self.config, c, size, out, o, (kh, kw), stride, dilation, pad, self.byte_cycles, self.memory
        )
        if plan is None:
            return None
        shape, tables = plan.tables(t.shape[0], block, stride[1], pad[1], dilation[1])
        if len(t.shape) == 3:
            del tables[2]
        source, tables = self._converter.moved(t.name, tables)
        n, h, w, channels = shape
        images = n
        if t.dtype == np.int16:  # zeros around the tensor are other bytes in either half
            border = [
                out_of_bounds(entry, size) for entry, size in zip(tables, self.graph.tensor(source).shape, strict=True)
            ]
            source = self._converter.split_bytes(source, border)
            tables = [shifted(entry, before) for entry, (before, _) in zip(tables, border, strict=True)]
            images, tables = 2 * n, split_bytes_tables(tables)
        blocks = (images, channels // block, h, w, block)
        name = self._converter.pack(
            t, source, blocks, tables, f"{t.name}@pack", Contents.PACKED_INPUT, layout=first,
            fill=stored_zero_point(t), block=block,
        )  # fmt: skip
        view = dense_view(t.name, name, ARENA_REGION, (n, channels, h, w), block, t.dtype.itemsize)

        def repack(weights: np.ndarray) -> np.ndarray:
            small = repack_weights(plan, weights)
            full = np.zeros((small.shape[0], channels, *small.shape[2:]), small.dtype)
            full[:, : plan.packed_channels] = small
            return full

        return PackedInput(view, (plan.pad_rows, 0), (plan.stride_rows, 1), (plan.dilation_rows, 1), repack)

    def columns(self, name: str) -> tuple[View, bool] | None:
        """Returns the columns of a matrix as rows of channels that the NPU has; see `Layouts.columns`."""
        return self._layouts.columns(name)

    def constant(self, stem: str, data: np.ndarray) -> View:
        """Stores int8 rows of channels in the constant region, equal ones of one stem once; returns their view."""
        key = stem, data.shape, data.tobytes()
        if key not in self._constants:
            self._constants[key] = self._converter.constant(
                Tensor(self.graph.unique(stem), data.shape, data.dtype), data, Layout.CHANNELS_LAST
            )
        return self._constants[key]

    def row_of_table(self, name: str, region: int) -> View:
        """Stores a constant's rows along its first axis in the constant region; returns the view of row 0.

        Args:
            name: name of the constant.
            region: the region that begins at the row that is to be read.
        """
        table = self.graph.tensor(name)
        assert table.data is not None
        whole = self._converter.constant(table, table.data, Layout.CHANNELS_LAST)
        return replace(whole, region=region, n=whole.n // table.shape[0])

    def as_weight_tiles(self, rows: View) -> tuple[int, tuple[int, int, int]]:
        """Returns the offset and strides at which rows of channels can be loaded as weight tiles, see `DynamicWeights`.

        The last tile is loaded beyond the last row, so the buffer is extended (`BlockedBuffer.overread`).
        """
        buffer, config = self._converter.buffers[rows.buffer], self.config
        tile = config.block_out * rows.block
        most = max(config.block_out, config.block_in)
        overread = max(buffer.overread, -(-rows.w // most) * most * rows.block - rows.w * rows.block)
        self._converter.buffers[rows.buffer] = replace(buffer, overread=overread)
        return rows.offset, (rows.sn, tile, rows.sc)

    def params_buffer(self, name: str, batch: tuple[int, ...], blocks: int) -> BlockedBuffer:
        """Adds a buffer, int32 [batch, blocks, block_in, 2], for biases and scales of a product with tensor `name`."""
        found = self.graph.unique(f"{name}@params")
        shape = (*batch, blocks, self.config.block_in, 2)
        rows = BlockedBuffer(found, name, Contents.PRODUCT_PARAMS, shape, dtype=np.dtype(np.int32))
        self.graph.add(Tensor(found, shape, rows.dtype))
        self._converter.buffers[found] = rows
        return rows

    def dynamic_weights(self, node: Node, a_zero_point: int, scale: float, group: int = 1) -> DynamicWeights:
        """Adds the packing of a product's second activation into weight tiles and PRM rows, on the CPU.

        Args:
            node: the product.
            a_zero_point: zero point of the first operand as the machine stores it.
            scale: scale of the requantiser.
            group: images of the first operand for each of the second.
        """
        b = self.graph.tensor(node.inputs[1])
        source = self._converter.plain(b.name)
        bi, bo = self.config.block_in, self.config.block_out
        (k, n), batch = b.shape[-2:], b.shape[:-2]
        vectors = -(-n // bi)
        ob, kb = max(-(-n // bo), -(-vectors * bi // bo)), -(-k // bi)
        count = math.prod(batch)
        index = np.unravel_index(np.arange(count), batch) if batch else ()
        i32 = np.int32
        tables: list[IndexTable] = [
            *({0: i.astype(i32)} for i in index),
            {2: np.arange(kb, dtype=i32) * bi, 4: np.arange(bi, dtype=i32)},
            {1: np.arange(ob, dtype=i32) * bo, 3: np.arange(bo, dtype=i32)},
        ]
        shape = (count, ob, kb, bo, bi)
        tiles = self._converter.pack(b, source, shape, tables, f"{b.name}@tiles", Contents.WEIGHT_TILES)
        b_zero_point = stored_zero_point(b)
        params = self.params_buffer(b.name, batch, vectors).name
        attrs = {
            "a_zero_point": a_zero_point, "b_zero_point": b_zero_point, "scale": np.float32(scale), "lanes": bi,
            "xor": 0x80 if b.dtype == np.uint8 else 0,
        }  # fmt: skip
        self._converter.tasks.append(Node("PackMatMulParams", [source], [params], attrs, params))
        tile = self.config.tile_bytes
        return DynamicWeights(tiles, params, k, b_zero_point, 0, (ob * kb * tile, kb * tile, tile), group)


def _view_fits(shape: tuple[int, ...], layout: Layout, view: View) -> bool:
    """Returns True if a view in the other layout fits `layout` too: it is one row, or has one channel on both axes."""
    same = len(shape) == 2 or shape[1] == shape[-1] == 1
    return same and planes_of(shape, layout) == (view.n, view.c, view.h, view.w)
