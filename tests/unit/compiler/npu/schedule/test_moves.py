"""Schedules one decision away: each can run, changes only what its move names, and can be taken back."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from msgspec.structs import replace

from tests.unit.compiler.npu.net import Net
from tests.unit.compiler.npu.schedule.steps import step_of
from tilewright.compiler.npu.schedule.decisions import Decisions, decisions_of, schedule_of
from tilewright.compiler.npu.schedule.emission import emit_step
from tilewright.compiler.npu.schedule.moves import Move, Neighbourhood
from tilewright.compiler.npu.schedule.problem import Schedule, StepProblem
from tilewright.compiler.npu.schedule.search import Policy, make_schedule
from tilewright.isa.config import preset

SMALL = preset("base").with_(name="few rows", act_rows=2048)
KINDS = {"tile", "step", "join", "cut", "shift", "keep", "release"}


@pytest.fixture(scope="module")
def step() -> StepProblem:
    """Returns layers that can run together, in bands and by channels, and tensors of which ACT holds some."""
    net = Net()
    x = net.plane(24, 12)
    for _ in range(2):
        y = net.conv(net.conv(x, 48), 48, kernel=3, group=48)
        x = net.add(net.conv(y, 24), x)
    net.graph.outputs.append(net.conv(x, 8, stride=2))
    return step_of(net, SMALL)


def walk(near: Neighbourhood, start: Decisions, count: int) -> Iterator[tuple[Decisions, list[Move]]]:
    """Yields decisions and their moves, along a random walk in which each kind of move is as likely."""
    random = Random(1)
    for _ in range(count):
        moves = list(near.moves(start))
        yield start, moves
        kind = random.choice(sorted({move.kind for move in moves}))
        start = after(near, start, random.choice([move for move in moves if move.kind == kind]))


def after(near: Neighbourhood, before: Decisions, move: Move) -> Decisions:
    found = near.after(before, move)
    assert found is not None
    return found


def units(of: Decisions) -> dict[int, tuple[int, int]]:
    """Returns each layer's group: its first layer, its number of layers, and rows per band."""
    return {n: (at, *unit) for at, unit in zip(of.starts(), of.units) for n in range(at, at + unit[0])}


@pytest.mark.medium
def test_moves_change_what_they_say(step: StepProblem) -> None:
    near, kinds = Neighbourhood(step), set()
    for before, moves in walk(near, decisions_of(Schedule.plain(step.layers)), 60):
        afters = [after(near, before, move) for move in moves if move.kind != "tile"]
        assert len({before, *afters}) == len(afters) + 1
        usual = {
            at: near.tiles(before, at, schedule_of(step, before).units[n]) for n, at in enumerate(before.starts()[:-1])
        }
        for move in moves:
            found = after(near, before, move)
            kinds.add(move.kind)
            assert decisions_of(schedule_of(step, found)) == found, move  # can run, and nothing of it is left out
            concerned = {*range(move.layer, move.layer + move.count)}
            changed = {n for a, b in ((before, found), (found, before)) for n, _ in set(a.tiles) - set(b.tiles)}
            changed |= {n for n, unit in units(found).items() if units(before)[n] != unit}
            assert changed <= concerned, move
            stays = dict(before.stays).keys() ^ dict(found.stays).keys()
            match move.kind:
                case "keep":
                    assert move.layer in dict(found.stays) and move.layer not in dict(before.stays)
                    assert dict(before.stays).keys() >= stays - {move.layer}  # others may have to leave
                case "release":
                    assert stays == {move.layer} and dict(before.stays)[move.layer] >= 0
                case "tile":
                    cycles = [cycles for tile, cycles in usual[move.layer] if (move.layer, tile) in found.tiles]
                    lowest = usual[move.layer][0][1]
                    assert changed == {move.layer}
                    assert move.estimate in [cost / lowest for cost in cycles or [lowest]]
                case _:
                    assert stays <= concerned and units(found) != units(before)
    assert kinds == KINDS


@pytest.mark.medium
@pytest.mark.parametrize(("kind", "back"), [("join", "cut"), ("shift", "shift"), ("step", "step"), ("keep", "release")])
def test_moves_can_be_taken_back(step: StepProblem, kind: str, back: str) -> None:
    near, taken = Neighbourhood(step), 0

    def what(decisions: Decisions) -> list[int]:
        """Returns the first layers of groups, or of tensors in ACT, whose places may change with other tensors'."""
        return [first for first, _ in (decisions.stays if kind == "keep" else decisions.units)]

    for before, moves in walk(near, decisions_of(Schedule.plain(step.layers)), 12):
        for move in (m for m in moves if m.kind == kind):
            there = after(near, before, move)
            if kind == "keep" and len(there.stays) <= len(before.stays):
                continue  # another tensor had to leave
            assert what(before) in [what(after(near, there, m)) for m in near.moves(there) if m.kind == back], move
            taken += 1
    assert taken > 3


@pytest.mark.medium
def test_moves_from_elsewhere(step: StepProblem) -> None:
    """A move to groups is none where other units begin or end, nor is one that keeps what passes within a group."""
    near = Neighbourhood(step)
    plain = decisions_of(Schedule.plain(step.layers))
    join = next(move for move in near.moves(plain) if move.kind == "join" and move.layer == 1)
    other = next(move for move in near.moves(plain) if move.kind == "join" and move.layer == 0)
    joined = after(near, plain, other)
    assert near.after(joined, join) is None
    first = other.layer
    assert first in step.able
    assert near.after(joined, Move("keep", first, 2)) is None and near.after(plain, Move("keep", first, 2)) is not None


@pytest.mark.medium
def test_the_first_tile_is_the_usual_one(step: StepProblem) -> None:
    """The first tiling is the one that the layer takes beside the tensors that stay in ACT."""
    near = Neighbourhood(step)
    for schedule in (Schedule.plain(step.layers), make_schedule(step, Policy())):
        decisions = decisions_of(schedule)
        for number, layer in enumerate(step.layers):
            context = step.fresh().dry_context()
            for stay in schedule.stays:
                if stay.first <= number <= stay.last:
                    stay.settle(context)
            options = near.tiles(decisions, number)
            assert options[0][0] == layer.plan(context, context.heap.largest_gap).numbers()
            assert len(options) == min(16, len([*layer.plans(context, context.heap.largest_gap, every=True)]))
            assert [cycles for _, cycles in options] == sorted(cycles for _, cycles in options)


@pytest.mark.medium
def test_tiles_of_a_group_by_channels_are_those_it_runs_with(step: StepProblem) -> None:
    near = Neighbourhood(step)
    for count in (2, 3):
        decisions = Decisions((), ((count, 0), *((1, 0),) * (len(step.layers) - count)))
        moves = [after(near, decisions, m).tiles for m in near.moves(decisions) if m.kind == "tile" and m.layer == 0]
        assert len(moves) > 3
        for ((number, tile),) in moves:
            schedule = schedule_of(step, replace(decisions, tiles=((number, tile),)))
            context = step.fresh().dry_context()
            schedule.use_tiles(context, step.layers)
            emit_step(context, schedule.units, schedule.stays)
            assert [way.first.numbers() for way in context.plans.by_channel.values()] == [tile]
