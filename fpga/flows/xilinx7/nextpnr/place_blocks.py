"""Script for nextpnr's Python before placement: gives DSP blocks and block RAMs of 18 Kbit their sites.

DSP blocks that pass sums on stand above each other, from the lower block of a tile on. nextpnr lets them go over tiles
that are five rows apart, which ends at the row of clocks in the middle of a clock region: five tiles are a stack here.
The placer looks for such places at random and finds none where stacks are nearly full. Here the longest sums come
first, in the order of their names, which is that of the array, from the bottom of the FPGA on.

A block RAM of 36 Kbit takes the place of two of 18. The placer moves one kind away for the other, and back, without an
end. Those of 18 stand in pairs here, around the middle of the DSP blocks; it places the others.

It runs in nextpnr's Python, without this package: hence a folder of its own.
"""

import re
from typing import Any

ctx: Any = globals()["ctx"]
DSP, MEMORY = "DSP48E1_DSP48E1", "RAMB18E1_RAMB18E1"
#: Rows from a tile with DSP blocks to the next of a stack.
STEP = 5
SITE = re.compile(r"X(\d+)Y(\d+)/(DSP48|RAMB18)_X0Y([01])\.")


def numbered(name: str) -> tuple[Any, ...]:
    """A sort key in which 9 comes before 10."""
    return tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name) if part)


def next_of(cell: Any) -> str | None:
    """The DSP block whose sum input comes from this one, below it."""
    for port, value in cell.ports:
        if str(port) == "PCOUT0" and value.net is not None:
            for user in value.net.users:
                return str(user.cell.name)
    return None


#: Sites by kind: column, row (0 at the top), half of the tile, name.
sites: dict[str, list[tuple[int, int, int, str]]] = {"DSP48": [], "RAMB18": []}
for bel in ctx.getBels():
    if (found := SITE.match(str(bel))) and str(bel).endswith(("DSP48E1", "RAMB18E1")):
        sites[found[3]].append((int(found[1]), int(found[2]), int(found[4]), str(bel)))

stacks: list[list[tuple[int, int, int, str]]] = []
for site in sorted(sites["DSP48"], key=lambda site: (site[0], -site[1], site[2])):
    last = stacks[-1][-1] if stacks else None
    if last is None or last[0] != site[0] or last[1] - site[1] not in (0, STEP):
        stacks.append([])
    stacks[-1].append(site)
stacks.sort(key=lambda stack: (-stack[0][1], stack[0][0]))

blocks = {str(name): cell for name, cell in ctx.cells if cell.type == DSP}
follows = {name: after for name, cell in blocks.items() if (after := next_of(cell)) is not None}
chains = []
for name in sorted(set(blocks) - set(follows.values()), key=numbered):
    chain = [name]
    while chain[-1] in follows:
        chain.append(follows[chain[-1]])
    chains.append(chain)
taken = []
for chain in sorted(chains, key=len, reverse=True):
    length = len(chain) if len(chain) == 1 else len(chain) + len(chain) % 2  # a sum begins in the lower half
    stack = next((stack for stack in stacks if len(stack) >= length), None)
    if stack is None:
        continue  # the placer reports blocks that do not fit
    for name, site in zip(chain, stack, strict=False):
        ctx.cells[name].setAttr("BEL", site[3])
        taken.append(site)
    del stack[:length]

if taken and any(cell.type == "RAMB36E1_RAMB36E1" for _, cell in ctx.cells):
    x, y = sum(site[0] for site in taken) / len(taken), sum(site[1] for site in taken) / len(taken)
    around = sorted(sites["RAMB18"], key=lambda site: (abs(site[0] - x) + abs(site[1] - y), site))
    halves = sorted((str(name) for name, cell in ctx.cells if cell.type == MEMORY), key=numbered)
    for name, site in zip(halves, around, strict=False):
        ctx.cells[name].setAttr("BEL", site[3])
