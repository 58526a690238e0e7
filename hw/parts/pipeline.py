"""Values that travel along a pipeline."""

from __future__ import annotations

from amaranth.hdl import Module, Signal, Value


def delayed(m: Module, value: Value, cycles: int, name: str) -> Value:
    """Delays a value by this many cycles, in registers `name` with their numbers, which have no reset."""
    for n in range(cycles):
        later = Signal(Value.cast(value).shape(), name=f"{name}_{n}", reset_less=True)
        m.d.sync += later.eq(value)
        value = later
    return value


class Pipeline:
    """Delays values by registers: what is `put` in at one stage can be taken `at` that stage and every later one. A
    stage is a cycle, counted from the step that the pipeline carries. Only registers that are asked for are made."""

    def __init__(self, m: Module) -> None:
        self.m = m
        self._first: dict[str, int] = {}
        self._values: dict[str, list[Value]] = {}
        self._reset: dict[str, bool] = {}
        self._constant: set[str] = set()

    def put(self, name: str, value: Value, stage: int = 0, *, reset: bool = False) -> None:
        """Enters `value`, valid in cycle `stage`; with `reset` its registers are cleared by a reset (valid flags)."""
        if name in self._values:
            raise ValueError(f"{name} is in the pipeline already")
        self._first[name], self._values[name], self._reset[name] = stage, [Value.cast(value)], reset

    def hold(self, name: str, value: Value) -> None:
        """Enters a `value` that is the same for all steps and needs no registers."""
        self.put(name, value)
        self._constant.add(name)

    def at(self, name: str, stage: int) -> Value:
        """Returns a value as it is in cycle `stage` of its step.

        Raises:
            ValueError: the value enters the pipeline later.
        """
        first, values = self._first[name], self._values[name]
        if name in self._constant:
            return values[0]
        if stage < first:
            raise ValueError(f"{name} is there from stage {first} on, not at {stage}")
        while len(values) <= stage - first:
            before = values[-1]
            later = Signal(before.shape(), name=f"{name}_{first + len(values)}", reset_less=not self._reset[name])
            self.m.d.sync += later.eq(before)
            values.append(later)
        return values[stage - first]

    def stage(self, stage: int) -> Stage:
        """Returns a view of one stage, which gives its values by name."""
        return Stage(self, stage)


class Stage:
    """One stage of a pipeline: `stage[name]` is the value in that cycle."""

    def __init__(self, pipeline: Pipeline, number: int) -> None:
        self._pipeline, self.number = pipeline, number

    def __getitem__(self, name: str) -> Value:
        return self._pipeline.at(name, self.number)
