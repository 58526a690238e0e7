"""Starts: which instructions have surely started once another has ended, however long each of them takes.

An instruction takes its semaphores before it starts. So signals that have surely been taken are those of instructions
that have surely started: of any engine, because a signal was waited for that came after; and because FETCH dispatches
in order, so that of the instructions before one that has been dispatched no more are left than their queues hold.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from tilewright.isa.config import NpuConfig
from tilewright.isa.instructions import Engine, queue_of

#: By number of the engine, the index of the last of its run instructions that has surely started; -1 for none.
Started = list[int]


class Starts:
    """Instructions that have surely started, in a program that grows instruction by instruction.

    Args:
        config: which engines share a queue, and how much a queue holds.
    """

    def __init__(self, config: NpuConfig) -> None:
        engines = [engine for engine in Engine if engine != Engine.FETCH]
        self._queues: dict[Engine, Engine] = {engine: queue_of(engine, config) for engine in engines}
        self._depth = config.queue_depth
        self.forget()

    def forget(self) -> None:
        """A new program starts."""
        none = [-1] * len(Engine)
        #: When the next instruction is dispatched.
        self._dispatched = none
        #: When the last run instruction of a queue has started.
        self._newest = dict.fromkeys(self._queues.values(), none)
        #: The same for each instruction that a queue may still hold.
        self._held: dict[Engine, deque[Started]] = {queue: deque() for queue in self._newest}

    def configure(self, engine: Engine) -> None:
        """Appends an instruction that only sets registers, or END, which no queue takes."""
        if engine != Engine.FETCH:
            queue = self._queues[engine]
            self._make_room(queue)
            self._held[queue].append(self._newest[queue])

    def run(self, engine: Engine, index: int, sources: Iterable[Started]) -> Started:
        """Appends a run instruction, the engine's number `index`, and gives what has surely started when it starts.

        Args:
            sources: the same of those it waits for.
        """
        queue = self._queues[engine]
        self._make_room(queue)
        started = self.newest(engine)
        for source in sources:
            started = _both(started, source)
        started[engine] = index
        self._newest[queue] = started
        self._held[queue].append(started)
        return started

    def newest(self, engine: Engine) -> Started:
        """Returns what has surely started when an instruction starts that is appended now and waits for nothing."""
        return _both(self._newest[self._queues[engine]], self._dispatched)

    def _make_room(self, queue: Engine) -> None:
        """One more instruction is dispatched to a queue: the oldest that it may still hold has gone."""
        held = self._held[queue]
        if len(held) == self._depth:
            self._dispatched = _both(self._dispatched, held.popleft())


def _both(a: Started, b: Started) -> Started:
    return [*map(max, a, b)]
