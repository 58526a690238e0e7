"""Moves: single decisions that can change. Other tiles, other groups, tensors that stay in ACT or leave it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from tilewright.compiler.npu.emit.plan import cheapest_plans
from tilewright.compiler.npu.emit.tiles import SOMEWHERE
from tilewright.compiler.npu.schedule.bands import LayerGroup
from tilewright.compiler.npu.schedule.channels import channel_plans
from tilewright.compiler.npu.schedule.decisions import Decisions
from tilewright.compiler.npu.schedule.problem import StepProblem
from tilewright.compiler.npu.schedule.residency import place_residents

#: Rows of the last output per band that fused groups are tried with.
STEPS = (1, 2, 3, 4, 6, 7, 8, 10, 14, 16, 20, 28)
#: Divisor of ACT: at least this part is left for tiles; a measurement shows whether they fit.
SPARE = 32
_TILES = 16  # per layer: those with the fewest estimated cycles


class Move(Struct, frozen=True):
    """One decision that changes.

    Attributes:
        kind: "tile", "step", "join", "cut", "shift", "keep" or "release".
        layer: number of the first layer it concerns.
        count: number of layers it concerns.
        units: the units of these layers afterwards, of a move to other groups.
        tile: the layer's tiling afterwards, of a move to another one; None for the one that the estimate prefers.
        estimate: ratio of estimated cycles after and before, 1.0 without an estimate.
        rows: ACT rows the move takes (negative: frees), as a share of ACT.
    """

    kind: str
    layer: int
    count: int = 1
    units: tuple[tuple[int, int], ...] = ()
    tile: tuple[int, ...] | None = None
    estimate: float = 1.0
    rows: float = 0.0

    @staticmethod
    def regroup(kind: str, layer: int, units: list[tuple[int, int]]) -> Move:
        """Returns the move to other units from a layer on."""
        return Move(kind, layer, sum(count for count, _ in units), tuple(units))


class Neighbourhood:
    """All moves from a schedule of one NPU step."""

    def __init__(self, problem: StepProblem) -> None:
        self.problem = problem
        self._tiles: dict[Hashable, list[tuple[tuple[int, ...], float]]] = {}

    def moves(self, decisions: Decisions) -> Iterator[Move]:
        """Yields every move; only emission shows whether the result fits."""
        yield from self._tile_moves(decisions)
        yield from self._unit_moves(decisions)
        yield from self._stay_moves(decisions)

    def after(self, decisions: Decisions, move: Move) -> Decisions | None:
        """Returns the decisions after a move, None if it is none from there."""
        if move.kind == "tile":
            return decisions.tiled(move.layer, move.tile)
        if move.kind == "release":
            return replace(decisions, stays=tuple(stay for stay in decisions.stays if stay[0] != move.layer))
        return self._kept(decisions, move.layer) if move.kind == "keep" else decisions.regrouped(move.layer, move.units)

    def _kept(self, decisions: Decisions, first: int) -> Decisions | None:
        """Returns the decisions with the output of layer `first` in ACT; tensors that no longer fit beside it leave."""
        able = self.problem.able
        if any(at <= first < at + count - 1 for at, (count, _) in zip(decisions.starts(), decisions.units)):
            return None  # it never leaves its group
        chosen = [replace(able[number], start=start) for number, start in decisions.stays if number != first]
        placed = place_residents(self.problem.config.act_rows, [*chosen, replace(able[first])], SPARE)
        stays = tuple(sorted((stay.first, stay.start) for stay in placed))
        return replace(decisions, stays=stays) if first in dict(stays) else None

    def _tile_moves(self, decisions: Decisions) -> Iterator[Move]:
        """Yields the moves to other tilings."""
        chosen = dict(decisions.tiles)
        for at, (count, step) in zip(decisions.starts(), decisions.units):
            unit = self.problem.unit(at, count, step)
            assert unit is not None
            for layer in unit.tiled(at):
                (preferred, lowest), *others = self.tiles(decisions, layer, unit) or [((), 0.0)]
                if layer in chosen:
                    yield Move("tile", layer)
                for tile, cycles in others:
                    if tile != chosen.get(layer, preferred):
                        yield Move("tile", layer, tile=tile, estimate=cycles / lowest if lowest else 1.0)

    def tiles(
        self, decisions: Decisions, number: int, unit: LayerGroup | None = None
    ) -> list[tuple[tuple[int, ...], float]]:
        """Returns tilings of a layer and their estimated cycles (0 for layers on VECTOR), the preferred one first.

        Args:
            decisions: the schedule.
            number: number of the layer.
            unit: its unit, where the layer has a tiling of its own (`LayerGroup.tiled`); None for the layer alone.
        """
        stays = [replace(self.problem.able[first], start=start) for first, start in decisions.stays]
        alive = [stay for stay in stays if stay.first <= number <= stay.last]
        between = () if unit is None else tuple(tensor.view.buffer for tensor in unit.between)
        key = number, tuple((stay.first, stay.start) for stay in alive), between
        found = self._tiles.get(key)
        if found is None:
            context = self.problem.fresh().dry_context()
            for stay in alive:
                stay.settle(context)
            context.bands |= dict.fromkeys(between, SOMEWHERE)
            layer = self.problem.layers[number]
            span = (0, layer.output.h) if between else None  # rows of each image
            plans = layer.plans(context, context.heap.largest_gap, span, every=True)
            if unit is not None and unit.by_channel:
                plans = channel_plans(context, unit).first
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
                        yield Move.regroup("step", at, [(count, other)])
                for cut in range(1, count):
                    parts = self._units(at, (cut, count - cut), step)
                    if parts is not None:
                        yield Move.regroup("cut", at, parts)
            if i + 1 == len(decisions.units):
                continue
            after = decisions.units[i + 1][0]
            for other in self._steps(at, count + after):
                yield Move.regroup("join", at, [(count + after, other)])
            for shift in (-1, 1):  # one layer from a unit to its neighbour
                left, right = count + shift, after - shift
                if min(left, right) >= 1:
                    parts = self._units(at, (left, right), max(step, decisions.units[i + 1][1]) or 8)
                    if parts is not None:
                        yield Move.regroup("shift", at, parts)

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
        banded = self.problem.group(at, count, by_channel=False)
        by_channel = self.problem.group(at, count, by_channel=True)
        return (banded.steps(STEPS) if banded is not None else []) + [0] * (by_channel is not None)

    def _stay_moves(self, decisions: Decisions) -> Iterator[Move]:
        """Yields the moves that keep a tensor in ACT or release it."""
        held = dict(decisions.stays)
        for first, stay in self.problem.able.items():
            share, count = stay.rows / self.problem.config.act_rows, stay.last + 1 - first
            if first in held:
                yield Move("release", first, count, rows=-share)
            elif stay.rows < self.problem.config.act_rows and self._kept(decisions, first) is not None:
                yield Move("keep", first, count, rows=share)
