"""Channels that are constant for every input, or that nothing reads, are not computed.

Weights of a pruned network leave channels whose value does not depend on the input: all weights of a filter are zero,
or the sums of all inputs are requantised to one integer (`channel_ranges.py` proves it). A product that reads such a
channel has its share in the bias instead,

    sum of w * (x - zx)  =  sum over the other channels  +  (c - zx) * sum of w over the window

unless a window may lie on padding, where the share is another one: there a constant is dropped only if it is the zero
point. A channel that all products skip is made by nobody; layers that work on each channel for itself lose it too
(`channel_links.py`). Channels are dropped by blocks: less would leave the machine with as many steps as before.

Tensors of fewer channels are no longer those of the model and get names of their own. What is left has equal bytes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from msgspec import Struct, field

from tilewright.compiler.graph.graph import DroppedChannels, Graph, Node, Quant
from tilewright.compiler.graph.ops.concat import QConcat
from tilewright.compiler.graph.ops.convolution import QConv, QConvTranspose
from tilewright.compiler.graph.ops.quantized_op import Weighted
from tilewright.compiler.npu.rewrites.channel_links import Channels
from tilewright.compiler.npu.rewrites.channel_ranges import ChannelRanges
from tilewright.isa.config import NpuConfig

#: Largest magnitude of a bias with the shares of dropped channels.
_MOST_ADDED = 1 << 30


def drop_channels(graph: Graph, config: NpuConfig) -> None:
    """Drops the channels of products and of layers behind them that need not be computed."""
    channels = Channels(graph)
    ranges = ChannelRanges(channels)
    needs = _Needs(ranges, config)
    if needs.find():
        _Dropping(needs).run()


class _Needs(Struct):
    """The channels that have to be computed, bool [channels] by name of the tensor."""

    ranges: ChannelRanges
    config: NpuConfig
    kept: dict[str, np.ndarray] = field(default_factory=dict)
    folded: dict[str, np.ndarray] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)

    @property
    def channels(self) -> Channels:
        return self.ranges.channels

    @property
    def graph(self) -> Graph:
        return self.ranges.graph

    def find(self) -> bool:
        """Finds the least channels that everything read can be made of; returns False if that is all of them."""
        graph, channels = self.graph, self.channels
        if not self._anything_to_drop():
            return False
        self.kept = {name: np.zeros(channels.count(name), bool) for name in channels.axes}
        self.whole = {name for node in graph.nodes for name in channels.reads_all(node)} | {*graph.outputs}
        for name in self.whole & self.kept.keys():
            self.kept[name][:] = True
        while True:
            before = self._amount()
            for node in reversed(graph.nodes):
                self._read_by(node)
            for node in graph.nodes:
                self._linked(node)
            if self._amount() == before and not self._filled():
                return any(not kept.all() for kept in self.kept.values())

    def _anything_to_drop(self) -> bool:
        ranges = self.ranges
        products = (node for node in self.graph.nodes if self.channels.of_product(node) is not None)
        return any(ranges.constant(name).any() for name in ranges.of) or not all(
            ranges.read(node, np.ones(self.channels.count(node.outputs[0]), bool)).all() for node in products
        )

    def _amount(self) -> int:
        return sum(int(kept.sum()) for kept in self.kept.values())

    def _folded(self, node: Node) -> np.ndarray:
        """bool [inputs]: the channels whose share in a product is the same in every sum, and can be part of a bias."""
        x, op = self.graph.tensor(node.inputs[0]), node.quantized
        constant = self.ranges.constant(x.name)
        if isinstance(op, QConvTranspose) or (isinstance(op, QConv) and max(op.pads) > 0):
            assert x.quant is not None
            constant = constant & (self.ranges.of[x.name][0] == int(x.quant.zero_point))
        most = np.abs(self.ranges.bias(node)) + np.abs(self._shares(node, constant)).sum(1)
        return np.asarray(constant & (most.max(initial=0) <= _MOST_ADDED))

    def _shares(self, node: Node, folded: np.ndarray) -> np.ndarray:
        """int64 [outputs, folded inputs]: the shares of constant channels in the sums of a product."""
        x = self.graph.tensor(node.inputs[0])
        assert x.quant is not None
        values = self.ranges.of[x.name][0][folded] - int(x.quant.zero_point)
        return np.asarray(self.ranges.weights(node)[:, folded].sum(2, dtype=np.int64) * values)

    def bias(self, node: Node, columns: np.ndarray) -> np.ndarray:
        """int64 [outputs]: the bias of a product with the shares of the inputs that are not in `columns`."""
        bias = self.ranges.bias(node)
        if columns.all():
            return bias
        return np.asarray(bias + self._shares(node, self.folded[node.outputs[0]] & ~columns).sum(1))

    def _read_by(self, node: Node) -> None:
        """Adds the channels that a node reads for what is needed of its result."""
        name, x = node.outputs[0], node.inputs[0] if node.inputs else ""
        if x in self.kept and name in self.channels.products and x not in self.whole:
            if name not in self.folded:
                self.folded[name] = self._folded(node)
            missing = ~(self.kept[x] | self.folded[name])
            if missing.any():
                self.kept[x] |= missing & self.ranges.read(node, self.kept[name] & ~self.ranges.constant(name))
        self._linked(node)

    def _linked(self, node: Node) -> None:
        """Makes operands and result have the same channels where a node works on each for itself."""
        for link in self.channels.linked(node):
            made, operand = self.kept[node.outputs[0]], node.inputs[link.index]
            if operand in self.kept:
                self.kept[operand] |= made[link.places].any(1)
                made[link.places] |= self.kept[operand][:, None]
            elif self.graph.const(operand) is None:
                made[link.places] = True

    def _filled(self) -> bool:
        """Fills blocks of channels up; returns True if any has become needed by that.

        Of tensors whose channels are linked one is filled at a time, since each would choose channels of its own.
        """
        block = min(self.config.block_in, self.config.block_out)
        blocks = dict.fromkeys(self.kept, block)
        for node in self.graph.nodes:
            if isinstance(node.quantized, QConcat):  # parts that begin within a block are moved lane by lane
                blocks |= {name: self.config.block_in for name in node.inputs if name in blocks}
        filled = set()
        for name, kept in self.kept.items():
            missing = min(-(-max(int(kept.sum()), 1) // blocks[name]) * blocks[name], len(kept)) - int(kept.sum())
            if missing > 0 and self.channels.linked_group[name] not in filled:
                dropped = np.flatnonzero(~kept)
                constant = self.ranges.constant(name)[dropped]  # the others read what may not be needed otherwise
                kept[dropped[np.argsort(~constant, kind="stable")][:missing]] = True
                filled.add(self.channels.linked_group[name])
        return bool(filled)


class _Dropping(Struct):
    """The rewriting of a graph whose tensors have the channels of `needs.kept` only."""

    needs: _Needs
    there: dict[str, str] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)

    @property
    def graph(self) -> Graph:
        return self.needs.graph

    def run(self) -> None:
        graph, ranges = self.graph, self.needs.ranges
        before = sum(graph.macs(node) for node in graph.nodes)
        made = [node.outputs[0] for node in graph.nodes if isinstance(node.quantized, Weighted)]
        constant = {name: ranges.constant(name) for name in made if name in ranges.of}
        for node in graph.nodes:
            self.nodes.append(self._narrowed(node))
        graph.nodes = self.nodes
        graph.prune()
        graph.dropped = DroppedChannels(
            constant=sum(int(c.sum()) for c in constant.values()),
            unread=sum(int((~c & ~self.needs.kept[name]).sum()) for name, c in constant.items()),
            channels=sum(c.size for c in constant.values()),
            macs_before=before,
            macs=sum(graph.macs(node) for node in graph.nodes),
        )

    def _narrowed(self, node: Node) -> Node:
        """A node that makes only the channels that are kept, from operands that have only those."""
        name, kept = node.outputs[0], self.needs.kept
        inputs = [self.there.get(i, i) for i in node.inputs]
        result = self._result(name)
        if name in self.needs.channels.products:
            return self._product(node, inputs, result)
        op = node.quantized
        if inputs == node.inputs and result == name:
            return node
        for link in self.needs.channels.linked(node):
            if node.inputs[link.index] not in kept:
                picked = kept[name][link.places].any(1)
                inputs[link.index] = self._part(node.inputs[link.index], picked, link.axis)
        if isinstance(op, QConv):
            op = replace(op, group=self.graph.tensor(inputs[0]).shape[1])
            inputs[1:] = [self._part(i, kept[name], 0) if i else i for i in inputs[1:]]
        elif node.op == "Reshape":
            inputs[1] = self.graph.constant("shape", np.array(self.graph.tensor(result).shape, np.int64))
        return replace(node, inputs=inputs, outputs=[result, *node.outputs[1:]], quantized=op)

    def _product(self, node: Node, inputs: list[str], result: str) -> Node:
        """A product without the dropped channels of either side. A constant row has its value from the bias."""
        graph, needs, name = self.graph, self.needs, node.outputs[0]
        product, kept = needs.channels.products[name], needs.kept[name]
        x, w = node.inputs[0], graph.tensor(node.inputs[1])
        columns = needs.kept[x] if x in self.there else np.ones(w.shape[product.inputs], bool)
        if kept.all() and columns.all():
            return node
        constant = needs.ranges.constant(name)
        bias = np.where(constant, needs.ranges.least_sums(node), needs.bias(node, columns))[kept]
        assert w.data is not None and w.quant is not None
        weights = w.data.copy() if product.outputs == 0 else w.data.swapaxes(0, 1).copy()
        zeros = np.broadcast_to(w.quant.zero_point, len(weights)).reshape(-1, *[1] * (weights.ndim - 1))
        weights = np.where(constant.reshape(zeros.shape), zeros.astype(w.dtype), weights)[kept][:, columns]
        if product.outputs == 1:
            weights = weights.swapaxes(0, 1)
        quant = _picked(w.quant, kept)
        names = [
            graph.constant(f"{w.name}.channels", np.ascontiguousarray(weights), quant),
            graph.constant(f"{name}.bias", bias.astype(np.int32), self._bias_quant(node, kept)),
        ]
        return replace(node, inputs=[inputs[0], *names], outputs=[result])

    def _bias_quant(self, node: Node, kept: np.ndarray) -> Quant | None:
        given = self.graph.tensors.get(node.inputs[2]) if len(node.inputs) > 2 else None
        return None if given is None or given.quant is None else _picked(given.quant, kept)

    def _result(self, name: str) -> str:
        """The tensor with the kept channels of a result."""
        graph, kept = self.graph, self.needs.kept.get(name)
        if kept is None or kept.all():
            return name
        tensor, axis = graph.tensor(name), self.needs.channels.axes[name]
        shape = (*tensor.shape[:axis], int(kept.sum()), *tensor.shape[axis + 1 :])
        self.there[name] = graph.like(tensor, f"{name}.channels", shape)
        return self.there[name]

    def _part(self, name: str, kept: np.ndarray, axis: int) -> str:
        """The kept channels of a constant."""
        tensor = self.graph.tensor(name)
        if kept.all():
            return name
        assert tensor.data is not None
        quant = None if tensor.quant is None else _picked(tensor.quant, kept)
        return self.graph.constant(f"{name}.channels", np.compress(kept, tensor.data, axis), quant)


def _picked(quant: Quant, kept: np.ndarray) -> Quant:
    """The quantisation of the kept channels."""
    if quant.per_tensor or quant.scale.size != len(kept):
        return quant
    return Quant(quant.scale[kept], quant.zero_point[kept], quant.axis)
