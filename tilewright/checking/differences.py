"""Two tensors compared, and the rule for all tensors of one check."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tilewright.checking.tolerance import Conditioning, Roundings, Tolerance, default_tolerance


@dataclass(frozen=True)
class Difference:
    """Two tensors compared.

    Attributes:
        elements, mismatches: in all, and those that differ by more than they may.
        maximum: the largest difference.
        note: what else there is to say.
        range, limit: of floats: largest finite magnitude expected, and the largest difference that passes.
    """

    elements: int
    mismatches: int
    maximum: float
    note: str = ""
    range: float = 0.0
    limit: float = 0.0


def compare(
    got: np.ndarray, expected: np.ndarray, tolerance: Tolerance | None = None, allowed: float = 0.0
) -> Difference:
    """Compares two tensors: integers and booleans byte by byte, floats within `tolerance`, by default that of a single
    operator.

    Args:
        allowed: a difference of floats that passes in any case.
    """
    if got.dtype != expected.dtype or got.shape != expected.shape:
        note = f"is {got.dtype}{list(got.shape)}, the reference has {expected.dtype}{list(expected.shape)}"
        return Difference(expected.size, max(expected.size, 1), float("inf"), note)
    if not expected.size:
        return Difference(0, 0, 0.0)
    if expected.dtype.kind in "biu":
        a, b = (x.astype(np.int64) if x.dtype.itemsize < 8 else x for x in (got, expected))
        differs = a != b
        maximum = float(np.abs(a.astype(np.float64) - b.astype(np.float64)).max()) if differs.any() else 0.0
        return Difference(expected.size, int(np.count_nonzero(differs)), maximum)
    a, b = got.astype(np.float64), expected.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        distance = np.where(same, 0.0, np.abs(a - b))
    distance[np.isnan(distance)] = np.inf
    tolerance = tolerance or default_tolerance(Roundings(), expected.dtype.name)
    limits = np.maximum(tolerance.limits(expected), allowed)
    return Difference(
        expected.size, int(np.count_nonzero(distance > limits)), float(distance.max()),
        range=float(np.abs(b[np.isfinite(b)]).max(initial=0.0)), limit=float(np.max(limits)),
    )  # fmt: skip


@dataclass
class Rule:
    """The rule by which the tensors of one check are compared.

    Attributes:
        given: the user's tolerance, None for the default by type and length of the network.
        roundings: of the network.
        conditioning: asked where an output differs by more than the default; None where it cannot be measured.
    """

    given: Tolerance | None = None
    roundings: Roundings = field(default_factory=Roundings)
    conditioning: Conditioning | None = None

    def __str__(self) -> str:
        if self.given is not None:
            return str(self.given)
        half = f", results rounded to {self.roundings.narrow}" if self.roundings.narrow else ""
        half += f", {self.roundings.sixteen} tensors of 16 bits" if self.roundings.sixteen else ""
        relative = default_tolerance(self.roundings, "float32")
        return f"{relative}, by {self.roundings.nodes} operators with {self.roundings.terms} terms in their sums{half}"

    def compare(self, name: str, got: np.ndarray, expected: np.ndarray) -> Difference:
        """Compares a tensor; one that differs too much is judged by the network's conditioning, if that is known."""
        if self.roundings.sixteen and expected.dtype.name in ("int16", "uint16") and got.dtype == expected.dtype:
            return self._steps(got, expected)
        found = compare(got, expected, self.given or default_tolerance(self.roundings, expected.dtype.name, name))
        if not found.mismatches or found.note or not found.limit or self.given or self.conditioning is None:
            return found
        allowed = self.conditioning.limit(name)
        if allowed <= found.limit:
            return found
        again = compare(got, expected, default_tolerance(self.roundings, expected.dtype.name, name), allowed)
        note = f"may differ by {allowed:.1e}: the network amplifies the rounding of its inputs"
        return Difference(again.elements, again.mismatches, again.maximum, note, again.range, again.limit)

    def _steps(self, got: np.ndarray, expected: np.ndarray) -> Difference:
        """Compares integers of 16 bits that were rounded from floats, which may be off by single steps."""
        found = compare(got, expected)
        if found.note or not found.mismatches:
            return found
        limit = self.roundings.steps()
        off = np.abs(got.astype(np.int64) - expected.astype(np.int64))
        note = f"may differ by {limit} of 65536 steps: it is rounded from floats"
        return Difference(found.elements, int((off > limit).sum()), found.maximum, note, 2.0**16, limit)
