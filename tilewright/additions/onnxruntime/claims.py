"""Chooses the nodes of onnxruntime's graph that become compiled programs, with a reason for each of the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onnx import ModelProto

from tilewright.api.compilation import compile_program
from tilewright.compiler.errors import CompileError
from tilewright.compiler.importer.onnx import import_onnx
from tilewright.compiler.importer.onnx.loader import op_of
from tilewright.compiler.npu.layers.layer import Layer
from tilewright.compiler.options import CompileOptions
from tilewright.compiler.passes import FRONTEND, run_passes
from tilewright.compiler.stages.partition import partition
from tilewright.isa.config import NpuConfig
from tilewright.isa.program import Program
from tilewright.onnxruntime.options import Options
from tilewright.onnxruntime.parts import Parts

if TYPE_CHECKING:
    from tilewright.kernel import Kernel

#: Operators whose results differ from run to run in onnxruntime.
_RANDOM = ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli")
#: Nodes that the log names one by one.
_SHOWN = 20


@dataclass
class Claim:
    """The nodes taken of a graph, as compiled programs.

    Attributes:
        model: the graph.
        groups: places of the nodes that run as one program, per program.
        programs: one per group.
        reasons: why a node is left to onnxruntime, by its place.
    """

    model: ModelProto
    groups: list[list[int]] = field(default_factory=list)
    programs: list[Program] = field(default_factory=list)
    reasons: dict[int, str] = field(default_factory=dict)

    def parts(self) -> list[ModelProto]:
        """The model of every group by itself."""
        parts = Parts(self.model)
        return [parts.part(group) for group in self.groups]

    def describe(self, options: Options, config: NpuConfig) -> dict[str, Any]:
        """The report of a session, as JSON."""
        nodes, kernels = self.model.graph.node, kernels_of(options)
        taken = [nodes[i] for group in self.groups for i in group]
        return {
            "nodes": len(nodes),
            "kernels": [n.name for n in taken if any(kernel.runs_op(op_of(n)) for kernel in kernels)],
            "device": options.device,
            "config": config.name,
            "programs": [
                {"nodes": len(group), "macs": program.macs, "npu_macs": program.npu_macs}
                for group, program in zip(self.groups, self.programs)
            ],
            "left": [
                {"node": nodes[i].name or next(iter(nodes[i].output), ""), "op": nodes[i].op_type, "reason": reason}
                for i, reason in sorted(self.reasons.items())
            ],
        }

    def log(self) -> list[str]:
        """Lines for onnxruntime's log; one that begins with ! is a warning."""
        nodes = self.model.graph.node
        lines = []
        for group, program in zip(self.groups, self.programs):
            share = f"{program.npu_macs / program.macs:.1%} of {program.macs:,} MACs" if program.macs else "no MACs"
            lines.append(f"{len(group)} of {len(nodes)} nodes run as one program, {share} on the NPU")
        if not self.groups and self.reasons:
            lines.append(f"!no node is taken: {Counter(self.reasons.values()).most_common(1)[0][0]}")
        for i, reason in sorted(self.reasons.items())[:_SHOWN]:
            lines.append(f"left to onnxruntime: {nodes[i].op_type} {nodes[i].name!r}: {reason}")
        if len(self.reasons) > _SHOWN:
            lines.append(f"left to onnxruntime: {len(self.reasons) - _SHOWN} more")
        return [" ".join(line.split()) for line in lines]


def claim(
    model: ModelProto, left: Mapping[int, str], options: Options, config: NpuConfig, shares: bool = True
) -> Claim:
    """Takes what can be compiled and, unless everything is wanted, has work for the NPU.

    Args:
        left: nodes that are not to be taken whatever they are, by place, with the reason.
        shares: onnxruntime can hand values from a program to its own nodes and back.
    """
    parts = Parts(model)
    found = Claim(model, reasons=dict(left))
    for i, node in enumerate(parts.nodes):
        reason = "it draws random numbers" if node.op_type in _RANDOM else parts.reason_against(i)
        if reason:
            found.reasons.setdefault(i, reason)
    done: set[tuple[int, ...]] = set()
    while True:
        groups = [g for g in parts.groups(found.reasons) if tuple(g) not in done]
        if not groups:
            break
        for group in groups:
            program, reasons = _compiled(parts, group, options, config)
            found.reasons.update(reasons)
            if program is not None:
                done.add(tuple(group))
                found.groups.append(group)
                found.programs.append(program)
    if not shares:
        _drop_neighbours(parts, found)
    return found


def _drop_neighbours(parts: Parts, found: Claim) -> None:
    """Gives the groups back that have a value in common with a node that is left."""
    while True:
        values = {name for i in found.reasons for name in (*parts.nodes[i].input, *parts.nodes[i].output)}
        bad = next((g for g in found.groups if any(values & parts.values_of(i) for i in g)), None)
        if bad is None:
            return
        del found.programs[found.groups.index(bad)]
        found.groups.remove(bad)
        reason = "this onnxruntime hands no values from a plugin to nodes of its own; 1.23.1 and later do"
        found.reasons.update(dict.fromkeys(bad, reason))


def _compiled(
    parts: Parts, group: list[int], options: Options, config: NpuConfig
) -> tuple[Program | None, dict[int, str]]:
    """Returns the program of a group, or the reasons against at least one of its nodes."""
    part = parts.part(group)
    if not part.graph.output:
        return None, dict.fromkeys(group, "nobody reads what it computes")
    kernels = kernels_of(options)
    try:
        graph = import_onnx(part, kernels=kernels)
    except CompileError as error:
        return None, _culprits(parts, group, _reason(error), kernels)
    try:
        if options.claim == "npu":
            run_passes(graph, FRONTEND)
            placed = partition(graph, config, CompileOptions())
            if not any(isinstance(task, Layer) and task.macs for task in placed.tasks):
                if not part.graph.input:
                    return None, dict.fromkeys(group, "it reads constants alone, and what reads it is left")
                return None, _without_npu(parts, group, placed.placement.reasons)
        return compile_part(part, options, config), {}
    except CompileError as error:
        return None, dict.fromkeys(group, _reason(error))


def compile_part(part: ModelProto, options: Options, config: NpuConfig) -> Program:
    """Compiles the model of a group. Raises CompileError."""
    return compile_program(
        part, config, batch=None, effort=options.effort, threads=options.threads, kernels=kernels_of(options)
    )


def kernels_of(options: Options) -> tuple[Kernel, ...]:
    """The kernels of a session's file. Raises `UsageError`."""
    if not options.kernels:
        return ()
    from tilewright.kernel.files import load_kernels  # sessions without kernels need not wait for it

    return load_kernels(options.kernels)


def _culprits(parts: Parts, group: list[int], reason: str, kernels: Sequence[Kernel]) -> dict[int, str]:
    """Reasons against the nodes of a group that cannot be imported alone, else against the first one with which the
    group cannot."""
    found = {}
    for i in group:
        why = _misfit(parts, [i], kernels)
        if why:
            found[i] = why
    if found:
        return found
    good, bad = 0, len(group)
    while bad - good > 1:
        middle = (good + bad) // 2
        if _misfit(parts, group[:middle], kernels):
            bad = middle
        else:
            good = middle
    return {group[bad - 1]: reason}


def _misfit(parts: Parts, places: Sequence[int], kernels: Sequence[Kernel]) -> str:
    """Why nodes cannot be imported, "" if they can."""
    part = parts.part(places)
    if not part.graph.output:
        return ""
    try:
        import_onnx(part, kernels=kernels)
    except CompileError as error:
        return _reason(error)
    return ""


def _without_npu(parts: Parts, group: list[int], placed: Mapping[str, str]) -> dict[int, str]:
    """Reasons for a group that has nothing for the NPU: the compiler's where it has one for a node."""
    general = (
        "nothing that is multiplied near it could be placed on the NPU"
        if placed
        else "it computes in floats, and nothing near it multiplies 8-bit integers"
    )
    found = {}
    for i in group:
        node = parts.nodes[i]
        found[i] = next((placed[name] for name in (node.name, *node.output) if name in placed), general)
    return found


def _reason(error: CompileError) -> str:
    """A message without the name of the model, which is onnxruntime's graph."""
    return str(error).removeprefix("part: ")
