"""The scratchpads under random requests, with collisions between their ports, against plain arrays."""

from __future__ import annotations

import random
from collections import deque

import pytest

from tests.common.rtl_bench import drive, simulate, words
from tilewright.hw.memory.activations import ActivationScratchpad, readers_of
from tilewright.hw.memory.scratchpads import (
    AccumulatorScratchpad,
    ParameterScratchpad,
    TableScratchpad,
    WeightScratchpad,
)
from tilewright.hw.sizes import SCRATCHPADS
from tilewright.isa.config import PRESETS, NpuConfig, preset
from tilewright.isa.timing import ACT_READ_CYCLES, WGT_READ_CYCLES, table_chunk_cycles

TINY = preset("tiny").with_(vector_passes=1, act_rows=64, wgt_tiles=8, acc_rows=16, prm_rows=4, lut_tables=2)
CONFIGS = {
    "row=bus": TINY.with_(axi_data_bits=32),
    "row=4 beats": TINY.with_(block_in=16, act_banks=2),
    "beat=2 rows": TINY.with_(axi_data_bits=64, block_out=16, window_pairs=1),
    "beat=all banks": TINY.with_(axi_data_bits=128),
}
#: Besides, where PRM differs: fewer lanes than a row, than a chunk has channels.
PASSES = {
    "two passes": TINY.with_(vector_passes=2),
    "one lane": TINY.with_(vector_passes=4, axi_data_bits=64, prm_rows=3),
    "chunk of two passes": TINY.with_(vector_passes=4, axi_data_bits=128),
    "row of many chunks": TINY.with_(block_in=16, act_banks=2, vector_passes=2),
}
#: Several rows in a beat take longest in Amaranth's simulator.
EACH = [pytest.param(name, marks=[pytest.mark.slow] if name.startswith("beat") else []) for name in CONFIGS]


@pytest.mark.medium
@pytest.mark.parametrize("name", EACH)
def test_act_grants_by_priority_and_returns_what_was_written(name: str) -> None:
    """Reads: GEMM, VECTOR a, VECTOR b, STORE, each refused by any before it at the same bank; writes: VECTOR, LOAD."""
    config = CONFIGS[name]
    dut = ActivationScratchpad(config)
    rng = random.Random(name)
    row_bytes, banks, per_beat = config.block_in, config.act_banks, dut.rows_per_beat
    rows = [bytes(row_bytes) for _ in range(config.act_rows)]
    refused = dict.fromkeys([*readers_of(config), "load", "part of store"], 0)

    async def bench(ctx) -> None:
        # Of the cycles before, the oldest first: reader, its data, bytes to compare.
        due: deque[list[tuple[str, bytes, int]]] = deque([[]] * ACT_READ_CYCLES)
        vector, vector_row = False, 0  # the write of VECTOR, announced in the cycle before
        for _ in range(700):
            for reader, data, size in due.popleft():
                assert ctx.get(getattr(dut, reader).data).to_bytes(row_bytes * per_beat, "little")[:size] == data
            due.append([])
            pool = [rng.randrange(config.act_rows - per_beat + 1) for _ in range(3)]  # few rows: many collisions
            taken: set[int] = set()
            reads: list[tuple[str, int, int]] = []
            for reader in readers_of(config):
                asks, row, more = rng.random() < 0.5, rng.choice(pool), rng.randrange(per_beat)
                partner = {"vector_b": "vector_a", "gemm_second": "gemm"}.get(reader)  # never in one bank
                asks = asks and not any(r == partner and x % banks == row % banks for r, x, _ in reads)
                ctx.set(getattr(dut, reader).valid, asks)
                ctx.set(getattr(dut, reader).row, row)
                wanted = 1
                if reader == "store":
                    ctx.set(dut.store.more, more)
                    wanted += more
                granted = 0
                while granted < wanted and (row + granted) % banks not in taken:
                    granted += 1
                if asks:
                    assert reader.startswith("gemm") or ctx.get(getattr(dut, reader).grant) == granted, reader
                    refused[reader] += not granted
                    refused["part of store"] += 0 < granted < wanted
                    reads.append((reader, row, granted))
                    taken.add(row % banks)
            # Writes.
            next_vector, next_row, vector_data = rng.random() < 0.5, rng.choice(pool), rng.randbytes(row_bytes)
            drive(ctx, dut.vector_write, valid=next_vector, row=next_row)
            ctx.set(dut.vector_write.data, int.from_bytes(vector_data, "little"))
            load, row, full = rng.random() < 0.6, rng.choice(pool), rng.random() < 0.3
            count, chunk = 1 if full else rng.randint(1, per_beat), rng.randrange(dut.chunks)
            value = bytes([rng.randrange(256)] * config.bus_bytes) if full else rng.randbytes(config.bus_bytes)
            drive(ctx, dut.load, valid=load, row=row, rows=count, chunk=chunk, full=full)
            ctx.set(dut.load.data, int.from_bytes(value, "little"))
            hit = vector and vector_row % banks in {(row + k) % banks for k in range(count)}
            if load:
                assert ctx.get(dut.load.grant) == (not hit)
                refused["load"] += hit
            before = list(rows)
            if vector:
                rows[vector_row] = vector_data
            if load and not hit:
                for k in range(count):
                    new = bytearray(rows[row + k])
                    if full:
                        new[:] = value[:1] * row_bytes
                    elif dut.chunks > 1:
                        new[chunk * len(value) : (chunk + 1) * len(value)] = value
                    else:
                        new[:] = value[k * row_bytes : (k + 1) * row_bytes]
                    rows[row + k] = bytes(new)
            for reader, first, granted in reads:
                asked = range(first, first + granted)
                if granted and all(rows[r] == before[r] for r in asked):  # read while written: unspecified
                    due[-1].append((reader, b"".join(rows[r] for r in asked), granted * row_bytes))
            vector, vector_row = next_vector, next_row
            await ctx.tick()

    simulate(dut, bench)
    assert not refused.pop("gemm") and not refused.pop("gemm_second", 0)
    if per_beat == 1:
        refused.pop("part of store")
    assert min(refused.values()) > 10, refused


@pytest.mark.medium
@pytest.mark.parametrize("name", EACH)
def test_acc_serves_gemm_before_vector(name: str) -> None:
    config = CONFIGS[name]
    dut = AccumulatorScratchpad(config)
    rng = random.Random(name)
    size = 4 * dut.lanes
    columns = [[bytes(size)] * dut.columns for _ in range(dut.rows)]

    async def bench(ctx) -> None:
        due = None
        for _ in range(300):
            if due is not None:
                for reader in (dut.gemm, dut.vector):
                    assert [ctx.get(column) for column in reader.data] == [words(v) for v in due]
            gemm, vector = rng.random() < 0.5, rng.random() < 0.7
            row, other, target = (rng.randrange(dut.rows) for _ in range(3))
            ctx.set(dut.gemm.valid, gemm)
            ctx.set(dut.gemm.row, row)
            ctx.set(dut.vector.valid, vector)
            ctx.set(dut.vector.row, other)
            assert ctx.get(dut.vector.grant) == (not gemm)
            at = row if gemm else other
            mask = rng.randrange(1 << dut.columns)
            ctx.set(dut.write.mask, mask)
            ctx.set(dut.write.row, target)
            due = columns[at] if (gemm or vector) and at != target else None
            columns[target] = list(columns[target])
            for c in range(dut.columns):
                data = rng.randbytes(size)
                ctx.set(dut.write.data[c], words(data))
                if mask >> c & 1:
                    columns[target][c] = data
            await ctx.tick()

    simulate(dut, bench)


def drive_write(ctx, dut, rng: random.Random, rows: list[bytes], full_allowed: bool) -> int:
    """One random write of LOAD to a scratchpad and to `rows`; the row written, -1 for none."""
    chunk_bytes = len(rows[0]) // dut.chunks
    row, chunk, full = rng.randrange(len(rows)), rng.randrange(dut.chunks), full_allowed and rng.random() < 0.2
    value = rng.randbytes(chunk_bytes)
    write = rng.random() < 0.7
    drive(ctx, dut.write, valid=write, row=row, chunk=chunk, data=words(value))
    if full_allowed:
        ctx.set(dut.write.full, full)
    if not write:
        return -1
    whole = bytearray(rows[row])
    for k in range(dut.chunks) if full else [chunk]:
        whole[k * chunk_bytes : (k + 1) * chunk_bytes] = value
    rows[row] = bytes(whole)
    return row


@pytest.mark.medium
@pytest.mark.parametrize("name", EACH)
def test_wgt_is_read_and_written_in_one_cycle(name: str) -> None:
    config: NpuConfig = CONFIGS[name]
    dut = WeightScratchpad(config)
    rng, size = random.Random(name), config.block_in
    rows = [bytes(config.tile_bytes)] * config.wgt_tiles

    async def bench(ctx) -> None:
        due: deque[bytes | None] = deque([None] * WGT_READ_CYCLES)  # of the cycles before
        for _ in range(250):
            tile = due.popleft()
            for o in range(config.block_out) if tile is not None else ():
                assert ctx.get(dut.read.data[o]) == words(tile[o * size : (o + 1) * size])
            row = rng.randrange(config.wgt_tiles)
            drive(ctx, dut.read, valid=1, row=row)
            written = drive_write(ctx, dut, rng, rows, True)
            due.append(rows[row] if row != written else None)
            await ctx.tick()

    simulate(dut, bench)


@pytest.mark.medium
@pytest.mark.parametrize("name", [*EACH, *PASSES])
def test_prm_gives_every_pass_its_values(name: str) -> None:
    config = (CONFIGS | PASSES)[name]
    dut = ParameterScratchpad(config)
    rng, share = random.Random(name), 4 * config.vector_lanes
    rows = [bytes(config.prm_row_bytes)] * config.prm_rows

    async def bench(ctx) -> None:
        due: list[tuple[int, bytes]] = []
        for _ in range(400):
            for reader, value in due:
                assert ctx.get((dut.bias, dut.scale)[reader].data) == words(value)
            asked = []
            for reader, port in enumerate((dut.bias, dut.scale)):
                row, number = rng.randrange(config.prm_rows), rng.randrange(config.vector_passes)
                drive(ctx, port, valid=1, row=row, number=number)
                asked.append((reader, row, number))
            written = drive_write(ctx, dut, rng, rows, False)
            due = []
            for reader, row, number in asked:
                kind = b"".join(rows[row][i : i + 4] for i in range(4 * reader, config.prm_row_bytes, 8))
                if row != written:
                    due.append((reader, kind[number * share : (number + 1) * share]))
            await ctx.tick()

    simulate(dut, bench)


@pytest.mark.medium
@pytest.mark.parametrize("name", [e for e in EACH if e.values != ("row=4 beats",)])
def test_lut_gives_every_lane_its_byte(name: str) -> None:
    config = CONFIGS[name]
    dut = TableScratchpad(config)
    rng = random.Random(name)
    tables = [bytes(256)] * config.lut_tables

    async def bench(ctx) -> None:
        due: deque[list[tuple[int, int]]] = deque([[], []])  # of the two cycles before
        written = -1
        left = 0  # cycles of the write under way after this one
        ctx.set(dut.read.valid, 1)
        for _ in range(900):
            for lane, value in due.popleft():
                assert ctx.get(dut.read.value[lane]) == value
            table, indices = rng.randrange(config.lut_tables), [rng.randrange(256) for _ in range(config.block_in)]
            ctx.set(dut.read.table, table)
            for lane, index in enumerate(indices):
                ctx.set(dut.read.index[lane], index)
            if left:
                left -= 1
            else:
                written = drive_write(ctx, dut, rng, tables, False)
                left = table_chunk_cycles(config) - 1 if written >= 0 else 0
            if written >= 0:
                assert ctx.get(dut.write.grant) == (not left)
            due.append([(lane, tables[table][index]) for lane, index in enumerate(indices)] if table != written else [])
            await ctx.tick()

    simulate(dut, bench)


@pytest.mark.medium
@pytest.mark.parametrize("config", [*PRESETS.values(), *CONFIGS.values(), *PASSES.values()], ids=lambda c: c.name)
def test_sizes_are_those_of_the_memories(config: NpuConfig) -> None:
    """Models of area and energy count memories by `tilewright.hw.sizes` alone; the RTL takes a second to elaborate."""
    made = {
        "act": ActivationScratchpad, "wgt": WeightScratchpad, "acc": AccumulatorScratchpad, "prm": ParameterScratchpad,
        **({"lut": TableScratchpad} if config.table_lookup else {}),
    }  # fmt: skip
    for name, size in SCRATCHPADS.items():
        found = []
        for component in [made[name](config)] if name in made else []:
            module = component.elaborate(None)
            found = [(store.shape.width, store.depth) for store, _ in module._named_submodules.values()]
        assert found == [(size(config).width, size(config).depth)] * size(config).number, name
