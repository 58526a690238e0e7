"""Semaphores, queue, loop nest and depthwise window with array, each against a few lines of Python."""

import itertools
import random
from collections import deque

import numpy as np
import pytest
from amaranth.hdl import Module

from tests.common.rtl_bench import drive, simulate
from tilewright.hw.gemm.array import MacArray
from tilewright.hw.gemm.window import Window
from tilewright.hw.interfaces import ENGINES
from tilewright.hw.issue.loop_nest import LoopNest
from tilewright.hw.issue.semaphores import Semaphores
from tilewright.hw.parts.queue import BlockQueue, HeadQueue, Queue
from tilewright.isa.config import SEMAPHORE_LIMIT, preset
from tilewright.isa.instructions import ADDRESS_BITS
from tilewright.isa.timing import QUEUE_CYCLES, array_stages


@pytest.mark.parametrize("depth", [2, 5, 16])
@pytest.mark.parametrize("kind", [Queue, BlockQueue, HeadQueue])
def test_queue(kind: type, depth: int) -> None:
    dut = kind(8, depth)
    rng = random.Random(1)
    held: deque[tuple[int, int]] = deque()  # with the cycle from which it can be seen
    late = kind is HeadQueue  # what is popped makes room a cycle later
    latency = QUEUE_CYCLES if kind is HeadQueue else 1

    async def bench(ctx) -> None:
        popped = False
        for cycle in range(500):
            push, pop, value = rng.random() < 0.6, rng.random() < 0.5, rng.randrange(256)
            drive(ctx, dut, i_valid=push, i_payload=value, o_ready=pop)
            level = len(held) + (late and popped)
            assert ctx.get(dut.level) == level
            there = bool(held) and held[0][1] <= cycle
            assert ctx.get(dut.o_valid) == there and ctx.get(dut.i_ready) == (level < depth)
            if there:
                assert ctx.get(dut.o_payload) == held[0][0]
            if kind is HeadQueue:
                assert ctx.get(dut.filled) == bool(held)
            full = level == depth
            popped = pop and there
            if popped:
                held.popleft()
            if push and not full:
                held.append((value, cycle + latency))
            await ctx.tick()

    simulate(dut, bench)


@pytest.mark.slow
def test_semaphores() -> None:
    config = preset("tiny").with_(name="few", semaphores=12)
    dut = Semaphores(config)
    rng = random.Random(2)
    names = [e.name.lower() for e in ENGINES]
    counts = [0] * 13
    before: dict[str, tuple[int, int]] = {}  # who took what in the cycle before
    given: list[tuple[int, str]] = []  # what was given then

    async def bench(ctx) -> None:
        nonlocal before, given
        overflows = 0
        for cycle in range(4000):
            giving = 0.9 if cycle > 2000 else 0.3
            counting = [w for waits in before.values() for w in waits if w]
            could: list[int] = []
            takes: dict[str, tuple[int, int]] = {}
            gives: list[tuple[int, str]] = []
            for e, asks, retired in zip(names, dut.takes, dut.gives):
                want, give = rng.random() < (0.1 if cycle > 2000 else 0.7), rng.random() < giving
                w0, s0 = rng.randrange(4), rng.randrange(4)
                w1, s1 = (rng.choice([i for i in range(5) if i == 0 or i != x]) for x in (w0, s0))
                if e in before:  # an engine that has its semaphores does not ask
                    want, (w0, w1) = False, before[e]
                drive(ctx, asks, want=want, wait0=1 << w0, wait1=1 << w1)
                drive(ctx, retired, give=give, signal0=s0, signal1=s1, pc=cycle)
                waits = [w for w in (w0, w1) if w]
                able = want and all(counts[w] > 0 for w in waits)
                if able and not set(waits) & set(counting + could):
                    takes[e] = w0, w1
                could += waits if able else []
                if give:
                    gives += [(s, e) for s in (s0, s1) if s]
            for e, asks in zip(names, dut.takes):
                assert ctx.get(asks.grant) == (e in takes), cycle
            after = list(counts)
            for s in counting:
                after[s] -= 1
            for s, _ in given:  # in the cycle before
                after[s] += 1
            beyond = [s for s in range(1, 13) if after[s] > SEMAPHORE_LIMIT]
            assert not ctx.get(dut.overflow.error)
            if beyond:
                await ctx.tick()
                assert ctx.get(dut.overflow.error)
                overflows += 1
                await ctx.tick()
                first = next(n for n, e in enumerate(names) if any((s, e) in given for s in beyond))
                assert ctx.get(dut.overflow_engine) == ENGINES[first] and ctx.get(dut.overflow.address) in beyond
                break
            counts[:], before, given = after, takes, gives
            await ctx.tick()
        assert overflows

    simulate(dut, bench)


@pytest.mark.medium
def test_loop_nest() -> None:
    """`a` walks every level, `b` only those outside a group; the next nest is configured while one is at work."""
    levels = 4
    dut = LoopNest(levels, ("a", "b"), outer=("b",))
    rng = random.Random(3)

    async def bench(ctx) -> None:
        ctx.set(dut.start, 0)
        ctx.set(dut.step, 0)
        for _ in range(40):
            counts = [rng.choice((1, 1, 2, 3, 5)) for _ in range(levels)]
            strides = {a: [rng.randrange(-(1 << 17), 1 << 17) for _ in range(levels)] for a in "ab"}
            base = {a: rng.randrange(1 << 18) for a in "ab"}
            group = rng.randrange(levels + 1)
            gate = rng.randrange(1 << levels)
            ctx.set(dut.configure, 1)
            for k in range(levels):
                ctx.set(dut.level, k)
                ctx.set(dut.count, counts[k])
                for a in "ab":
                    ctx.set(getattr(dut, f"{a}_stride"), strides[a][k])
                await ctx.tick()
            ctx.set(dut.configure, 0)
            ctx.set(dut.start, 1)
            ctx.set(dut.step, rng.randrange(2))
            ctx.set(dut.inner, (1 << group) - 1)
            for a in "ab":
                ctx.set(getattr(dut, f"{a}_base"), base[a])
            assert ctx.get(dut.group_last_started) == all(n == 1 for n in counts[:group])
            await ctx.tick()
            ctx.set(dut.start, 0)
            ctx.set(dut.b_gate, gate)
            steps = list(itertools.product(*(range(n) for n in reversed(counts))))
            b = base["b"]
            for n, index in enumerate(steps):
                index = index[::-1]
                ends = [i == count - 1 for i, count in zip(index, counts)]
                while rng.random() < 0.3:
                    ctx.set(dut.step, 0)
                    await ctx.tick()
                ctx.set(dut.step, 1)
                expected = base["a"] + sum(i * s for i, s in zip(index, strides["a"]))
                assert ctx.get(dut.a) == expected % (1 << ADDRESS_BITS)
                assert ctx.get(dut.b) == b % (1 << ADDRESS_BITS)
                assert ctx.get(dut.last) == (n == len(steps) - 1)
                advances = next((k for k in range(levels) if not ends[k]), None)
                assert ctx.get(dut.carry) == (0 if advances is None else 1 << advances)
                assert ctx.get(dut.group_first) == (not any(index[:group]))
                assert ctx.get(dut.group_last) == all(ends[:group])
                following = None
                if advances is not None:
                    # Levels below the one that advances go back to their start, and so does the address.
                    undone = sum(
                        i * s * (k >= group and gate >> k & 1)
                        for k, (i, s) in enumerate(zip(index, strides["b"]))
                        if k < advances
                    )
                    b += strides["b"][advances] * (advances >= group and gate >> advances & 1) - undone
                    following = ctx.get(dut.group_last_stepped)
                    assert ctx.get(dut.b_next) == b % (1 << ADDRESS_BITS)
                await ctx.tick()
                if following is not None:
                    assert ctx.get(dut.group_last) == following

    simulate(dut, bench)


@pytest.mark.medium
def test_window_and_array() -> None:
    plain = ((4, 4, 3, 0), (8, 4, 0, 0), (8, 4, 5, 0), (4, 8, 0, 0), (16, 4, 0, 0), (16, 8, 1, 0))
    for block_in, block_out, longest, packed in (*plain, (4, 8, 0, 1), (8, 8, 0, 1), (8, 16, 5, 1), (16, 16, 0, 1)):
        config = preset("tiny").with_(
            name="x", block_in=block_in, block_out=block_out, window_delay=longest, packed_products=packed
        )
        m = Module()
        m.submodules.window = window = Window(config)
        m.submodules.array = array = MacArray(config)
        m.d.comb += [array.slots[i].eq(window.slots[i]) for i in range(block_in)]
        rng = np.random.default_rng(4)
        lanes = config.dw_lanes
        slots = np.zeros((block_in, lanes), np.int64)  # slot, lane
        due: deque[tuple[int, np.ndarray]] = deque()

        def pack(values: np.ndarray) -> int:
            return int.from_bytes(values.astype(np.int8).tobytes(), "little")

        async def bench(
            ctx,
            block_in=block_in,
            block_out=block_out,
            slots=slots,
            lanes=lanes,
            due=due,
            config=config,
            window=window,
            array=array,
            rng=rng,
        ) -> None:
            stages = array_stages(config)
            depthwise, newest = np.True_, np.zeros(block_in, np.int64)
            delay = later = 0
            firsts = range(config.window_segment, block_in, config.window_segment)  # slots behind delay lines
            lines: dict[int, deque[np.ndarray]] = {}
            for cycle in range(200):
                # The array sees the window as it is now; the window takes a vector for the next cycle.
                valid = rng.random() < 0.7
                weights = rng.integers(-128, 128, (block_out, block_in))
                ctx.set(array.valid, valid)
                for o in range(block_out):
                    ctx.set(array.rows[o], pack(weights[o]))
                if depthwise:
                    expected = (weights[:lanes] * slots.T).sum(1)
                else:
                    expected = weights @ newest
                if valid:
                    due.append((cycle + stages, expected))
                if due and due[0][0] == cycle:
                    wanted = due.popleft()[1]
                    got = [ctx.get(array.sums[o]) for o in range(len(wanted))]
                    assert got == wanted.tolist()
                vector, push, shift, clear = rng.integers(-128, 128, block_in), *(rng.random(3) < (0.8, 0.7, 0.1))
                part = int(rng.integers(config.dw_slices))
                drive(
                    ctx, window,
                    push=bool(push), vector=pack(vector), shift=bool(shift), slice=part, clear=bool(clear),
                )  # fmt: skip
                if config.delay_lines:
                    later = int(rng.integers(config.window_delay + 1))
                    ctx.set(window.delay, later)
                await ctx.tick()
                if push:
                    depthwise, newest = shift, vector
                    if not shift:  # activation i in every lane of slot i
                        slots[:] = vector[:, None]
                    else:
                        if clear:
                            slots[:], delay = 0, later
                            lines = {n: deque([np.zeros(lanes, np.int64)] * delay) for n in firsts}
                        before = slots.copy()
                        slots[1:], slots[0] = before[:-1], vector[part * lanes : (part + 1) * lanes]
                        for n in firsts if delay else ():
                            lines[n].append(before[n - 1])
                            slots[n] = lines[n].popleft()

        simulate(m, bench)
