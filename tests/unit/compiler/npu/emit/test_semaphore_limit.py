"""Semaphore counts: none exceeds its limit for any duration of instructions, and no wait is added where none could."""

from __future__ import annotations

import functools
import itertools
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright import zoo
from tilewright.compiler.npu.emit import structs
from tilewright.compiler.npu.emit.spaces import WRITERS
from tilewright.isa.config import PRESETS, SEMAPHORE_LIMIT, NpuConfig
from tilewright.isa.encoding import Op
from tilewright.isa.instructions import queue_of
from verification.programs.hazards import MACHINE, Run, access_of, bursts, check_order, random_program, synchronised
from verification.programs.semaphore_counts import highest_counts, highest_of

#: Limits so low that both directions between two engines get full; the depths of queues.
LIMITS, DEPTHS = (2, 2, 3, 4, 5, 8, 16), (2, 3, 8, 32, 256)


def drawn(seed: int) -> tuple[list[Run], NpuConfig, int]:
    """Returns a random program, a machine with the fewest semaphores a machine may have, and a limit."""
    rng = random.Random(seed)
    config = MACHINE.with_(queue_depth=rng.choice(DEPTHS), vector_queue=rng.randint(0, 1), semaphores=12)
    return rng.choice([bursts, bursts, random_program])(rng), config, rng.choice(LIMITS)


def highest(ops: list[Op], config: NpuConfig) -> int:
    """Returns the highest count of any semaphore in a program."""
    return max(highest_counts(ops, config).values(), default=0)


@pytest.mark.medium
@pytest.mark.parametrize("first", range(0, 48, 16))
def test_no_count_exceeds_the_limit(first: int) -> None:
    """Counts stay within the limit; a program whose counts cannot exceed it is unchanged."""
    changed = 0
    for runs, config, limit in map(drawn, range(first, first + 16)):
        free, ops = (synchronised(*runs, config=config, limit=n) for n in (10**9, limit))
        assert highest(ops, config) <= limit
        assert ops == free or highest(free, config) >= limit
        changed += ops != free
        check_order(runs, ops)
    assert changed > 4


@pytest.mark.medium
@pytest.mark.parametrize(("vector_queue", "depth"), [(0, 256), (1, 2)])
def test_chains_longer_than_the_limit(vector_queue: int, depth: int) -> None:
    """Each engine finishes all rows before the next begins, twice as many rows as a semaphore counts.

    The chain then runs in reverse, so that every buffer has to be free again.
    """
    config = MACHINE.with_(queue_depth=depth, vector_queue=vector_queue)
    rows = dict.fromkeys(WRITERS, 2 * SEMAPHORE_LIMIT + 2)
    chain = [("LOAD", "memory", "wgt"), ("GEMM", "wgt", "acc"), ("VECTOR", "acc", "act"), ("VECTOR", "act", "prm"),
             ("STORE", "act", "memory")]  # fmt: skip
    runs: list[Run] = [
        (name, [access_of(source, row, 1)], [access_of(target, row, 1)])
        for name, source, target in (*chain, *chain[::-1], *chain)
        for row in range(2 * SEMAPHORE_LIMIT)
    ]
    free, ops = (synchronised(*runs, config=config, limit=n, rows=rows) for n in (10**9, SEMAPHORE_LIMIT))
    assert highest(free, config) == 2 * SEMAPHORE_LIMIT
    assert highest(ops, config) <= SEMAPHORE_LIMIT


def counts_reached(ops: list[Op], config: NpuConfig) -> dict[int, int]:
    """Returns the highest count of each semaphore over all orders in which instructions can start and end."""
    engines = [operation.instruction.engine for operation in ops]
    owners = [queue_of(engine, config) for engine in engines]
    waits, signals = ([{o[f"{side}{i}"] for i in (0, 1)} - {0} for o in ops] for side in ("wait", "signal"))
    found: dict[int, int] = {}
    #: Number of fetched instructions, and those that have started and ended.
    start: tuple[int, frozenset[int], frozenset[int]] = (0, frozenset(), frozenset())
    seen, todo = {start}, [start]
    while todo:
        fetched, started, ended = todo.pop()
        counts = Counter(number for i in ended for number in signals[i])
        counts.subtract(number for i in started for number in waits[i])
        for number, count in counts.items():
            found[number] = max(found.get(number, 0), count)
        following = []
        if fetched < len(ops):
            held = [i for i in range(fetched) if owners[i] == owners[fetched] and i not in started]
            if len(held) < config.queue_depth:
                following.append((fetched + 1, started, ended))
        for owner in set(owners):
            head = next((i for i in range(fetched) if owners[i] == owner and i not in started), None)
            if head is not None and all(counts[number] > 0 for number in waits[head]):
                following.append((fetched, started | {head}, ended))
        for engine in set(engines):
            oldest = next((i for i in range(fetched) if engines[i] == engine and i in started - ended), None)
            if oldest is not None:
                following.append((fetched, started, ended | {oldest}))
        todo += [one for one in following if one not in seen]
        seen.update(following)
    return found


@pytest.mark.medium
@settings(max_examples=12)
@given(seed=st.integers(0, 1 << 32))
def test_highest_counts_are_those_of_all_runs(seed: int) -> None:
    """`highest_counts`, which the other tests rely on, equals an exhaustive search over all orders of execution."""
    rng = random.Random(seed)
    config = MACHINE.with_(queue_depth=rng.randint(2, 4), vector_queue=rng.randint(0, 1))
    runs = list(itertools.islice(bursts(rng, 9, 3), 9))
    for limit in (2, 10**9):
        ops = synchronised(*runs, config=config, limit=limit)
        assert highest_counts(ops, config) == counts_reached(ops, config)


@pytest.mark.medium
@pytest.mark.parametrize(("network", "limit", "depth"), [("transformer", 2, 2), ("deit", 3, 256), ("resnet8", 2, 256)])
def test_networks_with_a_low_limit(network: str, limit: int, depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Additional waits change no byte of the results."""
    config = PRESETS["base"].with_(name="few", semaphores=12, queue_depth=depth)
    model = zoo.build_quantized(network, **zoo.ZOO[network].small)
    free = tw.compile(model, config, effort=0, cache=False)
    monkeypatch.setattr(structs, "assembler", functools.partial(structs.assembler, limit=limit))
    low = tw.compile(model, config, effort=0, cache=False)
    assert highest_of(low) == limit < highest_of(free)
    inputs = tw.random_inputs(free)
    wanted, found = (tw.Device("cycle", config).run(program, inputs) for program in (free, low))
    assert all(np.array_equal(wanted[name], found[name]) for name in wanted)
