"""Turns stages into calls of functions, and places the buffers of the workspace they share."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from tilewright.compiler.cpu.expr import Buffer
from tilewright.compiler.cpu.ir.module import Module
from tilewright.compiler.cpu.ir.threads import private_bytes
from tilewright.compiler.cpu.schedule import Schedules
from tilewright.compiler.cpu.stages.in_place import in_place, root
from tilewright.compiler.cpu.stages.memory import SLACK, Lifetime, place
from tilewright.compiler.cpu.stages.proof import Span, Uses, prove, uses_of
from tilewright.compiler.cpu.stages.stage import Call, Emission, LoopStage, RowStage, Stage


class WorkspaceSize(Struct, frozen=True):
    """Sizes of a segment's workspace in bytes.

    Attributes:
        arena: its size.
        separate: size of its tensors without sharing memory.
        live: the most bytes in use at one time; no arena can be smaller.
    """

    arena: int
    separate: int
    live: int


class Plan(Struct, frozen=True):
    """The calls of a segment in order, and where the buffers of its workspace are.

    Attributes:
        module: the functions.
        calls: calls of the functions.
        offsets: bytes from the start of the workspace.
        memory: sizes of the workspace.
        dead: for every call the bytes of the workspace without a later reader.
    """

    module: Module
    calls: list[Call]
    offsets: dict[Buffer, int]
    memory: WorkspaceSize
    dead: list[list[Span]]


def plan(stages: Sequence[Stage], module: Module, schedules: Schedules, guard: int = 0) -> Plan:
    """Writes the functions of all stages and places the buffers between them.

    Args:
        guard: bytes left free behind every buffer.
    """
    into = Emission(module, schedules)
    calls: list[Call] = []
    uses: list[Uses] = []
    life: dict[Buffer, list[int]] = {}
    for step, stage in enumerate(stages):
        calls.append(stage.emit(into))
        uses.append(uses_of(stage.label, calls[-1], module.functions))
        for b in [*calls[-1].buffers, *stage.temps]:
            if b.role == "temp":
                life.setdefault(b, [step, step])[1] = step
    homes = in_place(stages, life)
    calls = _emit_in_place(stages, into, calls, homes)
    for b in reversed(homes):  # a chain of results ends in the first one's memory
        first = root(homes, b)
        life[first][1] = max(life[first][1], life.pop(b)[1])
    threads = module.threads
    sizes = {b: threads * private_bytes(b) if b.private and threads > 1 else b.nbytes for b in life}
    offsets, arena = place([Lifetime(sizes[b] + guard, *life[b]) for b in life])
    live = (sum(sizes[b] for b in life if life[b][0] <= k <= life[b][1]) for k in range(len(calls)))
    separate = sum(sizes.values()) + sum(b.nbytes for b in homes)
    memory = WorkspaceSize(arena + SLACK if life else 0, separate, max(live, default=0))
    where = dict(zip(life, offsets))
    places = {b: (where[root(homes, b)], where[root(homes, b)] + sizes.get(b, b.nbytes)) for b in (*life, *homes)}
    dead = prove(uses, calls, places, memory.arena)
    return Plan(module, calls, where, memory, dead)


def _emit_in_place(
    stages: Sequence[Stage], into: Emission, calls: Sequence[Call], homes: dict[Buffer, Buffer]
) -> list[Call]:
    """Rewrites the stages whose result is in an operand's memory: both are one pointer there."""
    into.homes = {b: root(homes, b) for b in homes}
    moved = []
    for stage, call in zip(stages, calls):
        if isinstance(stage, LoopStage | RowStage) and stage.parts[-1].buffer in homes:
            moved.append(stage.emit(into))
        else:
            moved.append(Call(call.name, [root(homes, b) for b in call.buffers]))
    used = {f"@{call.name}" for call in moved}
    functions = into.module.functions
    for name in [n for n in functions if n.startswith(("@loop_", "@vector_")) and n not in used]:
        del functions[name]
    return moved
