"""Causes that keep multiply-accumulates of a program off the NPU."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from tilewright.compiler.graph.macs import BEHIND_PRODUCT, RECURRENT
from tilewright.compiler.stages.note_forms import UNUSED, reasons_in
from tilewright.isa.program import Layer, Program

_GATES = "its gates are functions of sums that no 8 bits hold, and every step waits for the one before"
_STEPS_IN_FLOATS = (
    "the file has its steps in floats; `tilewright quantize` makes integers of 256 steps at most, where that pays and "
    "lengths are constants (`--value` makes an input one)"
)
_IN_FLOATS = "the file has it in floats"
_NO_PLACE = "what is around it runs on the CPU"


@dataclass(frozen=True)
class Cause:
    """Layers that a cause keeps on the CPU.

    Attributes:
        cause: op and reason.
        layers: how many.
        macs: multiply-accumulates of all of them.
        share: of those of the program, 0 to 1.
    """

    cause: str
    layers: int
    macs: int
    share: float


def causes(program: Program) -> list[Cause]:
    """The causes that keep products on the CPU, most multiply-accumulates first; none where all run on the NPU."""
    reasons = reasons_in(program.notes)
    if program.entries:  # their notes begin with the entry
        reasons |= {name.partition(": ")[2]: reason for name, reason in reasons.items()}
    nothing = next((note.removeprefix(UNUSED) for note in program.notes if note.startswith(UNUSED)), _NO_PLACE)
    counted: dict[str, list[int]] = {}
    for layer in program.layers:
        if layer.where == "cpu" and layer.macs:
            counted.setdefault(f"{layer.op}: {_reason(layer, reasons, nothing)}", []).append(layer.macs)
    found = [Cause(text, len(macs), sum(macs), sum(macs) / program.macs) for text, macs in counted.items()]
    return sorted(found, key=lambda cause: -cause.macs)


def _reason(layer: Layer, reasons: dict[str, str], nothing: str) -> str:
    """Why a layer is on the CPU; `nothing` where the program has no note on an integer op."""
    if layer.name in reasons:
        return reasons[layer.name]
    if layer.op in BEHIND_PRODUCT:
        return _GATES
    if layer.op in RECURRENT:
        return _STEPS_IN_FLOATS
    return nothing if layer.op.startswith("Q") else _IN_FLOATS


def table(found: Iterable[Cause]) -> list[tuple[str, str, str]]:
    """Rows of text: cause, layers, share of the multiply-accumulates."""
    return [(cause.cause, str(cause.layers), f"{cause.share:.1%}") for cause in found]


def as_json(found: Iterable[Cause]) -> list[dict[str, Any]]:
    """The causes for JSON."""
    return [asdict(cause) for cause in found]
