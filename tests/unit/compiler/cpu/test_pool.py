"""`tilewright.compiler.cpu.object.pool`: the caller takes part, others at most once; nobody who is late is waited
for."""

from __future__ import annotations

import ctypes
import threading
import time

import pytest

from tilewright.compiler.cpu.object.pool import Pool, pool_of

_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)


def run(pool: Pool, seen: list[int], seconds: dict[int, float] | None = None) -> None:
    def entry(table: int, workspace: int, part: int, counter: int) -> None:
        assert workspace == 64 and ctypes.c_int64.from_address(counter).value == 0
        time.sleep((seconds or {}).get(part, 0))
        seen.append(part)

    called = _ENTRY(entry)
    table = (ctypes.c_void_p * 1)()
    address = ctypes.cast(called, ctypes.c_void_p).value
    assert address is not None
    pool.run(address, table, 64)


@pytest.mark.medium
def test_the_caller_takes_part_and_others_once_each() -> None:
    pool = Pool(3)
    for _ in range(50):
        seen: list[int] = []
        run(pool, seen, {0: 0.001})
        assert 0 in seen and set(seen) <= {0, 1, 2} and len(seen) == len(set(seen))


@pytest.mark.medium
def test_all_have_left_when_it_returns() -> None:
    pool = Pool(2)
    seen: list[int] = []
    run(pool, seen, {0: 0.05, 1: 0.2})
    count = len(seen)
    time.sleep(0.3)
    assert len(seen) == count


def test_callers_take_turns() -> None:
    pool, inside, most = Pool(2), [0], [0]

    def call() -> None:
        def entry(table: int, workspace: int, part: int, counter: int) -> None:
            if part == 0:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                time.sleep(0.002)
                inside[0] -= 1

        called = _ENTRY(entry)
        address = ctypes.cast(called, ctypes.c_void_p).value
        assert address is not None
        for _ in range(5):
            pool.run(address, (ctypes.c_void_p * 1)(), 0)

    callers = [threading.Thread(target=call) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert most == [1]


def test_one_pool_for_each_number() -> None:
    assert pool_of(2) is pool_of(2) is not pool_of(3)
