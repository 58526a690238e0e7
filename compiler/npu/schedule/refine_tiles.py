"""Tiles of single layers refined by exact cycles of the layer and its neighbours.

Estimates see a layer alone. Whether its first products can begin before the layer before it is done, or its loads hide
behind those products, depends on both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilewright.compiler.npu.schedule.comparison import compared
from tilewright.compiler.npu.schedule.decisions import decisions_of
from tilewright.compiler.npu.schedule.neighbours import Neighbourhood
from tilewright.compiler.npu.schedule.problem import GAIN, Costed, StepProblem

#: Tilings of a layer that are measured besides the preferred one, by effort: the least, and the most where a step has
#: so few instructions that this many measure them in all layers.
TILES = ((0, 0), (3, 12), (8, 12), (16, 16))
INSTRUCTIONS = 60_000
#: Largest ratio of a measured tiling's estimate to the best estimate.
MARGIN = 1.1
#: Largest cost of a step that is refined, by effort: for longer steps it takes too long.
LONGEST = (0, 600_000, 20_000_000, 200_000_000)
#: Number of units that are measured for a tiling of the middle one.
_WINDOW = 3


def refine_tiles(
    problem: StepProblem, start: Costed, effort: int, progress: Callable[[float], None] = lambda done: None
) -> Costed:
    """Returns the schedule with other tilings for layers that run alone, if the whole step is cheaper with them.

    Layers with the smallest estimates choose first.

    Args:
        problem: the step.
        start: the schedule and its cost.
        effort: search effort, 0 to 3.
        progress: called with the fraction done.
    """
    schedule, cost = start
    if not cost <= LONGEST[effort]:
        return start
    few, many = TILES[effort]
    length = problem.measured(schedule).instructions
    if not length:  # the cost is that of parts; the machine stops the whole
        return start
    most = min(many, max(few, int(INSTRUCTIONS // (_WINDOW * length))))
    decisions = decisions_of(schedule)
    neighbourhood = Neighbourhood(problem)
    best = schedule
    options: dict[tuple[int, int], list[tuple[tuple[int, ...], float]]] = {}
    for unit, (group, first) in enumerate(zip(schedule.units, decisions.starts())):
        for layer in group.tiled(first):
            options[unit, layer] = neighbourhood.tiles(decisions, layer, group)
    estimated = [key for key, found in options.items() if found and found[0][1]]
    estimated.sort(key=lambda key: options[key][0][1])
    for number, (unit, layer) in enumerate(estimated):
        progress(number / len(estimated))
        (_, preferred), *others = options[unit, layer]
        near = [tile for tile, cycles in others if cycles <= MARGIN * preferred][:most]
        if not near:
            continue
        window = max(0, unit - 1), min(unit - 1 + _WINDOW, len(schedule.units))
        lowest = problem.cost(best, window)
        for tile in near:
            tried = replace(best, tiles=best.tiles | {layer: tile})
            found = problem.cost(tried, window)
            if found < GAIN * lowest:
                lowest, best = found, tried
    if best is schedule:
        return start
    refined = compared(problem, start, best)
    return refined if refined.cost < GAIN * cost else start
