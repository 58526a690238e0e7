"""Chooses the nodes of LiteRT's graph to take: those our partitioner puts on the NPU, and those between them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tilewright.common.errors import TilewrightError
from tilewright.compiler.graph.graph import Node
from tilewright.compiler.importer.tflite.part import Shapes, Survey
from tilewright.compiler.importer.tflite.schema import FileOp
from tilewright.compiler.passes import run_passes
from tilewright.compiler.stages.exactness import inexact_tensors
from tilewright.compiler.stages.partition import partition
from tilewright.isa.config import NpuConfig
from tilewright.litert.part import LOCK, Piece, Source, Target
from tilewright.litert.report import Report

#: A node's index, its inputs, its outputs.
SeenNode = tuple[int, tuple[int, ...], tuple[int, ...]]
KEPT_PLANS = 16


@dataclass
class Plan:
    """The nodes taken of a graph, as compiled parts, with a report.

    Attributes:
        source: the model.
        survey: the model as it was imported.
        pieces: the parts expected, each compiled, by their operators.
        report: for the user.
    """

    source: Source
    survey: Survey
    pieces: dict[tuple[int, ...], Piece] = field(default_factory=dict)
    report: Report = field(default_factory=Report)

    @property
    def taken(self) -> set[int]:
        return {i for ops in self.pieces for i in ops}


def make_plan(data: bytes, target: Target, nodes: Sequence[SeenNode], shapes: Shapes) -> Plan:
    """Decides what to take of a graph, and compiles it; equal graphs get the same plan.

    Args:
        data: the model's file.
        nodes: as LiteRT has them now.
        shapes: of all tensors now.

    Raises:
        CompileError: nothing of the model can be compiled.
    """
    with LOCK:
        source = Source.of(data)
        key = (source.digest, target, tuple(nodes), tuple(shapes.items()))
        found = _plans.pop(key, None) or _make(source, target, nodes, shapes)
        _plans[key] = found
        while len(_plans) > KEPT_PLANS:
            _plans.pop(next(iter(_plans)))
        return found


_plans: dict[Any, Plan] = {}


def _make(source: Source, target: Target, nodes: Sequence[SeenNode], shapes: Shapes) -> Plan:
    ops = source.model.ops
    found = source.survey(shapes)
    plan = Plan(source, found)
    why = dict(found.refused)
    seen = {index: (inputs, outputs) for index, inputs, outputs in nodes}
    for op in ops:
        if seen.get(op.index) != (tuple(op.inputs), tuple(op.outputs)):
            why[op.index] = "it is another node in LiteRT's graph than in the file: a delegate was there before"
        elif op.outputs and all(i in found.known for i in op.outputs):
            why.setdefault(op.index, "its value is known before the model runs")
    placed = _place(source, target, found)
    for index, reason in placed.inexact.items():
        why.setdefault(index, f"it may differ from LiteRT by a step: {reason}")
    here = [op for op in ops if op.index in seen]
    taken = {op.index for op in here if op.index not in why}
    if target.everything:
        placed.npu = set(taken)
    failed: dict[int, str] | None = None
    while failed is None or failed:
        taken, groups = worthwhile_parts(here, taken, placed.npu)
        failed = _compile(plan, target, groups, shapes)
        taken -= failed.keys()
        why |= failed
    plan.report.nodes = len(ops)
    plan.report.parts = len(groups)
    for op in ops:
        if op.index in taken:
            plan.report.taken.append(op.label)
        else:
            cpu = placed.cpu.get(op.index)
            otherwise = f"it would not run on the NPU: {cpu}" if cpu else "it is not between two operators of the NPU"
            plan.report.reasons[op.label] = why.get(op.index, otherwise)
    return plan


def clusters(ops: Sequence[FileOp], taken: set[int]) -> list[list[FileOp]]:
    """Groups the nodes to take as LiteRT does: it goes on with nodes of one kind, taken or not, as long as there are
    some whose operands are made."""
    made = {i for op in ops for i in op.outputs}
    done: set[int] = set()
    left, found = list(ops), []
    while left:
        group: list[FileOp] = []
        more = True
        while more:
            more, rest = False, []
            for op in left:
                same = not group or (op.index in taken) == (group[0].index in taken)
                if same and all(i in done or i not in made for i in op.inputs):
                    group.append(op)
                    done |= set(op.outputs)
                    more = True
                else:
                    rest.append(op)
            left = rest
        if not group:  # operators that wait for each other: a damaged file
            break
        if group[0].index in taken:
            found.append(group)
    return found


def worthwhile_parts(ops: Sequence[FileOp], taken: set[int], npu: set[int]) -> tuple[set[int], list[list[int]]]:
    """The nodes of `taken` that are worth taking, and their parts: each begins and ends with work for the NPU."""
    while True:
        groups = [between(group, npu) for group in clusters(ops, taken)]
        kept = {i for group in groups for i in group}
        if kept == taken:
            return kept, [group for group in groups if group]
        taken = kept


def between(group: Sequence[FileOp], npu: set[int]) -> list[int]:
    """The operators of a part on the NPU, and those between two of them: behind one, and before one."""
    after: set[int] = set()  # tensors behind NPU work
    before: set[int] = set()  # tensors that NPU work needs
    behind, ahead = set(), set()
    for op in group:
        if op.index in npu or after & set(op.inputs):
            after |= set(op.outputs)
            behind.add(op.index)
    for op in reversed(group):
        if op.index in npu or before & set(op.outputs):
            before |= set(op.inputs)
            ahead.add(op.index)
    return [op.index for op in group if op.index in behind & ahead]


def _compile(plan: Plan, target: Target, groups: list[list[int]], shapes: Shapes) -> dict[int, str]:
    """Compiles the pieces; returns the reasons for those that fail, by operator."""
    plan.pieces.clear()
    plan.report.macs = plan.report.npu_macs = 0
    for group in groups:
        piece = Piece.of(plan.source, target, plan.survey, group, None)
        try:
            program = piece.program(shapes)
        except TilewrightError as error:
            return dict.fromkeys(group, str(error))
        plan.pieces[piece.ops] = piece
        plan.report.macs += program.macs
        plan.report.npu_macs += program.npu_macs
    return {}


@dataclass
class _Placed:
    """Placement of the operators, by index: on the NPU, on the CPU with the reason, and those whose bytes may differ.
    `differs` is set where some may because of the NPU."""

    npu: set[int] = field(default_factory=set)
    cpu: dict[int, str] = field(default_factory=dict)
    inexact: dict[int, str] = field(default_factory=dict)
    differs: bool = False


def _place(source: Source, target: Target, found: Survey) -> _Placed:
    """Places the operators by our partitioner; operators that may differ from LiteRT are left out."""
    placed = _partitioned(source, target, target.config, found)
    if not placed.differs:
        return placed
    without = _partitioned(source, target, target.config.with_(row_unit=0), found)
    return replace(without, inexact=without.inexact | placed.inexact)


def _partitioned(source: Source, target: Target, config: NpuConfig, found: Survey) -> _Placed:
    if not found.graph.nodes:
        return _Placed()
    graph = copy.deepcopy(found.graph)  # the compiler changes it
    run_passes(graph)
    indices = {op.label: op.index for op in source.model.ops}

    def operators(node: Node) -> list[int]:
        return [indices[label] for label in node.origin if label in indices]

    placed = _Placed()
    producers = graph.producers()
    for name, reason in inexact_tensors(graph).items():
        placed.inexact |= dict.fromkeys(operators(producers[name]), reason)
    nodes = list(graph.nodes)
    placement = partition(graph, config, target.options).placement
    for node in nodes:
        against = placement.reasons.get(node.name or node.outputs[0])
        if placement.on_npu(node):
            placed.npu |= set(operators(node))
            if node.reason:
                placed.inexact |= dict.fromkeys(operators(node), node.reason)
                placed.differs = True
        elif against is not None or graph.tensor(node.outputs[0]).dtype.kind == "f":
            text = against or "it computes in floats, and the NPU multiplies 8-bit integers"
            placed.cpu |= dict.fromkeys(operators(node), text)
    left = {index for node in nodes for index in operators(node)}
    for op in reversed(source.model.ops):  # what has become part of the operators that read it
        if op.index in left or set(op.outputs) & set(source.model.outputs):
            continue
        readers = {other.index for other in source.model.ops if set(other.inputs) & set(op.outputs)}
        if readers and readers <= placed.npu:
            placed.npu.add(op.index)
    return placed
