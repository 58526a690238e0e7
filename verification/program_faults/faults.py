"""Faults in programs, one each: in a field, an instruction, its place, a wait, a signal, a row, or a constant."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tilewright.isa.encoding import DecodeError, Op, decode, from_bytes, op, to_bytes
from tilewright.isa.instructions import Engine
from tilewright.isa.program import NpuStep, Program

KINDS = ("field", "bit", "drop", "swap", "wait", "signal", "row", "constant")
#: An instruction that only keeps the semaphores of a dropped one.
_SYNC = {Engine.LOAD: "LOAD_SYNC", Engine.GEMM: "GEMM_SYNC", Engine.VECTOR: "VECTOR_SYNC", Engine.STORE: "STORE_SYNC"}
_SEMAPHORES = ("wait0", "wait1", "signal0", "signal1")
#: Operands that are rows of a scratchpad.
_ROWS = ("act", "wgt", "acc", "a", "b", "dst", "prm", "row")


def fault(random: Random, program: Program, kind: str) -> tuple[str, Program] | None:
    """A fault of a kind, in words, and the program with it; None if the place that was chosen has none."""
    if kind == "constant":
        return _constant(random, program)
    ops = from_bytes(program.instructions)
    places = [i for s in program.steps if isinstance(s, NpuStep) for i in range(s.first, s.first + s.count - 1)]
    if not places:
        return None
    at = random.choice(places)
    if kind == "swap":
        if at + 1 not in places:
            return None
        ops[at], ops[at + 1] = ops[at + 1], ops[at]
        said = f"instructions {at} ({ops[at + 1].name}) and {at + 1} ({ops[at].name}) swapped"
    else:
        changed = _changed(random, program, ops, at, kind)
        if changed is None:
            return None
        said = f"instruction {at} ({ops[at].name}): {changed[0]}"
        ops[at] = changed[1]
    instructions = to_bytes(ops)
    return None if instructions == program.instructions else (said, replace(program, instructions=instructions))


def _constant(random: Random, program: Program) -> tuple[str, Program] | None:
    if not program.constants:
        return None
    data, at, bit = bytearray(program.constants), random.randrange(len(program.constants)), random.randrange(8)
    data[at] ^= 1 << bit
    return f"bit {bit} of constant byte {at} turned", replace(program, constants=bytes(data))


def _changed(random: Random, program: Program, ops: list[Op], at: int, kind: str) -> tuple[str, Op] | None:
    """A change of an instruction, and the instruction then."""
    chosen = ops[at]
    if kind == "bit":
        bit = random.randrange(128)
        try:
            return f"bit {bit} turned", decode(chosen.encode() ^ 1 << bit)
        except DecodeError:
            return None
    if kind == "drop":
        kept = {name: chosen[name] for name in _SEMAPHORES if chosen[name]}
        return "dropped", op(_SYNC[chosen.instruction.engine], **kept)
    if kind in ("wait", "signal"):
        names = [name for name in (f"{kind}0", f"{kind}1") if chosen[name]]
        return _with(chosen, random.choice(names), 0) if names else None
    fields = {field.name: field for field in chosen.instruction.fields if kind == "field" or field.name in _ROWS}
    if not fields:
        return None
    name = random.choice(sorted(fields))
    if kind == "row":  # a row that another instruction means
        others = sorted({o[name] for o in ops if o.name == chosen.name} - {chosen[name]})
        return _with(chosen, name, random.choice(others)) if others else None
    low, high = fields[name].limits(program.config)
    step = random.choice((-16, -2, -1, 1, 2, 16, random.randint(-1000, 1000)))
    return _with(chosen, name, max(low, min(high, chosen[name] + step)))


def _with(chosen: Op, name: str, value: int) -> tuple[str, Op]:
    return f"{name} {value}, not {chosen[name]}", Op(chosen.instruction, chosen.values | {name: value})
