"""Sites for blocks by simulated annealing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from fpga.errors import FpgaError

#: Moves per block and temperature, and the factor from one temperature to the next (FAST while most moves are taken).
MOVES = 120
COOLING, FAST = 0.92, 0.8
#: Temperatures begin and end at the average cost of a block divided by these.
_FROM, _UNTIL = 2, 150
#: Pulls are rounded to this fraction, so that every sum is exact and the result the same on every machine.
_UNIT = 256


def anneal(
    pulls: npt.NDArray[np.float64],
    kinds: Sequence[str],
    sites: Sequence[tuple[str, int, int]],
    *,
    seed: int,
    progress: Callable[[float], None] = lambda cost: None,
) -> list[int]:
    """The site of each block, where the sum of pull times Manhattan distance over all pairs is small.

    Moves swap two blocks of a kind, or take a block to a free site (Kirkpatrick et al., Science 220, 1983).

    Parameters:
        pulls: [blocks, blocks], symmetric, 0 on the diagonal.
        kinds: of each block.
        sites: kind, column, row; a block takes one of its kind.
        progress: is told the sum after each temperature.

    Raises:
        FpgaError: more blocks of a kind than sites.
    """
    count = len(kinds)
    pull = np.rint(pulls * _UNIT).astype(np.int64)
    place = np.array([(x, y) for _, x, y in sites], dtype=np.int64).reshape(-1, 2)
    distance = np.abs(place[:, None] - place[None]).sum(axis=2)
    random = np.random.default_rng(seed)
    of_kind = {kind: [n for n, site in enumerate(sites) if site[0] == kind] for kind in sorted(set(kinds))}
    at = [0] * count  # site of each block
    there = [-1] * len(sites)  # block on each site
    for kind, choice in of_kind.items():
        members = [n for n, k in enumerate(kinds) if k == kind]
        if len(members) > len(choice):
            raise FpgaError(f"{len(members)} blocks of {kind}, {len(choice)} sites")
        for block, site in zip(members, random.permutation(choice).tolist(), strict=False):
            at[block], there[site] = site, block
    if count < 2:
        return at

    cost_at = distance[:, at] @ pull  # [site, block]: cost of a block if it were there
    cost = int(cost_at[at, np.arange(count)].sum()) // 2
    temperature, moves = cost / count / _FROM, MOVES * count
    while temperature > max(cost, 1) / count / _UNTIL:
        chosen = random.integers(0, count, moves).tolist()
        allowed = (-np.log(random.random(moves)) * temperature).tolist()
        targets = {kind: random.integers(0, len(choice), moves).tolist() for kind, choice in of_kind.items()}
        taken = 0
        for n, (block, bound) in enumerate(zip(chosen, allowed, strict=True)):
            kind = kinds[block]
            here, target = at[block], of_kind[kind][targets[kind][n]]
            if here == target:
                continue
            other = there[target]
            change = cost_at[target, block] - cost_at[here, block]
            moved = pull[block]
            if other >= 0:
                change += cost_at[here, other] - cost_at[target, other] + 2 * moved[other] * distance[here, target]
                moved = moved - pull[other]
            if change > bound:
                continue
            taken += 1
            cost += int(change)
            cost_at += (distance[target] - distance[here])[:, None] * moved
            at[block], there[target], there[here] = target, block, other
            if other >= 0:
                at[other] = here
        temperature *= COOLING if taken < 0.6 * moves else FAST
        progress(cost / _UNIT)
    return at
