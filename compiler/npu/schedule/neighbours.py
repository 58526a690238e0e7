"""Schedules one decision away from a given one: other tiles, other groups, tensors that stay in ACT or leave it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace

from tilewright.compiler.npu.emit.plan import cheapest_plans
from tilewright.compiler.npu.emit.tiles import SOMEWHERE
from tilewright.compiler.npu.layers.layer import readers
from tilewright.compiler.npu.schedule.bands import LayerGroup, group_of
from tilewright.compiler.npu.schedule.channels import channel_group, channel_plans
from tilewright.compiler.npu.schedule.decisions import Decisions, schedule_of
from tilewright.compiler.npu.schedule.problem import Schedule, StepProblem
from tilewright.compiler.npu.schedule.residency import place_residents, resident_candidates

#: Rows of the last output per band that fused groups are tried with.
STEPS = (1, 2, 3, 4, 6, 7, 8, 10, 14, 16, 20, 28)
_TILES = 16  # per layer: those with the fewest estimated cycles


@dataclass(frozen=True)
class Move:
    """One changed decision.

    Attributes:
        kind: "tile", "step", "join", "cut", "shift", "keep" or "release".
        layer: number of the first layer it concerns.
        decisions: the decisions afterwards.
        span: numbers of the first layer whose instructions change, and of the one after the last.
        estimate: ratio of estimated cycles after and before, 1.0 without an estimate.
        rows: ACT rows the move takes (negative: frees), as a share of ACT.
    """

    kind: str
    layer: int
    decisions: Decisions
    span: tuple[int, int]
    estimate: float = 1.0
    rows: float = 0.0


class Neighbourhood:
    """All moves from a schedule of one NPU step.

    Attributes:
        readers: numbers of the layers that read each buffer.
        able: tensors that could stay in ACT, by the number of the layer that makes them.
    """

    def __init__(self, problem: StepProblem) -> None:
        self.problem = problem
        self.config, self.layers, self.outside = problem.config, problem.layers, problem.outside
        self.readers = readers(self.layers)
        self.able = {stay.first: stay for stay in resident_candidates(self.layers, self.outside)}
        self._tiles: dict[Hashable, list[tuple[tuple[int, ...], float]]] = {}

    def schedule(self, decisions: Decisions) -> Schedule:
        """Returns the schedule that was decided.

        Raises:
            CompileError: the decisions contradict each other.
        """
        return schedule_of(self.problem, decisions)

    def moves(self, decisions: Decisions) -> Iterator[Move]:
        """Yields every move; only emission shows whether the result fits."""
        yield from self._tile_moves(decisions)
        yield from self._unit_moves(decisions)
        yield from self._stay_moves(decisions)

    def _tile_moves(self, decisions: Decisions) -> Iterator[Move]:
        """Yields the moves to other tilings."""
        chosen = dict(decisions.tiles)
        for (count, step), at in zip(decisions.units, decisions.starts()):
            if step:  # its layers have no tiles of their own
                continue
            group = channel_group(self.config, self.layers, at, count, self.readers, self.outside)
            options = self.tiles(decisions, at, group)
            best = options[0][1] if options else 0.0
            for number, (tile, cycles) in enumerate(options):
                if tile == chosen.get(at, options[0][0]):
                    continue
                tiles = {**chosen, at: tile}
                if number == 0:
                    del tiles[at]
                after = replace(decisions, tiles=tuple(sorted(tiles.items())))
                yield Move("tile", at, after, (at, at + 1), cycles / best if best else 1.0)

    def tiles(
        self, decisions: Decisions, number: int, group: LayerGroup | None = None
    ) -> list[tuple[tuple[int, ...], float]]:
        """Returns tilings of a layer and their estimated cycles (0 for layers on VECTOR), the preferred one first.

        Args:
            decisions: the schedule.
            number: number of the layer.
            group: its group, if it runs there as it would alone or is the first of a group by channels.
        """
        stays = [replace(self.able[first], start=start) for first, start in decisions.stays]
        alive = [stay for stay in stays if stay.first <= number <= stay.last]
        between = () if group is None else tuple(tensor.view.buffer for tensor in group.between)
        key = number, tuple((stay.first, stay.start) for stay in alive), between
        found = self._tiles.get(key)
        if found is None:
            context = self.problem.fresh().dry_context()
            for stay in alive:
                stay.settle(context)
            context.bands |= dict.fromkeys(between, SOMEWHERE)
            layer = self.layers[number]
            span = (0, layer.output.h) if between else None  # rows of each image
            plans = layer.plans(context, context.heap.largest_gap, span, every=True)
            if group is not None and group.by_channel:
                plans = channel_plans(context, group).first
            best = cheapest_plans(plans, _TILES)
            found = [(plan.numbers(), plan.cycles) for plan in best]
            self._tiles[key] = found
        return found

    def _unit_moves(self, decisions: Decisions) -> Iterator[Move]:
        """Yields the moves to other groups."""
        starts = decisions.starts()
        for i, (count, step) in enumerate(decisions.units):
            at = starts[i]
            if count > 1:
                for other in self._steps(at, count):
                    if other != step:
                        yield self._regrouped(decisions, "step", i, 1, [(count, other)])
                for cut in range(1, count):
                    parts = self._units(at, (cut, count - cut), step)
                    if parts is not None:
                        yield self._regrouped(decisions, "cut", i, 1, parts)
            if i + 1 == len(decisions.units):
                continue
            after = decisions.units[i + 1][0]
            for other in self._steps(at, count + after):
                yield self._regrouped(decisions, "join", i, 2, [(count + after, other)])
            for shift in (-1, 1):  # one layer from a unit to its neighbour
                left, right = count + shift, after - shift
                if min(left, right) >= 1:
                    parts = self._units(at, (left, right), max(step, decisions.units[i + 1][1]) or 8)
                    if parts is not None:
                        yield self._regrouped(decisions, "shift", i, 2, parts)

    def _units(self, at: int, counts: tuple[int, int], lines: int) -> list[tuple[int, int]] | None:
        """Returns two units from layer `at` on, with about `lines` rows per band; None if a fused one cannot run so."""
        units = []
        for count in counts:
            steps = self._steps(at, count)
            if not steps:
                return None
            units.append((count, min(steps, key=lambda s: abs(s - lines))))
            at += count
        return units

    def _steps(self, at: int, count: int) -> list[int]:
        """Returns the rows per band with which layers can be a unit; 0 for a single layer and a group by channels."""
        if count == 1:
            return [0]
        found = []
        if group_of(self.layers, at, count, self.readers, self.outside) is not None:
            found += LayerGroup(tuple(self.layers[at : at + count])).steps(STEPS)
        if channel_group(self.config, self.layers, at, count, self.readers, self.outside) is not None:
            found.append(0)
        return found

    def _regrouped(self, decisions: Decisions, kind: str, unit: int, old: int, new: list[tuple[int, int]]) -> Move:
        """Returns the move that replaces units unit..unit+old-1 by `new`.

        Layers that are fused then have no tilings of their own, and tensors between them do not stay in ACT besides.
        """
        starts = decisions.starts()
        first, end = starts[unit], starts[unit + old]
        fused: set[int] = set()
        between: set[int] = set()
        at = first
        for count, _ in new:
            if count > 1:
                fused |= set(range(at, at + count))
                between |= set(range(at, at + count - 1))
            at += count
        units = (*decisions.units[:unit], *new, *decisions.units[unit + old :])
        tiles = tuple((layer, tile) for layer, tile in decisions.tiles if layer not in fused)
        stays = tuple(pair for pair in decisions.stays if pair[0] not in between)
        return Move(kind, first, Decisions(stays, units, tiles), (first, end))

    def _stay_moves(self, decisions: Decisions) -> Iterator[Move]:
        """Yields the moves that keep a tensor in ACT or release it."""
        held = dict(decisions.stays)
        inside = set()  # outputs that never leave their fused group
        for (count, _), at in zip(decisions.units, decisions.starts()):
            inside |= set(range(at, at + count - 1))
        for first, stay in self.able.items():
            share = stay.rows / self.config.act_rows
            if first in held:
                rest = tuple(pair for pair in decisions.stays if pair[0] != first)
                after = replace(decisions, stays=rest)
                yield Move("release", first, after, (first, stay.last + 1), rows=-share)
            elif first not in inside and stay.rows < self.config.act_rows:
                chosen = [replace(self.able[f], start=start) for f, start in decisions.stays] + [replace(stay)]
                placed = place_residents(self.config.act_rows, chosen)
                if len(placed) < len(chosen):
                    continue
                moved = [s for s in placed if held.get(s.first) != s.start]
                span = min(s.first for s in moved), max(s.last for s in moved) + 1
                after = replace(decisions, stays=tuple(sorted((s.first, s.start) for s in placed)))
                yield Move("keep", first, after, span, rows=share)
