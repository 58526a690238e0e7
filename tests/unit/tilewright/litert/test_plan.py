"""The choice of operators: parts as LiteRT forms them, cut back to what the NPU gains from."""

from __future__ import annotations

from tilewright.compiler.importer.tflite.schema import FileOp
from tilewright.litert.plan import between, clusters, worthwhile_parts


def ops(*wires: tuple[list[int], list[int]]) -> list[FileOp]:
    return [FileOp("X", index, 1, inputs, outputs) for index, (inputs, outputs) in enumerate(wires)]


def indices(groups: list[list[FileOp]]) -> list[list[int]]:
    return [[op.index for op in group] for group in groups]


CHAIN = ops(([0], [1]), ([1], [2]), ([2], [3]), ([3], [4]), ([4], [5]))
#: 0 feeds 1 and 2, which meet in 3.
DIAMOND = ops(([0], [1]), ([1], [2]), ([1], [3]), ([2, 3], [4]))


def test_a_chain_is_cut_where_something_is_left() -> None:
    assert indices(clusters(CHAIN, {0, 1, 3, 4})) == [[0, 1], [3, 4]]
    assert indices(clusters(CHAIN, {2})) == [[2]]
    assert clusters(CHAIN, set()) == []


def test_a_branch_that_is_left_does_not_cut_the_other() -> None:
    """1 joins 0; 3 waits for 2 and is a part of its own."""
    assert indices(clusters(DIAMOND, {0, 1, 3})) == [[0, 1], [3]]


def test_operators_that_wait_for_each_other_are_in_no_part() -> None:
    assert clusters(ops(([2], [1]), ([1], [2])), {0, 1}) == []


def test_parts_begin_and_end_with_work_for_the_npu() -> None:
    assert between(CHAIN, {1, 3}) == [1, 2, 3]
    assert between(CHAIN, {2}) == [2]
    assert between(CHAIN, set()) == []
    assert between(DIAMOND, {0, 3}) == [0, 1, 2, 3]
    assert between(DIAMOND, {1, 3}) == [1, 3]


def test_parts_without_work_for_the_npu_go() -> None:
    assert worthwhile_parts(CHAIN, {0, 1, 3, 4}, {1}) == ({1}, [[1]])
    assert worthwhile_parts(CHAIN, {0, 1, 2, 3, 4}, {0, 4}) == ({0, 1, 2, 3, 4}, [[0, 1, 2, 3, 4]])
    assert worthwhile_parts(CHAIN, {0, 1, 2}, set()) == (set(), [])
