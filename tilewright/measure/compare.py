"""Two ways to run a network side by side, layer by layer: two configurations of the machine, or two programs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any

from tilewright.common.shown import Shown, listed
from tilewright.isa.config import NpuConfig
from tilewright.measure.explain import Explanation
from tilewright.simulator.attribution import LOSSES, LayerLosses


@dataclass
class Pair:
    """The rows of both sides that are made of the same layers.

    Attributes:
        name: of the layers.
        a, b: rows of each side; several where one side fused what the other runs apart, none where the layers do
            not run on that side's NPU.
    """

    name: str
    a: list[LayerLosses]
    b: list[LayerLosses]

    @property
    def cycles(self) -> tuple[int, int]:
        return _cycles(self.a), _cycles(self.b)

    @property
    def bounds(self) -> tuple[int, int]:
        return sum(row.bound for row in self.a), sum(row.bound for row in self.b)

    @property
    def changes(self) -> dict[str, int]:
        """The difference in cycles by cause: the bound, and each loss. Sums up to cycles of b minus a."""
        found = {"bound": self.bounds[1] - self.bounds[0]}
        for key in LOSSES:
            found[key] = sum(row.losses[key] for row in self.b) - sum(row.losses[key] for row in self.a)
        return found


def _cycles(rows: Iterable[LayerLosses]) -> int:
    return sum(row.cycles for row in rows)


@dataclass(repr=False)
class Comparison(Shown):
    """Two explanations of networks with the same layers, matched.

    Attributes:
        a, b: the sides.
        pairs: rows of both.
        notes: what a user should know of the comparison.
    """

    a: Explanation
    b: Explanation
    pairs: list[Pair]
    notes: tuple[str, ...] = ()

    def facts(self) -> dict[str, Any]:
        """Returns facts, for `repr` and notebooks."""
        sides = {
            side: f"{found.program.name} on {found.program.config.name}, {found.cycles:,} cycles"
            for side, found in (("a", self.a), ("b", self.b))
        }
        return sides | {"cycles_ratio": self.ratio} | ({"notes": listed(self.notes)} if self.notes else {})

    def table(self) -> list[list[str]]:
        """Cycles of both sides, by layer."""
        rows = [["layer", "a cycles", "b cycles", "b/a"]]
        for pair in self.pairs:
            a, b = pair.cycles
            rows.append([pair.name, f"{a:,}", f"{b:,}", f"{b / a:.2f}" if a and b else ""])
        return rows

    @property
    def ratio(self) -> float:
        """Cycles of b over cycles of a."""
        return self.b.cycles / self.a.cycles if self.a.cycles else 0.0

    @property
    def time_ratio(self) -> float | None:
        """Time of b over time of a, each at the clock of its machine; None where one is not known."""
        a, b = self.a.clock, self.b.clock
        return self.ratio * a.mhz / b.mhz if a and b else None

    def to_dict(self) -> dict[str, Any]:
        """Returns the comparison as `tilewright compare --json` writes it."""
        return {
            "a": _side(self.a),
            "b": _side(self.b),
            "notes": list(self.notes),
            "config_differences": differences(self.a.program.config, self.b.program.config),
            "cycles_ratio": self.ratio,
            "time_ratio": self.time_ratio,
            "energy_ratio": self.b.energy.total / self.a.energy.total if self.a.energy.total else None,
            "layers": [
                {
                    "name": pair.name,
                    "a_cycles": pair.cycles[0],
                    "b_cycles": pair.cycles[1],
                    "a_bound_cycles": pair.bounds[0],
                    "b_bound_cycles": pair.bounds[1],
                    "changes": pair.changes,
                }
                for pair in self.pairs
            ],
        }


def _side(found: Explanation) -> dict[str, Any]:
    described = found.to_dict()
    return {key: described[key] for key in described if key not in ("layers", "engines")}


def differences(a: NpuConfig, b: NpuConfig) -> dict[str, list[Any]]:
    """Fields that differ, with both values; the name is not one."""
    ours, theirs = a.to_dict(), b.to_dict()
    return {key: [ours[key], theirs[key]] for key in ours if key != "name" and ours[key] != theirs[key]}


def compare_alike(a: Callable[[bool], Explanation], b: Callable[[bool], Explanation]) -> Comparison:
    """Compares like with like: both sides with schedules of the tuning log, or both without.

    Args:
        a, b: give an explanation; called with True, of a program without schedules of the tuning log, as far as it can
            be compiled anew.
    """
    left, right = a(False), b(False)
    if left.tuned == right.tuned:
        return compare(left, right)
    name, tuned = ("a", left) if left.tuned else ("b", right)
    plain = (a if left.tuned else b)(True)
    if plain.tuned:
        return compare(left, right)
    note = (
        f"schedules of the tuning log for {name} are left out, which has {plain.cycles:,} cycles without them and "
        f"{tuned.cycles:,} with them: there are none for {'b' if left.tuned else 'a'}"
    )
    return compare(plain, right, [note]) if left.tuned else compare(left, plain, [note])


def compare(a: Explanation, b: Explanation, notes: Iterable[str] = ()) -> Comparison:
    """Matches rows by the names of the layers in them; rows that share a layer come together.

    Args:
        notes: what a user should know of the comparison, besides that one side alone has tuned schedules.
    """
    sides = a.rows, b.rows
    group: dict[Hashable, Hashable] = {}

    def root(key: Hashable) -> Hashable:
        while group.setdefault(key, key) != key:
            key = group[key]
        return key

    for side, rows in enumerate(sides):
        for number, row in enumerate(rows):
            for member in row.members:
                group[root(member.name)] = root((side, number))
    pairs: dict[Hashable, Pair] = {}
    for side, rows in enumerate(sides):
        for number, row in enumerate(rows):
            pair = pairs.setdefault(root((side, number)), Pair(row.layer.name, [], []))
            (pair.a, pair.b)[side].append(row)
    for pair in pairs.values():
        pair.name = " + ".join(dict.fromkeys(m.name for row in pair.a or pair.b for m in row.members))
    found = list(notes)
    if a.tuned != b.tuned:
        found.append(
            f"{'a' if a.tuned else 'b'} alone has schedules of the tuning log: compile it without (tuning off)"
        )
    return Comparison(a, b, list(pairs.values()), tuple(found))
