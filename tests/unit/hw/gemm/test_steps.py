"""The steps of GEMM and DEPTHWISE: rows, groups and emissions, against nested loops in Python."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest

from tests.common.rtl_bench import PATIENCE, issue, simulate
from tilewright.hw.gemm.steps import ADDRESSES, GemmSteps
from tilewright.isa.config import NpuConfig, preset
from tilewright.isa.encoding import Op, op
from tilewright.isa.timing import window_pairs

TINY = preset("tiny")
CONFIGS = {"square": TINY, "narrow": TINY.with_(block_in=8), "wide": TINY.with_(block_out=8, window_delay=3)}
CONFIGS |= {
    "pairs": TINY.with_(window_pairs=1),
    "pairs and delays": TINY.with_(block_in=8, window_pairs=1, window_delay=3),
}
#: Rows of ACT, tile, row and column of ACC; flags, see `steps_of`. None where a step does not use it.
Step = tuple[int | None, ...]


def columns(config: NpuConfig) -> int:
    """Groups of lanes in a physical row of ACC, as the engine has them."""
    return max(1, max(config.block_in, config.block_out) // min(config.block_in, config.block_out))


def indices(loops: list[Op]) -> Iterator[tuple[int, ...]]:
    """Loop indices of every step, level 0 first, which is the fastest."""
    for index in itertools.product(*(range(loop["count"]) for loop in reversed(loops))):
        yield index[::-1]


def steps_of(config: NpuConfig, loops: list[Op], run: Op) -> Iterator[Step]:
    """ACT row, tile, ACC row and column, emits, first and last of a group, clears, ends the instruction."""
    depthwise, number = run.name == "DEPTHWISE", columns(config)
    all_indices = list(indices(loops))
    for n, index in enumerate(all_indices):
        moved = dict.fromkeys(ADDRESSES, 0)
        emits, first, last = True, True, True
        for level, (i, loop) in enumerate(zip(index, loops)):
            moved["act"] += i * loop["act_stride"]
            moved["wgt"] += i * loop["wgt_stride"]
            if depthwise and level < 2:
                emission, rest = divmod(i - run[f"start{level}"], run[f"step{level}"])
                emits &= emission >= 0 and not rest
                moved["acc"] += emission * loop["acc_stride"]
            elif depthwise or level >= run["reduce"]:
                moved["acc"] += i * loop["acc_stride"]
            else:
                first, last = first and i == 0, last and i == loop["count"] - 1
        act, wgt, acc = (run[name] + moved[name] for name in ADDRESSES)
        row, column = acc, 0
        if number > 1 and (depthwise or config.block_out < config.block_in):
            row, column = divmod(acc, number)
        used = (wgt, row, column) if emits else (None, None, None)
        yield act, *used, emits, first, last, n == 0, n == len(all_indices) - 1


def paired(config: NpuConfig, loops: list[Op], run: Op, steps: list[Step]) -> list[Step]:
    """The steps where a push without output is made together with the next one of its line, whose row comes last."""
    inner = loops[0]
    if run.name != "DEPTHWISE" or not window_pairs(config, inner["act_stride"], inner["wgt_stride"], run["delay"]):
        return steps
    found: list[Step] = []
    places = iter(enumerate(steps))
    for n, step in places:
        if n and not step[4] and n % inner["count"] + 1 < inner["count"]:
            _, second = next(places)
            step = (step[0], *second[1:], second[0])
        found.append(step)
    return found


def random_run(config: NpuConfig, rng: random.Random) -> tuple[list[Op], Op, list[Step]]:
    """Loops, an instruction whose rows are all there, and its steps."""
    physical = config.acc_rows * config.block_out // max(config.block_in, config.block_out)
    while True:
        stride = lambda: rng.randint(-4, 9)
        loops = [
            op("GEMM_LOOP", level=k, count=rng.choice([1, 1, 2, 3]), **{f"{a}_stride": stride() for a in ADDRESSES})
            for k in range(config.gemm_loops)
        ]
        if config.window_pairs:
            loops[0] = op("GEMM_LOOP", level=0, count=rng.randint(1, 7), act_stride=stride(), acc_stride=stride())
        at = {"act": rng.randrange(config.act_rows), "wgt": rng.randrange(config.wgt_tiles)}
        at["acc"] = rng.randrange(physical)
        if rng.random() < 0.5:
            starts = {f"start{k}": rng.randrange(2) for k in range(2)}
            if config.window_pairs:
                starts |= {"start0": rng.randrange(6), "delay": rng.randint(0, config.window_delay)}
            run = op(
                "DEPTHWISE", **at, **starts, step0=rng.randint(1, 2 + config.window_pairs), step1=rng.randint(1, 2)
            )
        else:
            run = op("GEMM", **at, reduce=rng.randint(0, config.gemm_loops))
        steps = list(steps_of(config, loops, run))
        rows = [(act, 0 if wgt is None else wgt, 0 if row is None else row) for act, wgt, row, *_ in steps]
        limits = (config.act_rows, config.wgt_tiles, physical)
        if len(steps) < 60 and all(0 <= value < limit for row in rows for value, limit in zip(row, limits)):
            return loops, run, paired(config, loops, run, steps)


def run_all(config: NpuConfig, runs: list[tuple[list[Op], Op]], count: int) -> tuple[list[Step], list[int]]:
    """The first `count` steps, with the instruction in front; or those until a fault, and what is said of it."""
    dut = GemmSteps(config, columns(config))
    found: list[Step] = []
    said: list[int] = []

    async def give(ctx) -> None:
        for pc, (loops, run) in enumerate(runs):
            await issue(ctx, dut.control, loops, run, pc)

    async def watch(ctx) -> None:
        ports = (dut.current_pc, dut.act_row, dut.wgt_row, dut.row, dut.column,
                 dut.emits, dut.first, dut.last, dut.clear, dut.end)  # fmt: skip
        second = (dut.twice, dut.act_second) if config.window_pairs else ()
        fault = dut.fault
        for _ in range(PATIENCE):
            _, _, step, mac, depthwise, error, pc, row, *now = await ctx.tick().sample(
                dut.step, dut.mac, dut.depthwise, fault.error, fault.pc, fault.address, *ports, *second
            )
            twice, now = now[len(ports) :], now[: len(ports)]
            if error:
                said.extend((pc, row))
                return
            if step:
                used = now[:5] if now[5] else [*now[:2], None, None, None]
                if not depthwise and config.block_out > config.block_in:
                    used[4] = 0  # GEMM writes all columns
                found.append((*used, *now[5:], *(twice[1:] if twice and twice[0] else ())) if mac else (now[0],))
            if len(found) == count:
                return
        raise AssertionError(f"{len(found)} of {count} steps were made")

    simulate(dut, watch, background=[give])
    return found, said


@pytest.mark.medium
@pytest.mark.parametrize("name", CONFIGS)
def test_steps(name: str) -> None:
    """One instruction right behind the other: the next nest is configured while one is at work."""
    config, rng = CONFIGS[name], random.Random(name)
    drawn = [random_run(config, rng) for _ in range(12)]
    runs = [(loops, run) for loops, run, _ in drawn]
    runs.insert(5, ([], op("GEMM_SYNC")))
    steps = [steps for _, _, steps in drawn]
    steps.insert(5, [()])
    expected = [(pc, *step) for pc, of_one in enumerate(steps) for step in of_one]
    assert {run.name for _, run in runs} == {"GEMM", "DEPTHWISE", "GEMM_SYNC"}
    found, said = run_all(config, runs, len(expected))
    assert found == expected and said == []


@pytest.mark.medium
@pytest.mark.parametrize(
    ("stride", "row"),
    [({"act_stride": 1}, "act"), ({"wgt_stride": 1}, "wgt"), ({"acc_stride": 1}, "acc")],
    ids=ADDRESSES,
)
def test_a_row_beyond_its_memory(stride: dict[str, int], row: str) -> None:
    """The third step names it, and is the last."""
    limit = {"act": TINY.act_rows, "wgt": TINY.wgt_tiles, "acc": TINY.acc_rows}[row]
    run = op("GEMM", **dict.fromkeys(ADDRESSES, 0) | {row: limit - 2})
    found, said = run_all(TINY, [([op("GEMM_LOOP", level=0, count=9, **stride)], run)], 9)
    assert len(found) == 3 and said == [0, limit]
