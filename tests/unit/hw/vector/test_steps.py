"""The steps of VECTOR: rows that are read and written, groups, passes, against nested loops in Python."""

from __future__ import annotations

import itertools
import random

import pytest

from tests.common.rtl_bench import PATIENCE, issue, simulate
from tilewright.hw.interfaces import EngineControl
from tilewright.hw.vector.steps import ADDRESSES, VectorSteps
from tilewright.isa.config import NpuConfig, preset
from tilewright.isa.encoding import Op, op
from tilewright.isa.instructions import Source

TINY = preset("tiny")
CONFIGS = {
    "one pass": TINY.with_(vector_passes=1),
    "two passes": TINY.with_(vector_passes=2),
    "columns": TINY.with_(block_out=8, vector_passes=1),
}
#: Instruction; rows of a, of b, of PRM and of the result, None where there is none; first of a group, end.
Step = tuple[int | None, ...]


def columns(config: NpuConfig) -> int:
    """Vectors in a physical row of ACC."""
    return max(1, config.block_out // config.block_in)


def steps_of(loops: list[Op], run: Op, pc: int) -> list[Step]:
    """Steps of one instruction."""
    source = Source(run["source"])
    levels = run["reduce"] if source in (Source.SUM, Source.MAX) else 0
    found: list[Step] = []
    for reverse in itertools.product(*(range(loop["count"]) for loop in reversed(loops))):
        index = reverse[::-1]
        rows = {
            a: run[a]
            + sum(i * loop[f"{a}_stride"] for k, (i, loop) in enumerate(zip(index, loops)) if a == "a" or k >= levels)
            for a in ADDRESSES
        }
        first = all(i == 0 for i in index[:levels])
        makes = all(i == loop["count"] - 1 for i, loop in zip(index[:levels], loops))
        uses_b, uses_prm = run["add"] or source == Source.MUL, source in (Source.ACC, Source.MUL, Source.SUM)
        optional = [
            rows[a] if makes and used else None for a, used in (("b", uses_b), ("prm", uses_prm), ("dst", True))
        ]
        found.append((pc, rows["a"], *optional, first, False))
    found[-1] = (*found[-1][:-1], True)
    return found


def random_run(config: NpuConfig, rng: random.Random, pc: int) -> tuple[list[Op], Op, list[Step]]:
    """Loops, an instruction whose rows are all there, and its steps."""
    while True:
        strides = [{f"{a}_stride": rng.randint(-4, 9) for a in ADDRESSES} for _ in range(config.vector_loops)]
        loops = [op("VECTOR_LOOP", level=k, count=rng.choice([1, 1, 2, 3]), **s) for k, s in enumerate(strides)]
        source = rng.choice(list(Source))
        run = op(
            "VECTOR", source=source, a=rng.randrange(200), b=rng.randrange(200), dst=rng.randrange(200),
            prm=rng.randrange(config.prm_rows), reduce=rng.randint(0, config.vector_loops), add=rng.randrange(2),
        )  # fmt: skip
        steps = steps_of(loops, run, pc)
        limits = (config.acc_vectors if source == Source.ACC else config.act_rows, config.act_rows, config.prm_rows,
                  config.act_rows)  # fmt: skip
        rows = [(row, limit) for step in steps for row, limit in zip(step[1:], limits) if row is not None]
        if len(steps) < 30 and all(0 <= row < limit for row, limit in rows):
            return loops, run, steps


def run_all(
    config: NpuConfig, runs: list[tuple[list[Op], Op]], count: int, granted_share: float = 0.7
) -> tuple[list[Step], list[int], list[int]]:
    """The first `count` steps, or those until a fault, what is said of it, and the cycles of the steps. This share of
    the reads is granted at once."""
    rng = random.Random(1)
    dut = VectorSteps(config, EngineControl(config, 1), columns(config))
    found: list[Step] = []
    said: list[int] = []
    moments: list[int] = []
    column_bits = columns(config).bit_length() - 1

    async def give(ctx) -> None:
        for pc, (loops, run) in enumerate(runs):
            await issue(ctx, dut.control, loops, run, pc)

    async def mirror(ctx) -> None:
        while True:  # VECTOR_LOOP is the only configuring instruction here
            ctx.set(dut.configures_loop, ctx.get(dut.control.configure))
            await ctx.changed(dut.control.configure)

    async def watch(ctx) -> None:
        read: dict[str, int] = {}  # of the step to come
        passes = 0
        for cycle in range(PATIENCE):
            grants = {name: rng.random() < granted_share for name in ("acc", "a", "b")}
            asked = {name: ctx.get(getattr(dut, f"{name}_read")) for name in grants}
            granted = all(grants[name] for name in grants if asked[name])  # all or none
            for name in grants:
                ctx.set(getattr(dut, f"{name}_grant"), granted and asked[name])
            rows = {name: ctx.get(getattr(dut, f"{name}_row")) for name in grants}
            rows["acc"] = rows["acc"] << column_bits | ctx.get(dut.column) if column_bits else rows["acc"]
            fault = dut.fault
            _, _, works, first_pass, last_pass, result, error, pc, row, *now = await ctx.tick().sample(
                dut.works, dut.first_pass, dut.last_pass, dut.result, fault.error, fault.pc, fault.address,
                dut.current_pc, dut.uses_prm, dut.prm, dut.dst, dut.first, dut.end,
            )  # fmt: skip
            if error:
                said.extend((pc, row))
                return
            if granted:
                read |= {name: rows[name] for name in grants if asked[name]}
            if works:
                passes += 1
                assert first_pass == (passes == 1) and last_pass == (passes == config.vector_passes)
            if works and last_pass:
                current, uses_prm, prm, dst, first, end = now
                made = (prm if uses_prm else None, dst) if result else (None, None)
                assert len({"acc", "a"} & set(read)) == 1, read
                found.append((current, read.get("acc", read.get("a")), read.get("b"), *made, first, end))
                moments.append(cycle)
                read, passes = {}, 0
            if len(found) == count:
                return
        raise AssertionError(f"{len(found)} of {count} steps were made")

    simulate(dut, watch, background=[give, mirror])
    return found, said, moments


@pytest.mark.medium
@pytest.mark.parametrize("name", CONFIGS)
def test_steps(name: str) -> None:
    """Instructions of all sources, one right behind the other; reads of a and b in one bank take two cycles."""
    config, rng = CONFIGS[name], random.Random(name)
    drawn = [random_run(config, rng, pc) for pc in range(16)]
    expected = [step for *_, steps in drawn for step in steps]
    assert {run["source"] for _, run, _ in drawn} == set(Source)
    found, said, _ = run_all(config, [(loops, run) for loops, run, _ in drawn], len(expected))
    assert found == expected and said == []


@pytest.mark.medium
def test_a_row_beyond_its_memory() -> None:
    """The third step names it, and is the last."""
    config = CONFIGS["one pass"]
    for name, limit in (("a", TINY.act_rows), ("dst", TINY.act_rows)):
        run = op("VECTOR", source=Source.ACT, **{"a": 0, "dst": 0, name: limit - 2})
        loops = [op("VECTOR_LOOP", level=0, count=9, **{f"{name}_stride": 1})]
        found, said, _ = run_all(config, [(loops, run)], 9)
        assert len(found) == 3 and said == [0, limit], name


@pytest.mark.medium
@pytest.mark.parametrize(
    ("source", "b", "cycles"),
    [(Source.ACT, 1, 1), (Source.ACT, 0, 2), (Source.ACC, 0, 1)],
    ids=["other bank", "same bank", "ACC and a bank"],
)
def test_cycles_of_a_step(source: Source, b: int, cycles: int) -> None:
    """A step takes a cycle, but for two reads of one bank of ACT."""
    config = CONFIGS["one pass"]
    loops = [op("VECTOR_LOOP", level=0, count=6, a_stride=1, b_stride=1, dst_stride=1)]
    run = op("VECTOR", source=source, a=8, b=8 + b, dst=40, add=1)
    found, _, moments = run_all(config, [(loops, run)], 6, 1.0)
    assert len(found) == 6 and [later - now for now, later in itertools.pairwise(moments)] == [cycles] * 5
