"""The compiled graph for viewers: as ONNX, for Netron, and as node data for Model Explorer.

A program has layers but no edges between them. They are those of the model's graph behind the front end and the
placement, both of which are run again here: they take a fraction of a compile and decide by nothing else.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from tilewright.api.source import ModelSource
from tilewright.common.version import tilewright_version
from tilewright.compiler.graph.graph import Graph, Node
from tilewright.compiler.npu.place.tails import Chain
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.passes import FRONTEND, run_passes
from tilewright.compiler.stages.partition import partition
from tilewright.isa.instructions import Engine
from tilewright.measure.explain import Explanation, covered
from tilewright.simulator.attribution import LayerLosses

_DOMAIN = "tilewright"
#: Colours of Model Explorer, from the fewest cycles to the most.
_GRADIENT = [(0.0, "#ffffff"), (0.3, "#ffe08a"), (1.0, "#e45756")]


@dataclass
class ViewedNode:
    """A layer of the NPU, or an op of the CPU.

    Attributes:
        name, op: as in the reports.
        inputs, outputs: names of tensors, without constants.
        facts: what a viewer shows: place, cycles, shares of engines, bytes.
    """

    name: str
    op: str
    inputs: list[str]
    outputs: list[str]
    facts: dict[str, str | int | float]


@dataclass
class GraphView:
    """The compiled graph of a model, with what a run of its program cost."""

    graph: Graph
    nodes: list[ViewedNode]
    explanation: Explanation

    def to_onnx(self) -> onnx.ModelProto:
        """Returns a model of one node for each layer. Facts are attributes and metadata; it has no weights and does
        not run."""
        ends = {*self.graph.inputs, *self.graph.outputs}
        used = ends.union(*(node.inputs + node.outputs for node in self.nodes))
        infos = {
            name: helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(t.dtype), t.shape)
            for name, t in self.graph.tensors.items()
            if name in used
        }
        nodes = []
        for node in self.nodes:
            made = helper.make_node(
                node.op.split("+")[0], node.inputs, node.outputs, node.name, domain=_DOMAIN, **node.facts
            )
            helper.set_metadata_props(made, {key: str(value) for key, value in node.facts.items()})
            nodes.append(made)
        graph = helper.make_graph(
            nodes,
            self.graph.name,
            [infos[name] for name in self.graph.inputs],
            [infos[name] for name in self.graph.outputs],
            value_info=[info for name, info in infos.items() if name not in ends],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid(_DOMAIN, 1)], ir_version=10)
        model.producer_name = tilewright_version()
        found = self.explanation
        whole = {"config": found.config.name, "cycles": found.cycles, "bound_cycles": found.bound}
        helper.set_metadata_props(model, {key: str(value) for key, value in whole.items()})
        return model

    def node_data(self) -> str:
        """Returns cycles by tensor as JSON, which Model Explorer lays over the model's own graph."""
        results = {
            name: {"value": node.facts["cycles"]}
            for node in self.nodes
            if "cycles" in node.facts
            for name in node.outputs[:1]
        }
        gradient = [{"stop": stop, "bgColor": colour} for stop, colour in _GRADIENT]
        title = f"cycles on {self.explanation.config.name}"
        return json.dumps({"main": {"name": title, "results": results, "gradient": gradient}}, indent=1) + "\n"


def graph_view(found: Explanation, source: ModelSource, options: CompileOptions) -> GraphView:
    """Joins a run's figures with the graph that its program was compiled from.

    Args:
        source: the model, and what fixes its shapes; the same as for the program.
        options: the program's.
    """
    graph = source.graph()
    run_passes(graph, FRONTEND)
    parts = partition(graph, found.config, options)
    piece_of = {id(node): piece for piece in parts.work for node in _nodes_of(piece)}
    facts, nodes = _facts(found), []
    for node in graph.nodes:
        piece = piece_of.get(id(node))
        inside = (node,) if piece is None else _nodes_of(piece)
        if node is not inside[-1]:
            continue  # the piece stands where its last node does: all that it reads is made by then
        made = {name for each in inside for name in each.outputs}
        read = dict.fromkeys(name for each in inside for name in each.inputs)
        title = " + ".join(each.name or each.outputs[0] for each in inside)
        nodes.append(
            ViewedNode(
                title,
                "+".join(each.op for each in inside),
                [name for name in read if name and name not in made and graph.const(name) is None],
                [name for name in node.outputs if name],
                facts.get(title) or {"place": "view" if piece is None else "CPU"},
            )
        )
    return GraphView(graph, nodes, found)


def _nodes_of(piece: Chain | Node) -> tuple[Node, ...]:
    return piece.nodes if isinstance(piece, Chain) else (piece,)


def _facts(found: Explanation) -> dict[str, dict[str, str | int | float]]:
    """Returns the figures of each layer by its name. Layers that run band by band share their cycles, which the
    first of them has."""
    facts: dict[str, dict[str, str | int | float]] = {}
    for row in found.rows:
        group = " + ".join(layer.name for layer in row.members) if len(row.members) > 1 else ""
        for place, layer in enumerate(row.members or [row.layer]):
            one = facts[layer.name] = {
                "place": "NPU",
                "macs": layer.macs,
                "tile": layer.tile,
                "read_bytes": layer.read_bytes,
                "write_bytes": layer.write_bytes,
            }
            if group:
                one["band_by_band"] = group
            if place == 0:
                one |= {"cycles": row.cycles, "bound_cycles": row.bound, "share": _share(row.cycles, found.cycles)}
                one |= {f"busy_{name}": share for name, share in _busy(found, row).items()}
                one |= {f"lost_to_{cause}": cycles for cause, cycles in row.losses.items() if cycles > 0}
    seconds: dict[str, float] = {}
    for kernel, time in found.latency.kernels:
        seconds[kernel.name] = seconds.get(kernel.name, 0.0) + time
    for layer in found.cpu_layers:
        facts[layer.name] = {"place": "CPU", "macs": layer.macs}
        if layer.name in seconds:
            facts[layer.name]["cpu_milliseconds"] = round(1e3 * seconds[layer.name], 6)
    return facts


def _busy(found: Explanation, row: LayerLosses) -> dict[str, float]:
    """Returns the part of a row's cycles in which each engine ran an instruction of it; more than 1 where it worked
    ahead."""
    ops, layer = found.program.ops(), row.layer
    for trace in found.traces:
        low, high = layer.first - trace.first, layer.first + layer.count - trace.first
        if 0 <= low < high <= len(trace.times):
            engines = np.array([op.instruction.engine for op in ops[layer.first : layer.first + layer.count]])
            return {
                engine.name: _share(covered(trace.started[low:high][mask], trace.ended[low:high][mask]), row.cycles)
                for engine in Engine
                if (mask := engines == engine).any() and engine != Engine.FETCH
            }
    return {}


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0
