"""Other tiles for single layers, where exact cycles of the layer and its neighbours say that they are better.

Estimates see a layer alone. Whether its first products can begin before the layer before it is done, or its loads hide
behind those products, depends on both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilewright.compiler.npu.emit.plan import TilePlans
from tilewright.compiler.npu.layers.layer import Layer
from tilewright.compiler.npu.schedule.decisions import decisions_of
from tilewright.compiler.npu.schedule.neighbours import Neighbourhood
from tilewright.compiler.npu.schedule.search import GAIN, Measure, Schedule, measure_schedule
from tilewright.isa.config import NpuConfig
from tilewright.isa.fields import INSTRUCTION_BYTES

#: Tiles of a layer that are measured besides the one the estimate prefers, by effort: at least, and where a step has
#: so few instructions that this many measure them in all layers.
TILES = ((0, 0), (3, 12), (8, 12), (16, 16))
INSTRUCTIONS = 60_000
#: Of those with estimates this much above the best.
MARGIN = 1.1
#: Cycles (or whatever is measured) of the longest step that is refined, by effort: for longer ones it takes too long.
LONGEST = (0, 600_000, 20_000_000, 200_000_000)
#: Units that are measured for a tile of the one in the middle.
_WINDOW = 3


def refine(
    config: NpuConfig,
    layers: list[Layer],
    outside: set[str],
    schedule: Schedule,
    whole: float,
    effort: int,
    measure: Measure,
    plans: TilePlans,
    progress: Callable[[float], None] = lambda done: None,
) -> tuple[Schedule, float]:
    """The schedule, with other tiles for layers that run alone, the shortest ones first, if that is better in all; and
    its cost.

    Args:
        outside: buffers read after the step.
        whole: cost of the schedule.
        measure: cost function.
        progress: called with the fraction done.
    """

    def cost(of: Schedule, units: tuple[int, int] | None = None) -> float:
        return measure_schedule(config, layers, of, measure, plans, units)

    if not whole <= LONGEST[effort]:
        return schedule, whole
    few, many = TILES[effort]
    length = measure_schedule(config, layers, schedule, _instructions, plans)
    most = min(many, max(few, int(INSTRUCTIONS // (_WINDOW * length))))
    start = decisions_of(schedule)
    hood = Neighbourhood(config, layers, outside, plans.memory)
    best = schedule
    options: dict[tuple[int, int], list[tuple[tuple[int, ...], float]]] = {}
    for unit, (group, first) in enumerate(zip(schedule.units, start.starts())):
        for at in group.tiled(first):
            options[unit, at] = hood.tiles(start, at, group)
    alone = [key for key, found in options.items() if found and found[0][1]]  # those with estimates
    alone.sort(key=lambda key: options[key][0][1])
    for number, (unit, at) in enumerate(alone):
        progress(number / len(alone))
        preferred = options[unit, at][0][1]
        near = [tile for tile, cycles in options[unit, at][1:] if cycles <= MARGIN * preferred][:most]
        if not near:
            continue
        window = max(0, unit - 1), min(unit - 1 + _WINDOW, len(start.units))
        least = cost(best, window)
        for tile in near:
            tried = replace(best, tiles=best.tiles | {at: tile})
            found = cost(tried, window)
            if found < GAIN * least:
                least, best = found, tried
    if best is schedule or not (found := cost(best)) < GAIN * whole:
        return schedule, whole
    return best, found


def _instructions(config: NpuConfig, image: bytes, arena_bytes: int) -> int:
    """How many a step has, in place of its cycles."""
    return len(image) // INSTRUCTION_BYTES
