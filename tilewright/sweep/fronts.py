"""Fronts of points: who is on them, what part of all outcomes they win, and which points stand for them best."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

#: The objectives of a point, all to be made small.
Row = tuple[float, ...]
#: Objectives of which a hypervolume is computed, at most: it takes the front's length to this power.
MOST_AXES = 3
#: How far behind the worst row a point still counts, so that the ends of a front do.
_BEHIND = 0.1


def pareto_front(rows: list[Row]) -> list[int]:
    """Indices of the rows that no other row dominates: none is at most as large everywhere and smaller somewhere."""
    front: dict[Row, None] = {}
    for row in sorted(set(rows)):  # what dominates a row is sorted before it
        if not any(all(a <= b for a, b in zip(other, row)) for other in front):
            front[row] = None
    return [n for n, row in enumerate(rows) if row in front]


def hypervolume(rows: Iterable[Row], low: Row, high: Row) -> float:
    """Returns the share, 0..1, of the box from `low` to `high` whose points are no better than some row."""
    wide = [n for n, (a, b) in enumerate(zip(low, high)) if a < b]  # the same everywhere counts for nothing
    scaled = [tuple((row[n] - low[n]) / (high[n] - low[n]) for n in wide) for row in rows]
    inside = [row for row in scaled if max(row, default=0.0) <= 1]
    return _volume([inside[n] for n in pareto_front(inside)])  # the others add nothing, and take the most time


def _volume(rows: list[Row]) -> float:
    """Returns the part of the unit cube that lies behind rows, slice by slice along the first axis."""
    if not rows or not rows[0]:
        return float(bool(rows))
    rows = sorted(rows)
    ends = [*(row[0] for row in rows[1:]), 1.0]
    slices = [(end - row[0], n) for n, (row, end) in enumerate(zip(rows, ends)) if end > row[0]]
    return sum(width * _volume([row[1:] for row in rows[: n + 1]]) for width, n in slices)


def best(rows: Sequence[Row], count: int) -> list[int]:
    """Indices of up to `count` rows, those first that stand for the others best: front after front, and in each one
    the row that adds the most hypervolume, or with many objectives the one that is farthest from those before."""
    left, taken = list(range(len(rows))), list[int]()
    while left and len(taken) < count:
        front = [left[n] for n in pareto_front([rows[n] for n in left])]
        left = sorted(set(left) - set(front))
        own = [rows[n] for n in front]
        order = _by_volume if len(own[0]) <= MOST_AXES else _by_distance
        taken += [front[n] for n in order(own, count - len(taken))]
    return taken


def _by_volume(rows: list[Row], count: int) -> list[int]:
    low = tuple(map(min, zip(*rows)))
    high = tuple(b + _BEHIND * (b - a) for a, b in zip(low, map(max, zip(*rows))))
    taken: list[int] = []

    def added(n: int) -> float:
        """Returns the volume that a row adds to those taken."""
        others = list({tuple(map(max, rows[n], rows[m])) for m in taken})
        return hypervolume([rows[n]], low, high) - hypervolume((others[m] for m in pareto_front(others)), low, high)

    # Rows with what they add, at most: what a row adds only falls while others are taken, so that few are asked again.
    waiting = [(-1.0, n) for n in range(len(rows))]
    while waiting and len(taken) < count:
        _, n = heapq.heappop(waiting)
        entry = -added(n), n
        if waiting and entry > waiting[0]:
            heapq.heappush(waiting, entry)
        else:
            taken.append(n)
    return taken


def _by_distance(rows: list[Row], count: int) -> list[int]:
    scales = [(max(column) - min(column)) or 1.0 for column in zip(*rows)]
    distance = dict.fromkeys(range(len(rows)), float("inf"))
    taken: list[int] = []
    while distance and len(taken) < count:
        one = max(distance, key=lambda n: (distance[n], -n))
        taken.append(one)
        del distance[one]
        for n in distance:
            gap = sum(abs(a - b) / scale for a, b, scale in zip(rows[n], rows[one], scales))
            distance[n] = min(distance[n], gap)
    return taken
