"""Results of a check: rows per tensor, totals, and the text and JSON forms."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from tilewright.common.shown import Shown

_MOST_ROWS = 20


@dataclass
class TensorRow:
    """One compared tensor.

    Attributes:
        name, where, dtype, shape: what it is and who computes it.
        elements, mismatches, max_abs_difference: against the reference, with the reference's bytes at the borders
            before it (see `CheckReport`). Integers in quantised steps.
        status: "equal", "mismatch", or "border": differs by what its `reason` allows.
        reason: why it may differ, with the op ("" = it must be equal).
        free_differences, free_max: elements that differ, and by how much, in the plain run from input to output.
        depends_on: border tensors before it.
        note: what else there is to say.
        range, limit: of floats: largest finite magnitude in the reference's tensor, and the largest difference that
            passed as rounding.
    """

    name: str
    where: str
    dtype: str
    shape: tuple[int, ...]
    elements: int
    mismatches: int
    max_abs_difference: float
    status: str
    reason: str = ""
    free_differences: int = 0
    free_max: float = 0.0
    depends_on: list[str] = field(default_factory=list)
    note: str = ""
    range: float = 0.0
    limit: float = 0.0


@dataclass(repr=False)
class CheckReport(Shown):
    """The comparison of a program with the reference.

    Behind float ops (LayerNormalization, a float Softmax, ...) bytes cannot be equal for sure: the last bit of a float
    can flip a rounding. Where such tensors exist the program runs a second time with the reference's bytes put in at
    these borders. `mismatches` counts what then still differs and must not; `end_to_end` what differs in the plain
    run and is explained by a border.

    Attributes:
        reference: name and version.
        mode: "outputs" or "all".
        tensors, elements: compared.
        mismatches: elements that differ and must not; 0 is a pass.
        max_abs_difference: largest difference of the tensors that must be equal.
        rows: one per tensor, in the program's order, outputs last.
        borders: border tensor -> reason.
        end_to_end: tensors, elements, max_abs_difference and reasons of the explained differences.
        skipped: tensors that were not compared -> why.
        quantised: with mode "all", how many 8-bit tensors the model computes.
        fused: those of them the program never makes, because it computes several steps in one.
        runs: whose outputs were compared, one after the other, of a program that keeps something from one to the next.
        tolerance: for floats, as given or from the rule of `tilewright.checking.tolerance`.
    """

    reference: str
    mode: str
    rows: list[TensorRow] = field(default_factory=list)
    borders: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    quantised: int = 0
    fused: list[str] = field(default_factory=list)
    tolerance: str = ""
    runs: int = 1

    @property
    def tensors(self) -> int:
        return len(self.rows)

    @property
    def elements(self) -> int:
        return sum(r.elements for r in self.rows)

    @property
    def mismatches(self) -> int:
        return sum(r.mismatches for r in self.rows if r.status == "mismatch")

    @property
    def max_abs_difference(self) -> float:
        return max((r.max_abs_difference for r in self.rows if r.status != "border"), default=0.0)

    @property
    def ok(self) -> bool:
        """True if no tensor differs where it must not."""
        return not any(r.status == "mismatch" for r in self.rows)

    @property
    def end_to_end(self) -> dict[str, Any]:
        rows = [r for r in self.rows if r.free_differences and r.status != "mismatch"]
        off = {r.name for r in self.rows if r.status == "border"}
        sources = dict.fromkeys(s for r in rows for s in (r.name, *r.depends_on) if s in off)
        return {
            "tensors": len(rows),
            "elements": sum(r.free_differences for r in rows),
            "max_abs_difference": max((r.free_max for r in rows), default=0.0),
            "reasons": {s: self.borders.get(s, "") for s in sources},
        }

    def to_dict(self) -> dict[str, Any]:
        """Returns the report for JSON."""
        at_borders = [r for r in self.rows if r.status == "border"]
        return {
            "reference": self.reference,
            "mode": self.mode,
            "equal": self.ok,
            "tensors": self.tensors,
            "elements": self.elements,
            "mismatches": self.mismatches,
            "max_abs_difference": json_number(self.max_abs_difference),
            "end_to_end": self.end_to_end | {"max_abs_difference": json_number(self.end_to_end["max_abs_difference"])},
            "borders": self.borders,
            "border_differences": sum(r.mismatches for r in at_borders),
            "skipped": self.skipped,
            "quantised": self.quantised,
            "fused": self.fused,
            "tolerance": self.tolerance,
            "runs": self.runs,
            "rows": [
                asdict(r)
                | {name: json_number(getattr(r, name)) for name in ("max_abs_difference", "free_max", "range", "limit")}
                for r in self.rows
            ],
        }

    def facts(self) -> dict[str, Any]:
        """Returns facts, for `repr` and notebooks."""
        return {
            "reference": self.reference, "mode": self.mode, "ok": self.ok, "tensors": self.tensors,
            "elements": self.elements, "mismatches": self.mismatches, "borders": len(self.borders),
            "not_compared": len(self.skipped),
        }  # fmt: skip

    def table(self) -> list[list[str]]:
        """The first tensors that differ."""
        found = [r for r in self.rows if r.status != "equal"][:_MOST_ROWS]
        rows = [[r.name, r.where, r.status, str(r.elements), str(r.mismatches), r.note or r.reason] for r in found]
        return [["tensor", "where", "status", "elements", "differ", "why"], *rows] if rows else []

    def summary(self) -> str:
        """The report as one line."""
        verdict = "equal" if self.ok else f"{self.mismatches} of {self.elements} elements differ"
        rounding = max(
            (r.max_abs_difference / r.range for r in self.rows if r.range and r.status == "equal"), default=0.0
        )
        if self.ok and rounding:
            verdict += f" but for rounding, {rounding:.1e} of a tensor's largest magnitude at most"
        text = f"{self.tensors} tensors, {self.elements} elements against {self.reference}: {verdict}"
        if self.runs > 1:
            text += f" over {self.runs} runs, each with the state that the one before left"
        if not self.ok:
            first = next(r for r in self.rows if r.status == "mismatch")
            text += f", first in {first.name!r} ({first.where})"
            if any(r.dtype == "uint8" for r in self.rows) and _saturates(self.reference):
                text += "; onnxruntime's own sums of uint8 times int8 can saturate on this processor, which has no VNNI"
        if self.quantised:
            text += f"; {self.quantised - len(self.fused)} of the model's {self.quantised} quantised tensors compared"
        end = self.end_to_end
        if end["elements"]:
            text += f"; end to end {end['elements']} elements differ, all behind float ops"
        return text


def _saturates(reference: str) -> bool:
    """Whether the reference's sums of uint8 times int8 saturate here."""
    if not reference.startswith("onnxruntime"):
        return False
    from tilewright.checking.saturation import saturates  # onnx, which reports of equal bytes need not wait for

    return saturates()


def json_number(value: float) -> float | str:
    """Converts a number for JSON, which has no infinity: that becomes a text."""
    return value if np.isfinite(value) else str(value)
