"""Order of instructions: LOAD and VECTOR run ahead instead of idling, but never past an instruction they depend on."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.npu.emit.emitter import Emitter
from tilewright.compiler.npu.emit.spaces import READERS, WRITERS
from tilewright.compiler.npu.emit.tile_program import Place
from tilewright.isa.config import PRESETS, SEMAPHORE_LIMIT
from tilewright.isa.encoding import Op, from_bytes, op
from tilewright.isa.instructions import BY_NAME, Memory
from tilewright.isa.program import CONSTANT_REGION
from verification.programs.accesses import Access, Run, assembled, rows_of

CONFIG = PRESETS["tiny"]
ROWS = dict.fromkeys(WRITERS, 64)


def load(space: str, row: int, work: int = 20, reads: tuple[Access, ...] = (), **values: int) -> Run:
    return Run(op("LOAD", row=row, **values), reads, [Access(space, row, 1)], work)


def gemm(act: int, wgt: int, acc: int, work: int) -> Run:
    return Run(op("GEMM", act=act), [Access("act", act, 1), Access("wgt", wgt, 1)], [Access("acc", acc, 1)], work)


def vector(a: int, dst: int, work: int, *, space: str = "act", name: str = "VECTOR") -> Run:
    return Run(op(name, dst=dst), [Access(space, a, 1)], [Access("act", dst, 1)], work)


def written(runs: Iterable[Run], rows: dict[str, int] = ROWS) -> tuple[list[Op], list[int]]:
    """Returns the instructions of runs, and the position at which each run begins."""
    return assembled(runs, CONFIG, rows)


def order(*runs: Run) -> list[int]:
    """Returns the offsets of the loads, in the order in which they are issued."""
    return [o["offset"] for o in written(runs)[0] if o.name == "LOAD"]


def busy() -> list[Run]:
    """Returns runs in which GEMM works for 1,000 cycles on ACT row 0."""
    return [load("act", 0, offset=1), load("wgt", 0, offset=2), gemm(0, 0, 0, 1000)]


def test_weights_go_ahead_of_a_load_that_waits() -> None:
    assert order(*busy(), load("act", 0, offset=3), load("wgt", 1, offset=4)) == [1, 2, 4, 3]


def test_order_stays_where_nothing_waits() -> None:
    assert order(*busy(), load("act", 1, offset=3), load("wgt", 1, offset=4)) == [1, 2, 3, 4]


def test_order_stays_where_too_little_is_gained() -> None:
    """The load of 20 cycles would be done earlier, but that gains little of more than 6,000."""
    assert order(*busy(), load("act", 0, 5000, offset=3), load("wgt", 1, offset=4)) == [1, 2, 3, 4]


def test_a_long_load_does_not_go_ahead() -> None:
    """LOAD would still be busy when the waiting load could begin."""
    assert order(*busy(), load("act", 0, offset=3), load("wgt", 1, 5000, offset=4)) == [1, 2, 3, 4]


def test_what_is_in_use_is_not_overwritten() -> None:
    later = gemm(1, 1, 1, 10)
    runs = (*busy(), load("wgt", 1, offset=3), load("act", 0, offset=4), later, load("wgt", 1, offset=5))
    assert order(*runs) == [1, 2, 3, 4, 5]


def test_data_are_not_read_before_they_are_stored() -> None:
    stored = Run(op("STORE"), [Access("act", 5, 1)], [Access("memory", 0, 64)], 10)
    after = load("act", 7, offset=4, reads=(Access("memory", 0, 64),))
    elsewhere = load("act", 6, offset=5, reads=(Access("memory", 1024, 64),))
    assert order(*busy(), load("act", 0, offset=3), stored, after, elsewhere) == [1, 2, 5, 3, 4]


def test_a_queue_without_room_is_gone_past() -> None:
    """GEMM's queue is full, so FETCH would not reach weights behind GEMM's instructions: they are issued ahead."""
    products = [gemm(0, 0, 0, 100) for _ in range(3 * CONFIG.queue_depth)]
    runs = [*busy(), *products, load("wgt", 1, 2500, offset=3), gemm(0, 1, 0, 10)]
    names = [o.name for o in written(runs)[0]]
    assert [i for i, name in enumerate(names) if name == "LOAD"][-1] < len(names) - CONFIG.queue_depth


def emitted(emitter: Emitter) -> list[Op]:
    """Ends a step, and returns its decoded instructions."""
    emitter.end_step()
    return from_bytes(bytes(emitter.image))


def test_a_load_goes_past_instructions_that_take_long_to_be_fetched() -> None:
    """GEMM finishes each product before the next one is fetched, so a load is issued ahead of the products."""
    names = [o.name for o in written([*(gemm(0, 0, 0, 1) for _ in range(60)), load("wgt", 1)])[0]]
    assert names.index("LOAD") < len(names) // 2


def drained() -> list[Run]:
    """Returns runs that follow `busy`: VECTOR takes its results, and makes GEMM's next operand of a loaded row."""
    return [vector(0, 40, 100, space="acc"), load("act", 20, offset=9), vector(20, 41, 500), gemm(41, 0, 1, 1000)]


def vectors(*runs: Run) -> list[int]:
    """Returns the rows that VECTOR writes, in order."""
    return [o["dst"] for o in written(runs)[0] if o.name in ("VECTOR", "ROW")]


def test_vector_does_not_wait_for_products_with_something_else_to_do() -> None:
    """VECTOR runs ahead of the pass that waits for products, and so does the load of its operand."""
    assert vectors(*busy(), *drained()) == [41, 40]


def test_vector_keeps_its_order_where_it_must() -> None:
    first, loaded, _, product = drained()
    overwrites = vector(20, 40, 500)
    assert vectors(*busy(), first, loaded, overwrites, gemm(40, 0, 1, 1000)) == [40, 40]
    reads = vector(40, 41, 500)
    assert vectors(*busy(), first, loaded, reads, product) == [40, 41]
    in_parts = vector(20, 41, 500, name="ROW")
    assert vectors(*busy(), first, loaded, in_parts, product) == [40, 41]
    too_long = vector(20, 41, 5000)
    assert vectors(*busy(), first, loaded, too_long, product) == [40, 41]


def test_settings_of_loads_are_written_where_they_change() -> None:
    emitter = Emitter(CONFIG, 0)
    for count in (2, 2, 3, 3, 1):
        emitter.load(Place(CONSTANT_REGION, 0), Memory.WGT, 0, 1, y=(count, 2, 4096) if count > 1 else (1, 0, 0))
    loads = [(o.name, o["count"]) for o in emitted(emitter) if o.name.startswith("LOAD")]
    assert [name for name, _ in loads] == ["LOAD_DIM", "LOAD", "LOAD", "LOAD_DIM", "LOAD", "LOAD", "LOAD_DIM", "LOAD"]
    assert [count for name, count in loads if name == "LOAD_DIM"] == [2, 3, 1]


def test_levels_that_a_nest_leaves_behind_are_set_to_one_iteration() -> None:
    emitter = Emitter(CONFIG, 0)
    emitter.gemm(0, 0, 0, [], [(2, 1, 0, 1), (2, 5, 0, 9)])
    emitter.gemm(0, 0, 0, [], [(2, 1, 0, 1)])
    emitter.gemm(0, 0, 0, [], [(2, 1, 0, 1)])
    found = [(o.name, o["level"], o["count"]) for o in emitted(emitter)]
    assert found[:2] == [("GEMM_LOOP", 0, 2), ("GEMM_LOOP", 1, 2)]
    assert [f for f in found[2:] if f[0] != "GEMM_SYNC"] == [
        ("GEMM", 0, 0), ("GEMM_LOOP", 1, 1), ("GEMM", 0, 0), ("GEMM", 0, 0), ("END", 0, 0)
    ]  # fmt: skip


@pytest.mark.medium
@settings(max_examples=20)
@given(seed=st.integers(0, 1 << 32))
def test_what_depends_on_each_other_keeps_its_order(seed: int) -> None:
    """Random runs are all issued once, and conflicting runs keep their order.

    So do the runs of GEMM, STORE and ROW. Open signals stay below the limit.
    """
    drawn = random.Random(seed)
    names = ["LOAD", "LOAD", "GEMM", "VECTOR", "ROW", "STORE"]
    engines = {name: BY_NAME[name].engine for name in names}
    rows = dict.fromkeys(WRITERS, 12) | {"memory": 8}

    def access(space: str) -> Access:
        start, count = drawn.randrange(8), drawn.randint(1, 3)
        if space == "memory":
            return Access(space, start * 256, count * 100)
        return Access(space, start, 1, count, drawn.randint(1, 2))

    runs = []
    for number in range(400):
        name = drawn.choice(names)
        reads = [access(s) for s, who in READERS.items() if engines[name] in who and drawn.random() < 0.5]
        able = [s for s, who in WRITERS.items() if engines[name] in who]
        named = {"GEMM": "acc", "VECTOR": "dst", "ROW": "dst"}.get(name, "row")
        runs.append(Run(op(name, **{named: number}), reads, [access(drawn.choice(able))], drawn.choice([5, 50, 500])))
    finished, begins = written(runs, rows)
    numbers = [max(o["acc"], o["row"], o["dst"]) for o in finished if o.name in engines]
    assert sorted(numbers) == list(range(400))
    place = {number: at for at, number in enumerate(numbers)}
    for name in engines:
        mine = [n for n in numbers if runs[n].operation.name == name]
        if name not in ("LOAD", "VECTOR"):
            assert mine == sorted(mine)
    for a in range(400):
        for b in range(a + 1, 400):
            if place[a] > place[b]:
                assert not _conflict(runs[a], runs[b]), (a, b)
    assert begins == sorted(begins)
    assert max(_open_signals(finished)) < SEMAPHORE_LIMIT


def _conflict(a: Run, b: Run) -> bool:
    """Returns True if two runs touch the same row and one of them writes it."""
    pairs = [(x, y) for x in a.writes for y in (*b.reads, *b.writes)] + [(x, y) for x in a.reads for y in b.writes]
    return any(x.space == y.space and rows_of(x) & rows_of(y) for x, y in pairs)


def _open_signals(finished: list[Op]) -> list[int]:
    """Returns the highest count of the semaphores after each signal, if instructions run as they are read."""
    level: dict[int, int] = {}
    most = [0]
    for o in finished:
        for s in o.waits:
            level[s] -= 1
            assert level[s] >= 0
        for s in o.signals:
            level[s] = level.get(s, 0) + 1
            most.append(level[s])
    return most
