"""Placement cost: the time a node takes on the NPU or on the CPU, conversions included."""

from __future__ import annotations

import copy

from msgspec import Struct

from tilewright.compiler.cpu.cost import HostModel, Work
from tilewright.compiler.cpu.segment import prepare_segment
from tilewright.compiler.cpu.target import Target
from tilewright.compiler.graph.graph import Node
from tilewright.compiler.graph.ops.elementwise import QAdd, QLut
from tilewright.compiler.graph.ops.product import QMatMul
from tilewright.compiler.npu.blocks.wiring import Wiring
from tilewright.compiler.npu.ops import is_light, npu_op_of
from tilewright.compiler.npu.place.made_weights import OnNpu, becomes_weights
from tilewright.isa.config import NpuConfig

#: The host's work to convert one byte between plain tensors and blocks: bytes move one by one, in short loops.
_CONVERSION = Work(plain=1.0, turns=0.5)
_PACKING = 3  # conversions that packing a product's second operand is worth: tiles, sums of columns, biases


class PlacementCost(Struct, frozen=True):
    """The times that decide where a node runs: those of a host, and of the NPU at its clock.

    Attributes:
        host: the host's speed.
        target: the machine its kernels are compiled for.
        config: the NPU.
        mhz: clock of the NPU.
    """

    host: HostModel
    target: Target
    config: NpuConfig
    mhz: float

    def reason_for_cpu(self, wiring: Wiring, node: Node, on_npu: OnNpu) -> str | None:
        """Returns the reason why a node is better run by the CPU, None if the NPU should run it.

        Only light ops are considered, whose conversions may outweigh them, and products of two activations, whose
        second operand the CPU may have to pack. The NPU's time is a lower bound.

        Args:
            wiring: the graph.
            node: a node that the NPU can run.
            on_npu: returns True for nodes that run on the NPU.
        """
        dynamic = isinstance(node.quantized, QMatMul) and not wiring.tensor(node.inputs[1]).is_const
        if not (is_light(node) or dynamic) or self._joins(wiring, node, on_npu):
            return None
        npu, cpu = self.npu_seconds(wiring, node, on_npu), self.cpu_seconds(wiring, node, on_npu)
        if cpu >= npu:
            return None
        return (
            f"{self.host.name} takes about {1e6 * cpu:.0f} us with its conversions, the NPU at {self.mhz:g} MHz "
            f"at least {1e6 * npu:.0f} us"
        )

    def npu_seconds(self, wiring: Wiring, node: Node, on_npu: OnNpu) -> float:
        """Returns the least seconds a node takes on the NPU, with conversions of tensors the CPU makes or reads."""
        operands, results = _tensors(wiring, node)
        rows = max(wiring.tensor(name).size for name in (*operands, *results)) / self.config.block_out
        cycles = max(rows, wiring.graph.macs(node) / self.config.macs_per_cycle)
        dynamic = isinstance(node.quantized, QMatMul) and len(operands) > 1
        free = {operands[1]} if dynamic and becomes_weights(wiring, node, self.config, on_npu) else set()
        converted = sum(wiring.tensor(n).size for n in operands if n not in free and not _made_by(wiring, n, on_npu))
        converted += sum(wiring.tensor(n).size for n in results if not _read_by(wiring, n, on_npu))
        if dynamic and not free:
            converted += _PACKING * wiring.tensor(operands[1]).size
        alone = not any(_made_by(wiring, n, on_npu) for n in operands) and not any(
            _read_by(wiring, n, on_npu) for n in results
        )
        return cycles / self.mhz / 1e6 + self._conversion(converted) + alone * self.host.turn_seconds

    def cpu_seconds(self, wiring: Wiring, node: Node, on_npu: OnNpu) -> float:
        """Returns the seconds a node takes on the CPU, with conversions of tensors the NPU makes or reads.

        Where it reads from the NPU and back, it splits the NPU's work in two, which costs a turn.
        """
        operands, results = _tensors(wiring, node)
        out = [n for n in operands if _made_by(wiring, n, on_npu)]
        back = [n for n in results if _read_by(wiring, n, on_npu)]
        graph = copy.copy(wiring.graph)
        graph.tensors = dict(graph.tensors)  # packed constants are added to them
        segment = prepare_segment(graph, [node], operands, results, "tw_estimate", self.target)
        found = sum(self.host.seconds(vars(cost.work), cost.nbytes) for cost in segment.costs)
        found += self._conversion(sum(wiring.tensor(n).size for n in (*out, *back)))
        if out and back:
            found += self.host.turn_seconds + self.host.call_cycles / self.host.mhz / 1e6
        return found

    @property
    def byte_cycles(self) -> float:
        """The cycles of the NPU in which the host converts a byte."""
        return self._conversion(1) * self.mhz * 1e6

    def _conversion(self, nbytes: int) -> float:
        """Returns the seconds in which the host converts `nbytes` bytes."""
        return self.host.seconds(vars(_CONVERSION * nbytes), 2 * nbytes)

    @staticmethod
    def _joins(wiring: Wiring, node: Node, on_npu: OnNpu) -> bool:
        """Returns True if a node may become the tail of the node before it, and cost nothing."""
        makers = [wiring.producers.get(name) for name in node.inputs if name]
        before = [npu_op_of(maker) for maker in makers if maker is not None and on_npu(maker)]
        takes_add = isinstance(node.quantized, QAdd) and any(op.takes_add for op in before if op)
        return takes_add or (isinstance(node.quantized, QLut) and any(op.takes_table for op in before if op))


def _tensors(wiring: Wiring, node: Node) -> tuple[list[str], list[str]]:
    """Returns the names of a node's operands that are not constant, and of its results."""
    operands = list(dict.fromkeys(n for n in node.inputs if n and not wiring.tensor(n).is_const))
    return operands, [n for n in node.outputs if n]


def _made_by(wiring: Wiring, name: str, on_npu: OnNpu) -> bool:
    """Returns True if a node for which `on_npu` is true makes the tensor."""
    maker = wiring.producers.get(name)
    return maker is not None and on_npu(maker)


def _read_by(wiring: Wiring, name: str, on_npu: OnNpu) -> bool:
    """Returns True if a node for which `on_npu` is true reads the tensor."""
    return any(on_npu(reader) for reader in wiring.readers(name))
