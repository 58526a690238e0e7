"""Splits a graph into NPU layers and CPU nodes, with the conversions between their layouts.

Work is demand-driven: a layer asks for the views it reads, a CPU node for plain tensors, and whatever conversion is
missing is added then. Reshapes that do not move bytes in the blocked layout become aliases.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from compiler.graph import QUANTIZED_OPS, Graph, Node, Tensor
from compiler.npu import lower
from compiler.npu.layers.conv import DynamicWeights
from compiler.npu.layers.layer import Layer
from compiler.npu.packing import PackedInput, plan_packing, repack_weights
from compiler.npu.support import broadcast_ok, stored_zero_point, unsupported_reason
from compiler.npu.views import View, packed, plane_shape, relayout_tables, unpack_tables
from compiler.ops.elementwise import IDENTITY_TABLE
from isa.config import NpuConfig
from isa.program import ARENA_REGION, CONSTANT_REGION

_MOVES = {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Transpose"}
_CONVOLVES = {"QConv", "QConvTranspose", "QMaxPool", "QAveragePool", "QGlobalAveragePool", "QConcat"}
_ELEMENTWISE = {"QAdd", "QMul", "QLut"}


@dataclass
class Item:
    """One unit of work in topological order: an NPU layer or a CPU node."""

    layer: Layer | None = None
    node: Node | None = None

    @property
    def on_npu(self) -> bool:
        return self.layer is not None

    def reads(self) -> list[str]:
        if self.node is not None:
            return [n for n in self.node.inputs if n]
        assert self.layer is not None
        views = [*self.layer.inputs, *([self.layer.post.add.other] if self.layer.post.add else [])]
        return [v.buffer for v in views] + self.layer.extra_reads

    def writes(self) -> list[str]:
        if self.node is not None:
            return [n for n in self.node.outputs if n]
        assert self.layer is not None
        return [self.layer.output.buffer]


@dataclass
class Native:
    """The blocked form of a tensor."""

    convention: str
    view: View


@dataclass
class Partition:
    """See the module docstring. Build with `Partition.of`.

    Attributes:
        keep_all: every quantised tensor is materialised: nothing is fused into a tail.
        constants: name -> bytes of blocked constants the NPU reads.
        cpu_reasons: why a quantised node runs on the CPU, by node name.
        blocked: blocked buffers in the arena: name -> bytes.
    """

    graph: Graph
    config: NpuConfig
    keep_all: bool = False
    items: list[Item] = field(default_factory=list)
    constants: dict[str, bytes] = field(default_factory=dict)
    cpu_reasons: dict[str, str] = field(default_factory=dict)
    blocked: dict[str, int] = field(default_factory=dict)
    native: dict[str, Native] = field(default_factory=dict)
    _views: dict[tuple[str, str], View] = field(default_factory=dict)
    _plain: set[str] = field(default_factory=set)
    _producer: dict[str, Node] = field(default_factory=dict)
    _consumers: dict[str, list[Node]] = field(default_factory=dict)
    _on_npu: set[int] = field(default_factory=set)
    _fused: dict[int, list[Node]] = field(default_factory=dict)
    _tail_ends: dict[int, Node] = field(default_factory=dict)
    _inside: set[int] = field(default_factory=set)

    @staticmethod
    def of(
        graph: Graph,
        config: NpuConfig,
        *,
        keep_all: bool = False,
        cpu_only: bool = False,
        excluded: Mapping[str, str] | None = None,
    ) -> Partition:
        """Partitions `graph` (its tensors gain the blocked forms that CPU conversions make).

        Args:
            excluded: outputs of nodes that are to run on the CPU, with the reason.
        """
        self = Partition(graph, config, keep_all)
        self._producer, self._consumers = graph.producers(), graph.consumers()
        self._plain = set(graph.inputs) | {n for n, t in graph.tensors.items() if t.is_const}
        nodes = list(graph.nodes)
        for node in nodes:
            reason = "the NPU was switched off" if cpu_only else unsupported_reason(graph, node, config)
            if reason is None and node.op in _ELEMENTWISE:
                reason = self._operands_reason(node)
            if reason is None and excluded:
                reason = excluded.get(node.outputs[0])
            if reason is None:
                self._on_npu.add(id(node))
            elif node.op in QUANTIZED_OPS:
                self.cpu_reasons[node.name or node.outputs[0]] = reason
        self._keep_islands_off(nodes)
        if not keep_all:
            self._find_tails(nodes)
        for node in nodes:
            if id(node) in self._tail_ends:
                # A node with a tail runs where the tail ends: the tail's other operand is there by then.
                self._lower(self._tail_ends[id(node)])
            elif id(node) in self._on_npu:
                if id(node) not in self._inside and id(node) not in self._fused:
                    self._lower(node)
            elif node.op not in _MOVES:
                self._cpu(node)
        for name in graph.outputs:
            self.plain(name)
        return self

    # Decisions.

    def _operands_reason(self, node: Node) -> str | None:
        convention = self._default_convention(node)
        out = self.graph.tensor(node.outputs[0]).shape
        for name in node.inputs:
            t = self.graph.tensor(name)
            if not broadcast_ok(t.shape, out, convention, t.is_const):
                return f"operand {name} of shape {list(t.shape)} does not follow channels of {list(out)}"
        if all(self.graph.tensor(n).shape != out for n in node.inputs):
            return "no operand has the shape of the result"
        return None

    def _keep_islands_off(self, nodes: list[Node]) -> None:
        """Elementwise work between CPU nodes stays there: two conversions cost more than they save."""
        for node in nodes:
            if id(node) not in self._on_npu or node.op not in _ELEMENTWISE:
                continue
            feeds = [self._producer.get(n) for n in node.inputs if not self.graph.tensor(n).is_const]
            users = self._consumers.get(node.outputs[0], [])
            # Graph inputs and outputs count as the CPU's, but what stands alone between them is not moved there.
            from_cpu = all((bool(users) if p is None else not self._reaches_npu(p)) for p in feeds)
            to_cpu = (bool(users) or None not in feeds) and not any(id(u) in self._on_npu for u in users)
            if feeds and from_cpu and to_cpu:
                self._on_npu.discard(id(node))
                self.cpu_reasons[node.name or node.outputs[0]] = "its neighbours run on the CPU"

    def _reaches_npu(self, node: Node) -> bool:
        while node.op in _MOVES:
            before = self._producer.get(node.inputs[0])
            if before is None:
                return False
            node = before
        return id(node) in self._on_npu

    def _find_tails(self, nodes: list[Node]) -> None:
        taken: set[int] = set()
        # Later heads first: of two convolutions that meet in an Add, the later one takes it.
        for node in reversed(nodes):
            if id(node) not in self._on_npu or id(node) in taken:
                continue
            tail: list[Node] = []
            value = node.outputs[0]
            allowed_add, allowed_lut = node.op in lower.TAKES_ADD, node.op in lower.TAKES_LUT
            while value not in self.graph.outputs:
                users = self._consumers.get(value, [])
                if len(users) != 1 or id(users[0]) not in self._on_npu or id(users[0]) in taken:
                    break
                user = users[0]
                if id(user) in self._fused:  # the user is a head itself: its tail goes with it
                    break
                if user.op == "QAdd" and allowed_add and self._fits_tail(node, user, value):
                    allowed_add = False
                elif user.op == "QLut" and allowed_lut:
                    allowed_add = allowed_lut = False
                else:
                    break
                tail.append(user)
                value = user.outputs[0]
            if tail:
                self._fused[id(node)] = tail
                self._tail_ends[id(tail[-1])] = node
                taken.update(id(user) for user in tail)
                self._inside.update(id(user) for user in tail)

    def _fits_tail(self, head: Node, add: Node, value: str) -> bool:
        a, b = add.inputs
        if a == b:
            return False
        other = b if a == value else a
        shape = self.graph.tensor(add.outputs[0]).shape
        if self.graph.tensor(value).shape != shape or self.graph.tensor(other).shape != shape:
            return False
        rank = len(shape)
        want = "last" if head.op == "QMatMul" else "c1"
        return rank == 4 or want == "last" or rank == 3

    # Conventions and views.

    def _default_convention(self, node: Node) -> str:
        for name in (*node.inputs, *node.outputs):
            for neighbour in (self._producer.get(name), *self._consumers.get(name, [])):
                if neighbour is not None and neighbour.op in _CONVOLVES:
                    return "c1" if len(self.graph.tensor(name).shape) in (3, 4) else "last"
        return "c1" if len(self.graph.tensor(node.outputs[0]).shape) == 4 else "last"

    def convention(self, node: Node) -> str:
        """The layout an elementwise node works in: that of its full-size operand where it has one."""
        out = self.graph.tensor(node.outputs[0]).shape
        for name in node.inputs:
            native = self._native(name)
            if native is not None and self.graph.tensor(name).shape == out:
                fits = all(
                    broadcast_ok(self.graph.tensor(n).shape, out, native.convention, self.graph.tensor(n).is_const)
                    for n in node.inputs
                )
                if fits:
                    return native.convention
        return self._default_convention(node)

    def dims(self, name: str, convention: str) -> tuple[int, int, int, int]:
        dims = plane_shape(self.graph.tensor(name).shape, convention)
        assert dims is not None
        return dims

    def _native(self, name: str) -> Native | None:
        """The blocked form an NPU layer made, looked for through moves that keep bytes in place."""
        if name in self.native:
            return self.native[name]
        producer = self._producer.get(name)
        if producer is None or producer.op not in _MOVES:
            return None
        source = self._native(producer.inputs[0])
        if source is None:
            return None
        alias = self._alias(producer, source)
        if alias is not None:
            self.native[name] = alias
        return alias

    def _alias(self, node: Node, source: Native) -> Native | None:
        """`node`'s output as another reading of the same blocked bytes, None if they would have to move."""
        v, before = source.view, self.graph.tensor(node.inputs[0])
        after = self.graph.tensor(node.outputs[0])
        if before.quant is None or not before.quant.same_as(after.quant) or before.dtype != after.dtype:
            return None
        flat_rows = v.h == 1 or v.sh == v.w * v.block
        target = after.shape
        name = after.name
        if node.op == "Transpose":
            perm = tuple(node.attrs.get("perm") or range(len(before.shape))[::-1])
            if len(perm) == 3 and perm == (0, 2, 1) and flat_rows:
                flipped = "last" if source.convention == "c1" else "c1"
                return Native(flipped, replace(v, h=1, w=v.h * v.w, sh=v.h * v.w * v.block, tensor=name))
            if source.convention == "c1" and len(perm) == 4 and v.h == v.w == 1 and perm[0] == 0:
                return None
            return Native(source.convention, replace(v, tensor=name)) if perm == tuple(range(len(perm))) else None
        for convention in ("c1", "last"):
            dims = plane_shape(target, convention)
            if dims is None or (convention == "c1" and len(target) == 2):
                continue
            n, c, h, w = dims
            if c != v.c or n * h * w != v.n * v.h * v.w:
                continue
            if source.convention == "c1" and convention == "last" and not self._channels_last(before.shape, target):
                continue
            if source.convention == "last" and convention == "c1" and v.n * v.h * v.w != n:
                continue
            if source.convention == "c1" and convention == "c1" and target[0] != v.n:
                continue
            if (n, h, w) == (v.n, v.h, v.w):
                return Native(convention, replace(v, tensor=name))
            if flat_rows and n == v.n and h * w == v.h * v.w:
                return Native(convention, replace(v, h=h, w=w, sh=w * v.block, tensor=name))
            if v.h * v.w == 1 and n == 1 and h == 1 and v.sn == v.block:  # images of one block become rows
                return Native(convention, replace(v, n=1, h=1, w=w, sn=0, sh=w * v.block, tensor=name))
            if v.n == 1 and v.w == 1 and h * w == 1:  # rows become images
                return Native(convention, replace(v, n=n, h=1, w=1, sn=v.sh, sh=v.block, tensor=name))
            if v.n == 1 and v.h == 1 and h * w == 1:
                return Native(convention, replace(v, n=n, h=1, w=1, sn=v.block, sh=v.block, tensor=name))
        return None

    @staticmethod
    def _channels_last(before: tuple[int, ...], after: tuple[int, ...]) -> bool:
        """True if a reshape from [N, C, 1, ...] keeps C as the last axis."""
        return all(d == 1 for d in before[2:]) and after[-1] == before[1]

    def view(self, name: str, convention: str, like: str | None = None) -> View:
        """The blocked form of a tensor, converted on the CPU if no layer made it that way. `like` names the tensor
        along which a broadcast operand is walked."""
        t = self.graph.tensor(name)
        if like is not None:
            out = self.graph.tensor(like).shape
            if t.shape != out:
                return self._broadcast_view(t, convention, out)
        native = self._native(name)
        if native is not None and native.convention == convention:
            return native.view
        key = (name, convention)
        if key not in self._views:
            self._views[key] = self._convert(t, t.shape, convention)
        return self._views[key]

    def _broadcast_view(self, t: Tensor, convention: str, out: tuple[int, ...]) -> View:
        full = (1,) * (len(out) - len(t.shape)) + t.shape
        key = (t.name, f"{convention}:{'x'.join(map(str, out))}")
        if key in self._views:
            return self._views[key]
        native = self._native(t.name)
        if native is not None and native.convention == convention and full == t.shape:
            view = native.view
        elif t.is_const:
            assert t.data is not None
            dims = plane_shape(out, convention)
            c_axis = len(out) - 1 if convention == "last" else 1
            spread = list(full)
            assert dims is not None
            spread[c_axis] = dims[1]
            data = np.broadcast_to(t.data.reshape(full), spread)
            view = self._constant_view(t, np.ascontiguousarray(data), convention)
        else:
            view = self._convert(t, full, convention)
        self._views[key] = view
        return view

    def _constant_view(self, t: Tensor, data: np.ndarray, convention: str) -> View:
        name = f"{t.name}@{convention}:{'x'.join(map(str, data.shape))}"
        dims = plane_shape(data.shape, convention)
        assert dims is not None
        out, _ = relayout_tables(data.shape, convention, self.config.block_in)
        stored = (data.view(np.uint8) ^ 0x80).view(np.int8) if data.dtype == np.uint8 else data
        n, c, h, w = dims
        moved = stored.reshape(n, h, w, c).transpose(0, 3, 1, 2) if convention == "last" else stored.reshape(n, c, h, w)
        blocks = np.zeros((n, out[1] * out[4], h, w), np.int8)
        blocks[:, :c] = moved
        final = blocks.reshape(n, out[1], out[4], h, w).transpose(0, 1, 3, 4, 2)
        self.constants[name] = np.ascontiguousarray(final).tobytes()
        return packed(t.name, name, CONSTANT_REGION, dims, self.config.block_in)

    def _convert(self, t: Tensor, shape: tuple[int, ...], convention: str) -> View:
        if t.is_const:
            assert t.data is not None
            return self._constant_view(t, t.data.reshape(shape), convention)
        source = self.plain(t.name)
        if shape != t.shape:
            source = self._reshape(source, shape)
        dims = plane_shape(shape, convention)
        assert dims is not None
        out, tables = relayout_tables(shape, convention, self.config.block_in)
        name = self._relayout(t, source, out, tables, f"{t.name}@{convention}", fill=0)
        return packed(t.name, name, ARENA_REGION, dims, self.config.block_in)

    def _reshape(self, source: str, shape: tuple[int, ...]) -> str:
        t = self.graph.tensor(source)
        name = self.graph.unique(f"{source}@shape")
        self.graph.add(Tensor(name, shape, t.dtype, None, t.quant))
        target = self.graph.constant(f"{name}.shape", np.array(shape, np.int64))
        self._plain.add(target)
        self.items.append(Item(node=Node("Reshape", [source, target], [name], {}, name)))
        return name

    def _relayout(
        self, t: Tensor, source: str, out: tuple[int, ...], tables: list, stem: str, fill: int, arena: bool = True
    ) -> str:
        name = stem if stem not in self.graph.tensors else self.graph.unique(stem)
        self.graph.add(Tensor(name, tuple(out), np.dtype(np.int8)))
        xor = 0x80 if t.dtype == np.uint8 and self.graph.tensor(source).dtype == np.uint8 else 0
        attrs = {"shape": tuple(out), "tables": tables, "fill": fill, "xor": xor}
        self.items.append(Item(node=Node("Relayout", [source], [name], attrs, name)))
        if arena:
            self.blocked[name] = int(np.prod(out))
        return name

    def output(self, name: str, convention: str) -> View:
        """A new blocked buffer for a tensor a layer makes."""
        dims = self.dims(name, convention)
        buffer = f"{name}@{convention}"
        view = packed(name, buffer, ARENA_REGION, dims, self.config.block_in)
        self.blocked[buffer] = view.nbytes
        block = self.config.block_in
        self.graph.add(Tensor(buffer, (view.n, view.cb, view.h, view.w, block), np.dtype(np.int8)))
        self.native[name] = Native(convention, view)
        return view

    def table(self, table: bytes | None, x: str, y: str) -> bytes:
        """A 256-byte table between model bytes as the machine indexes it: by and with int8 bit patterns."""
        raw = np.frombuffer(IDENTITY_TABLE if table is None else table, np.uint8)
        flip_in, flip_out = (np.uint8(0x80 if self.graph.tensor(t).dtype == np.uint8 else 0) for t in (x, y))
        return bytes(raw[np.arange(256, dtype=np.uint8) ^ flip_in] ^ flip_out)

    # Plain tensors and CPU nodes.

    def plain(self, name: str) -> str:
        """Makes sure the plain form of a tensor is there; returns its name."""
        if not name or name in self._plain:
            return name
        self._plain.add(name)
        if name in self.native and self._owner(name):
            native = self.native[name]
            t = self.graph.tensor(name)
            tables = unpack_tables(t.shape, native.convention, self.config.block_in)
            attrs = {
                "shape": t.shape, "tables": tables, "fill": 0, "xor": 0x80 if t.dtype == np.uint8 else 0,
            }  # fmt: skip
            self.items.append(Item(node=Node("Relayout", [native.view.buffer], [name], attrs, name)))
            return name
        self._cpu(self._producer[name])
        return name

    def _owner(self, name: str) -> bool:
        """True if a layer wrote this very tensor (an alias has the buffer of another)."""
        return self.native[name].view.buffer.rsplit("@", 1)[0] == name

    def _cpu(self, node: Node) -> None:
        for name in node.inputs:
            self.plain(name)
        self._plain.update(name for name in node.outputs if name)
        self.items.append(Item(node=node))

    # NPU layers.

    def _lower(self, node: Node) -> None:
        for layer in lower.LOWER[node.op](self, node, self._fused.get(id(node), [])):
            layer.source = node.outputs[0]
            self.items.append(Item(layer=layer))

    def pack_input(
        self,
        node: Node,
        kernel_shape: tuple[int, ...],
        stride: tuple[int, int],
        dilation: tuple[int, int],
        pad: tuple[int, int],
        group: int,
    ) -> PackedInput | None:
        """A packed input for a convolution with few channels on a tensor that comes from the CPU, else None."""
        t, y = self.graph.tensor(node.inputs[0]), self.graph.tensor(node.outputs[0])
        if group != 1 or self._native(t.name) is not None or t.is_const:
            return None
        o, c, kh, kw = kernel_shape
        size = plane_shape(t.shape, "c1")
        out = plane_shape(y.shape, "c1")
        assert size is not None and out is not None
        plan = plan_packing(self.config, c, size[2:], out[2:], o, (kh, kw), stride, dilation, pad)
        if plan is None:
            return None
        block = self.config.block_in
        shape, tables = plan.tables(t.shape[0], block, stride[1], pad[1], dilation[1])
        if len(t.shape) == 3:
            del tables[2]
        fill = stored_zero_point(t)
        rows = self._relayout(t, self.plain(t.name), shape, tables, f"{t.name}@rows", fill, arena=False)
        n, h, w, channels = shape
        i = [np.arange(k, dtype=np.int32) for k in (n, channels // block, h, w, block)]
        moved = [{0: i[0]}, {2: i[2]}, {3: i[3]}, {1: i[1] * block, 4: i[4]}]
        name = self._relayout(t, rows, (n, channels // block, h, w, block), moved, f"{t.name}@pack", fill)
        view = packed(t.name, name, ARENA_REGION, (n, channels, h, w), block)
        pad_c, plan_c = plan.packed_channels, plan

        def repack(weights: np.ndarray) -> np.ndarray:
            small = repack_weights(plan_c, weights)
            full = np.zeros((small.shape[0], channels, *small.shape[2:]), small.dtype)
            full[:, :pad_c] = small
            return full

        return PackedInput(view, (plan.pad_rows, 0), (plan.stride_rows, 1), (plan.dilation_rows, 1), repack)

    def dynamic_weights(self, node: Node, za: int, scale: float) -> DynamicWeights:
        """Packs the second operand of an activation product into weight tiles and PRM rows, on the CPU."""
        b = self.graph.tensor(node.inputs[1])
        source = self.plain(b.name)
        bi, bo = self.config.block_in, self.config.block_out
        k, n = b.shape[-2:]
        batch = b.shape[:-2]
        vectors = -(-n // bi)
        ob, kb = max(-(-n // bo), -(-vectors * bi // bo)), -(-k // bi)
        count = int(np.prod(batch, dtype=np.int64))
        index = np.unravel_index(np.arange(count), batch) if batch else ()
        tables: list[dict] = [{0: i.astype(np.int32)} for i in index]
        i32 = np.int32
        tables.append({2: np.arange(kb, dtype=i32) * bi, 4: np.arange(bi, dtype=i32)})
        tables.append({1: np.arange(ob, dtype=i32) * bo, 3: np.arange(bo, dtype=i32)})
        tiles = self._relayout(b, source, (count, ob, kb, bo, bi), tables, f"{b.name}@tiles", fill=0)
        zb = stored_zero_point(b)
        params = self.graph.unique(f"{b.name}@params")
        shape = (*batch, vectors, bi, 2)
        self.graph.add(Tensor(params, shape, np.dtype(np.int32)))
        attrs = {
            "a_zero_point": za, "b_zero_point": zb, "scale": np.float32(scale), "lanes": bi,
            "xor": 0x80 if b.dtype == np.uint8 else 0,
        }  # fmt: skip
        self.items.append(Item(node=Node("PackMatMulParams", [source], [params], attrs, params)))
        self.blocked[params] = int(np.prod(shape)) * 4
        return DynamicWeights(tiles, params, k, zb)


__all__ = ["Item", "Partition"]
