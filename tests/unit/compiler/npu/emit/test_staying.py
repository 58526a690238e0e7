"""Tiles that loads write, and whether weights stay in them."""

from __future__ import annotations

import pytest

from tilewright.compiler.errors import CompileError
from tilewright.compiler.npu.emit.staying import require_staying
from tilewright.isa.codes import CodeMode
from tilewright.isa.config import preset
from tilewright.isa.encoding import Op, op
from tilewright.isa.instructions import Memory
from tilewright.isa.program import ARENA_REGION, CONSTANT_REGION

TINY = preset("tiny").with_(weight_codes=8)


def load(row: int, count: int, region: int = CONSTANT_REGION, target: Memory = Memory.WGT) -> Op:
    return op("LOAD", region=region, target=target, row=row, count=count)


def dims(*levels: tuple[int, int]) -> list[Op]:
    return [op("LOAD_DIM", level=k, count=count, row_stride=stride) for k, (count, stride) in enumerate(levels)]


STAY: dict[str, list[Op]] = {
    "side by side": [load(0, 512), load(512, 512)],
    "other memories": [load(0, 64), load(0, 64, target=Memory.ACT), load(0, 2, target=Memory.PRM)],
    "made of activations, again and again": [load(0, 8), load(8, 8, ARENA_REGION), load(8, 8, ARENA_REGION)],
    "in steps": [*dims((3, 10), (2, 100)), load(0, 5), *dims((1, 0), (1, 0)), load(5, 5), load(115, 5), load(125, 875)],
    "packed": [op("LOAD_PACKED", region=CONSTANT_REGION, target=Memory.WGT, row=8, count=8), load(0, 8)],
    "codes": [
        op("LOAD_CODED", mode=CodeMode.TABLE), op("LOAD_CODED", region=CONSTANT_REGION, row=8, count=8), load(0, 8)
    ],
    "padded": [op("LOAD_PAD", left=1, right=2, top=0, bottom=0), load(1, 4), op("LOAD_PAD"), load(8, 1)],
}  # fmt: skip
GO: dict[str, tuple[list[Op], int]] = {
    "over the end": ([load(0, 1024), load(0, 1)], 1025),
    "over each other": ([load(0, 9), load(8, 9)], 18),
    "over packed ones": (
        [op("LOAD_PACKED", region=CONSTANT_REGION, target=Memory.WGT, row=8, count=9), load(0, 9)],
        18,
    ),
    "over by activations": ([load(0, 9), load(8, 9, ARENA_REGION)], 18),
    "in steps": ([*dims((3, 10), (2, 100)), load(0, 5), *dims((1, 0), (1, 0)), load(120, 2)], 32),
    "codes": ([op("LOAD_CODED", region=CONSTANT_REGION, row=8, count=8), load(15, 8)], 16),
    "padded": ([op("LOAD_PAD", left=1, right=2, top=0, bottom=0), load(1, 4), op("LOAD_PAD"), load(7, 1)], 8),
}


@pytest.mark.parametrize("name", STAY)
def test_stays(name: str) -> None:
    require_staying(STAY[name], TINY)


@pytest.mark.parametrize("name", GO)
def test_goes(name: str) -> None:
    ops, loaded = GO[name]
    with pytest.raises(CompileError) as refused:
        require_staying(ops, TINY)
    assert str(refused.value) == (
        f"the weights do not stay in WGT: the program loads {loaded} tiles, wgt_tiles of 'tiny' is 1024"
    )
