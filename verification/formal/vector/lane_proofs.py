"""Proofs about a lane of VECTOR."""

from __future__ import annotations

import functools
from typing import Any

from verification.formal.engine import Cut
from verification.formal.proof import Proof, Property
from verification.formal.vector import lane_benches

#: Where the source stage differs: one pass or several, a row unit beside it.
_SOURCES: dict[str, dict[str, Any]] = {
    "lane_source": {"passes": 1},
    "lane_source_passes": {"passes": 2},
    "lane_source_row": {"passes": 1, "rows": 26},
}

PROOFS: tuple[Proof, ...] = (
    *(
        Proof(
            name,
            functools.partial(lane_benches.source, **parameters),
            False,
            10,
            (
                Property(
                    "value",
                    "Lane: the requantiser gets ACC, (a - za) * (b - zb), or the sum of a since the group began, plus "
                    "the bias, wrapping",
                    Cut("lane.v5"),
                ),
                Property(
                    "plain",
                    "Lane: what is not requantised is a, or the maximum of a since the group began",
                    Cut("lane.smaller"),
                ),
            ),
        )
        for name, parameters in _SOURCES.items()
    ),
    *(
        Proof(
            name,
            functools.partial(lane_benches.finish, wide=wide),
            False,
            23,
            (
                Property(
                    "index",
                    "Lane: v is the requantiser's result or the value itself; with Add it becomes "
                    "clamp((v*ma + b*mb + c) >> shift); the table is asked for v & 255",
                    Cut("lane.wide20", 18),
                ),
                Property(
                    "told",
                    "Lane: scale, zero points, mode and limits reach the requantiser as they are",
                    None,
                ),
                Property(
                    "result",
                    "Lane: the result is what the table gave, where it is looked up, else v",
                    Cut("lane.result_0", 23),
                ),
            ),
        )
        for name, wide in (("lane_finish", False), ("lane_finish_wide", True))
    ),
)
