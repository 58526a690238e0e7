"""Functional bins of the instruction table."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from tilewright.isa.config import NpuConfig
from tilewright.isa.encoding import Op
from tilewright.isa.error_codes import ErrorCode
from tilewright.isa.fields import Field
from tilewright.isa.instructions import INSTRUCTIONS, Engine, Instruction

#: Codes that an engine of each kind can stop with.
_ACCESS = (ErrorCode.SCRATCHPAD_RANGE, ErrorCode.WINDOW)
_COUNTS = (ErrorCode.SEMAPHORE_OVERFLOW, ErrorCode.WATCHDOG)
FAULTS: dict[Engine, tuple[ErrorCode, ...]] = {
    Engine.FETCH: (
        ErrorCode.ILLEGAL_OPCODE,
        ErrorCode.ILLEGAL_OPERAND,
        ErrorCode.WINDOW,
        ErrorCode.NO_END,
        ErrorCode.WATCHDOG,
        ErrorCode.TIMEOUT,
    ),
    Engine.LOAD: (
        *_ACCESS,
        ErrorCode.ILLEGAL_OPERAND,
        ErrorCode.BUS_READ,
        ErrorCode.SEMAPHORE_OVERFLOW,
        ErrorCode.WATCHDOG,
    ),
    Engine.GEMM: (ErrorCode.SCRATCHPAD_RANGE, *_COUNTS),
    Engine.VECTOR: (ErrorCode.SCRATCHPAD_RANGE, *_COUNTS),
    Engine.STORE: (*_ACCESS, ErrorCode.BUS_WRITE, *_COUNTS),
}


def classes(field: Field, config: NpuConfig) -> dict[str, range]:
    """Classes of values of a field: its ends, zero, what lies between; each member of an enumeration."""
    low, high = field.limits(config)
    if field.enum is not None:
        return {member.name: range(member, member + 1) for member in field.enum}
    if high - low < 4:
        return {str(value): range(value, value + 1) for value in range(low, high + 1)}
    found = {"lowest": range(low, low + 1), "highest": range(high, high + 1), "between": range(max(low, 0) + 1, high)}
    if low < 0:
        found |= {"zero": range(1), "negative": range(low + 1, 0)}
    return found


def bins(config: NpuConfig) -> set[str]:
    """All bins of a machine: `INSTRUCTION.field class`, `ENGINE takes|gives`, `ENGINE fault CODE`."""
    found = {
        f"{i.name}.{f.name} {name}" for i in instructions_on(config) for f in i.fields for name in classes(f, config)
    }
    found |= {f"{e.name} {what}" for e in Engine if e != Engine.FETCH for what in _SEMAPHORES}
    return found | {f"{engine.name} fault {code.name}" for engine, codes in FAULTS.items() for code in codes}


_SEMAPHORES = ("takes one", "takes two", "gives one", "gives two", "takes the last", "gives the last")


def instructions_on(config: NpuConfig) -> list[Instruction]:
    """Returns the instructions that a machine has."""
    return [i for i in INSTRUCTIONS if i.requires is None or getattr(config, i.requires)]


def took_effect(ops: Sequence[Op], started: Collection[int]) -> list[Op]:
    """Returns the instructions of a program that a run has used: those that started, and those that configure one of
    them.

    Args:
        ops: the program, up to the last that started at least.
        started: places of the instructions that an engine has started.
    """
    last = {e: max((n for n in started if ops[n].instruction.engine == e), default=-1) for e in Engine}
    return [
        o for n, o in enumerate(ops)
        if n in started or (o.instruction.configures and n < last[o.instruction.engine])
    ]  # fmt: skip


def hits(ops: Iterable[Op], config: NpuConfig) -> set[str]:
    """Returns the bins that the instructions of a program are in."""
    found = set()
    for op in ops:
        for field in op.instruction.fields:
            names = [name for name, values in classes(field, config).items() if op[field.name] in values]
            found |= {f"{op.name}.{field.name} {name}" for name in names}
        for what, named in (("takes", op.waits), ("gives", op.signals)):
            if named:
                engine = op.instruction.engine.name
                found.add(f"{engine} {what} {('one', 'two')[len(named) - 1]}")
                if config.semaphores in named:
                    found.add(f"{engine} {what} the last")
    return found
