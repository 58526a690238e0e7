"""The highest count each semaphore of a program can reach, however long every instruction takes.

A semaphore is taken by one engine of a compiled program and given by one. No start ever makes another impossible: so
its count is highest when its taker does nothing that it can put off, and all others do everything that they can. That
is what is played here, for each taker: it starts its next instruction only when nothing else can happen. FETCH and the
queues are those of the machine; an instruction ends, for its signals, as soon as it has started.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from tilewright.isa.config import NpuConfig
from tilewright.isa.encoding import Op, from_bytes
from tilewright.isa.instructions import Engine, queue_of
from tilewright.isa.program import NpuStep, Program


def highest_counts(ops: Sequence[Op], config: NpuConfig) -> dict[int, int]:
    """Returns the highest count of each semaphore, by number. Fails if a semaphore has two givers or takers, or the
    program cannot end."""
    takers: dict[int, Engine] = {}
    givers: dict[int, Engine] = {}
    for operation in ops:
        for name, who in (("wait0", takers), ("wait1", takers), ("signal0", givers), ("signal1", givers)):
            if number := operation.values.get(name, 0):
                assert who.setdefault(number, operation.instruction.engine) == operation.instruction.engine
    highest = dict.fromkeys(givers, 0)
    for late in set(takers.values()):
        mine = [number for number, engine in takers.items() if engine == late]
        for number, count in _play(ops, config, late, mine).items():
            highest[number] = max(highest[number], count)
    return highest


def _play(ops: Sequence[Op], config: NpuConfig, late: Engine, mine: list[int]) -> dict[int, int]:
    """Returns the highest counts of the semaphores `mine`, which `late` takes as late as it can."""
    queues: dict[Engine, deque[Op]] = {queue_of(e, config): deque() for e in Engine if e != Engine.FETCH}
    counts = [0] * (config.semaphores + 1)
    highest = dict.fromkeys(mine, 0)
    fetched = 0

    def ready(operation: Op) -> bool:
        return all(counts[operation.values.get(name, 0)] for name in ("wait0", "wait1") if operation.values.get(name))

    def start(operation: Op) -> None:
        for name in ("wait0", "wait1"):
            counts[operation.values.get(name, 0)] -= 1
        for name in ("signal0", "signal1"):
            counts[operation.values.get(name, 0)] += 1
        for number in mine:
            highest[number] = max(highest[number], counts[number])

    while True:
        moved = True
        while moved:
            moved = False
            while fetched < len(ops) and ops[fetched].name != "END":
                queue = queues[queue_of(ops[fetched].instruction.engine, config)]
                if len(queue) == config.queue_depth:
                    break
                queue.append(ops[fetched])
                fetched, moved = fetched + 1, True
            for queue in queues.values():
                while queue and _may_go(queue[0], late) and ready(queue[0]):
                    start(queue.popleft())
                    moved = True
        waiting = [queue for queue in queues.values() if queue and queue[0].instruction.engine == late]
        if not waiting:
            assert not any(queues.values()), "nothing can happen any more"
            return highest
        assert ready(waiting[0][0]), "nothing can happen any more"
        start(waiting[0].popleft())


def _may_go(operation: Op, late: Engine) -> bool:
    """Returns whether an instruction is not put off: what only sets registers takes nothing."""
    return operation.instruction.engine != late or not operation.instruction.takes_semaphores


def highest_of(program: Program) -> int:
    """Returns the highest count of any semaphore in any NPU step of a program."""
    ops = from_bytes(program.instructions)
    return max(
        (
            count
            for step in program.steps
            if isinstance(step, NpuStep)
            for count in highest_counts(ops[step.first : step.first + step.count], program.config).values()
        ),
        default=0,
    )
