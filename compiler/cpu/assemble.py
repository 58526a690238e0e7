"""Stages to one object: memory of the tensors between them, the entry point that calls them, and their description."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.cpu.expr import Buffer
from compiler.cpu.fuse import SLACK, Context, LoopStage, RowStage, Stage
from compiler.cpu.in_place import in_place, root
from compiler.cpu.memory import Lifetime, place
from compiler.cpu.module import Module
from compiler.cpu.schedule import LoopSchedule

SPINS = 500  # looks at the counter before a thread gives way
SCHED_YIELD = 24  # number of the system call, Linux on x86-64


@dataclass(frozen=True)
class Memory:
    """The workspace of a segment, bytes.

    Attributes:
        arena: its size.
        separate: what the tensors in it would take in places of their own.
        live: the most that is in use at one time; no arena can be smaller.
    """

    arena: int
    separate: int
    live: int


def build(
    ctx: Context, inputs: Sequence[str], outputs: Sequence[str], symbol: str, threads: int = 1
) -> tuple[bytes, list[str], Memory]:
    """Object code of all stages behind one entry point; also the constants' names, and the workspace.

    With several threads each calls the entry point with its number and the address of a counter, 0 at first, at which
    they meet after every stage.
    """
    module = Module(ctx.target, ctx.schedules, threads)
    calls: list[tuple[str, list[Buffer]]] = []
    life: dict[Buffer, list[int]] = {}
    for step, stage in enumerate(ctx.stages):
        name, buffers = stage.emit(module)
        calls.append((name, buffers))
        for b in [*buffers, *stage.temps]:
            if b.role == "temp":
                life.setdefault(b, [step, step])[1] = step
    homes = in_place(ctx.stages, life)
    _move_in(ctx, module, calls, homes)
    for b in reversed(homes):  # a chain of results ends in the first one's memory
        first = root(homes, b)
        life[first][1] = max(life[first][1], life.pop(b)[1])
    temps = list(life)
    sizes = {b: threads * module.private_bytes(b) if b.private and threads > 1 else b.nbytes for b in temps}
    offsets, arena = place([Lifetime(sizes[b], *life[b]) for b in temps])
    where = dict(zip(temps, offsets))
    memory = Memory(
        arena + SLACK if temps else 0,
        sum(sizes.values()) + sum(b.nbytes for b in homes),
        max((sum(sizes[b] for b in temps if life[b][0] <= k <= life[b][1]) for k in range(len(calls))), default=0),
    )
    used = {b.name for _, buffers in calls for b in buffers if b.role == "const"}
    constants = [name for name in ctx.consts if name in used]
    slot = {name: k for k, name in enumerate([*inputs, *constants])}
    out_slot = {name: len(slot) + k for k, name in enumerate(outputs)}
    extra = ", i64 %part, ptr noalias %counter" if threads > 1 else ""
    lines = [f"define void @{symbol}(ptr noalias %buffers, ptr noalias %workspace{extra}) #1 {{", "entry:"]
    made: dict[Buffer, str] = {}
    for _, buffers in calls:
        for b in buffers:
            if b in made:
                continue
            n = len(made)
            made[b] = f"%b{n}"
            if b.role == "temp":
                lines.append(f"  %b{n} = getelementptr i8, ptr %workspace, i64 {where[b]}")
            else:
                k = out_slot[b.name] if b.role == "output" else slot[b.name]
                lines.append(f"  %q{n} = getelementptr ptr, ptr %buffers, i64 {k}")
                lines.append(f"  %b{n} = load ptr, ptr %q{n}, align 8")
    for k, (name, buffers) in enumerate(calls):
        arguments = [f"ptr {made[b]}" for b in buffers] + (["i64 %part"] if threads > 1 else [])
        lines.append(f"  call void @{name}({', '.join(arguments)})")
        if threads > 1:
            lines += _meet(module, k, threads)
    return module.compile(symbol, "\n".join([*lines, "  ret void", "}"])), constants, memory


def _move_in(ctx: Context, module: Module, calls: list[tuple[str, list[Buffer]]], homes: dict[Buffer, Buffer]) -> None:
    """Writes the stages whose result is in an operand's memory anew: both are one pointer there."""
    module.homes = homes
    for step, stage in enumerate(ctx.stages):
        name, buffers = calls[step]
        if isinstance(stage, LoopStage | RowStage) and stage.parts[-1][2] in homes:
            calls[step] = stage.emit(module)
        else:
            calls[step] = name, [root(homes, b) for b in buffers]
    used = {f"@{name}" for name, _ in calls}
    for name in [n for n in module.functions if n.startswith(("@loop_", "@vector_")) and n not in used]:
        del module.functions[name]


def _meet(module: Module, step: int, threads: int) -> list[str]:
    """Waits until all threads have done step number `step`; after a while it lets others have the processor."""
    pause, give_way = [], []
    if module.target.triple.startswith("x86"):
        pause = [f"  call void {module.declare('@llvm.x86.sse2.pause', 'declare void @llvm.x86.sse2.pause()')}()"]
    if module.target.triple.startswith("x86_64") and "linux" in module.target.triple:
        registers = "={rax},{rax},~{rcx},~{r11},~{memory}"
        give_way = [f'  %gone{step} = call i64 asm sideeffect "syscall", "{registers}"(i64 {SCHED_YIELD})']
    return [
        f"  %old{step} = atomicrmw add ptr %counter, i64 1 seq_cst",
        f"  br label %wait{step}",
        f"wait{step}:",
        f"  br label %spin{step}",
        f"spin{step}:",
        f"  %turn{step} = phi i64 [ 0, %wait{step} ], [ %next{step}, %more{step} ]",
        *pause,
        f"  %now{step} = load atomic i64, ptr %counter seq_cst, align 8",
        f"  %met{step} = icmp sge i64 %now{step}, {(step + 1) * threads}",
        f"  br i1 %met{step}, label %go{step}, label %more{step}",
        f"more{step}:",
        f"  %next{step} = add i64 %turn{step}, 1",
        f"  %long{step} = icmp sge i64 %next{step}, {SPINS}",
        f"  br i1 %long{step}, label %yield{step}, label %spin{step}",
        f"yield{step}:",
        *give_way,
        f"  br label %wait{step}",
        f"go{step}:",
    ]


def entry(symbol: str, name: str, count: int) -> str:
    """The definition of an entry point that calls one function with the first `count` buffers."""
    lines = [f"define void @{symbol}(ptr noalias %buffers, ptr noalias %workspace) #1 {{", "entry:"]
    for k in range(count):
        lines.append(f"  %q{k} = getelementptr ptr, ptr %buffers, i64 {k}")
        lines.append(f"  %b{k} = load ptr, ptr %q{k}, align 8")
    lines.append(f"  call void @{name}({', '.join(f'ptr %b{k}' for k in range(count))})")
    return "\n".join([*lines, "  ret void", "}"])


def describe(ctx: Context) -> list[str]:
    """One line per stage."""
    return [describe_stage(stage) for stage in ctx.stages]


def describe_stage(stage: Stage) -> str:
    """What it computes, over what, and by which schedule where that is not the default."""
    if isinstance(stage, RowStage):
        text = f"{stage.label}: {'x'.join(str(v.extent) for v in stage.outer) or '1'} rows"
    elif isinstance(stage, LoopStage):
        domains = " + ".join("x".join(str(v.extent) for v in p[0]) or "1" for p in stage.parts[:3])
        text = f"{stage.label}: loop over {domains}"
    else:
        return f"{stage.label}: kernel"
    return text if stage.schedule == LoopSchedule() else f"{text}; {stage.schedule}"
