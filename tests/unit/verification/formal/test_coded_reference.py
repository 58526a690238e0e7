"""Compares the proofs' form of the code rule with `tilewright.isa.codes`, in every cycle of streams of all kinds."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Elaboratable, Module, Signal
from amaranth.lib import data

from tests.common.rtl_bench import drive, simulate
from tilewright.compiler.npu.coding.stream import encode_stream
from tilewright.compiler.npu.coding.table import make_table
from tilewright.hw.memory.weight_codes import SLOT
from tilewright.isa.codes import SLOTS, STATE_BITS, CodeError, CodeMode, Decoder, Slot, TableBuilder, words_per_cycle
from tilewright.isa.config import NpuConfig, preset
from verification.formal.transfer.coded_reference import DecoderReference, TableReference

NARROW = preset("tiny").with_(weight_codes=8)
CONFIGS = {"narrow": NARROW, "wide": NARROW.with_(axi_data_bits=64, weight_codes=16)}


def slot_of(ctx: Any, view: Any) -> Slot:
    return Slot(*(ctx.get(getattr(view, name)) for name in Slot._fields))


@pytest.mark.slow
def test_tables_of_any_words() -> None:
    rng, dut = random.Random(5), TableReference()

    async def bench(ctx: Any) -> None:
        for _ in range(20):
            drive(ctx, dut, clear=1, step=0)
            await ctx.tick()
            drive(ctx, dut, clear=0)
            builder, word = TableBuilder(), rng.getrandbits(16)
            while len(builder.slots) < SLOTS:
                step, before = rng.random() < 0.9, len(builder.slots)
                drive(ctx, dut, step=step, word=word)
                used = step and builder.step(word)
                assert (ctx.get(dut.used), ctx.get(dut.size)) == (used, before)
                assert ctx.get(dut.appends) == len(builder.slots) - before
                if len(builder.slots) > before:
                    assert slot_of(ctx, dut.slot) == builder.slots[-1]
                await ctx.tick()
                if used:
                    word = rng.getrandbits(16) & rng.choice([~0, ~0 << 9, ~0x1F0])

    simulate(dut, bench)


class Both(Elaboratable):
    """A decoder and its builder of tables. What changes in every cycle is one signal, which is set at once."""

    def __init__(self, config: NpuConfig) -> None:
        self.table, self.decoder = TableReference(), DecoderReference(config)
        lanes = config.weight_codes
        each = {"states": data.ArrayLayout(STATE_BITS, lanes), "slots": data.ArrayLayout(SLOT, lanes)}
        self.inputs = Signal(data.StructLayout({"step": 1, "beat": config.axi_data_bits, **each}))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.table, m.submodules.decoder = table, decoder = self.table, self.decoder
        m.d.comb += [table.clear.eq(decoder.opens_table), table.step.eq(decoder.builds), table.word.eq(decoder.word)]
        inputs = self.inputs
        m.d.comb += [decoder.step.eq(inputs.step), decoder.beat.eq(inputs.beat)]
        m.d.comb += [z.eq(inputs.states[i]) for i, z in enumerate(decoder.states)]
        m.d.comb += [slot.eq(inputs.slots[i]) for i, slot in enumerate(decoder.slots)]
        m.d.comb += [decoder.used.eq(table.used), decoder.built.eq(table.appends & (table.size == SLOTS - 1))]
        return m


@dataclass
class Load:
    """A LOAD_CODED, and what `tilewright.isa.codes` makes of it: (cycle, weights, state of the decoder) of every round;
    the cycle of its end, and whether that is an error."""

    mode: int
    groups: int
    beats: int
    stream: bytes
    rounds: list[tuple[int, bytes, Any]] = field(default_factory=list)
    cycles: int = 0
    failed: bool = False

    def run(self, decoder: Decoder) -> None:
        before = decoder.cycles
        try:
            for weights in decoder.load(self.mode, self.groups, self.beats, lambda: self.stream):
                self.rounds.append((decoder.cycles - before, weights, state_of(decoder)))
        except CodeError:
            self.failed = True
        self.cycles = decoder.cycles - before


def state_of(decoder: Decoder) -> Any:
    return list(decoder.states), [list(words) for words in decoder.reserve], list(decoder.queue), decoder.starting


def loads_of(seed: int, config: NpuConfig) -> list[Load]:
    """Tables and weights one behind the other, in every second case with something wrong."""
    rng = np.random.default_rng(seed)
    pieces: list[Any] = []
    for _ in range(int(rng.integers(1, 3))):
        width = rng.choice([0.5, 4.0, 40.0])
        size = (int(rng.integers(1, 9)), config.tile_bytes)
        tiles = np.clip(np.rint(rng.laplace(0, width, size)), -128, 127).astype(np.int8)
        pieces.append(make_table(np.bincount(tiles.reshape(-1).view(np.uint8), minlength=256)))
        cut = int(rng.integers(len(tiles)))
        pieces += [part for part in (tiles[:cut], tiles[cut:]) if part.size]
    stream = encode_stream(config, pieces)
    raw = np.frombuffer(stream.data + bytes(8 * config.bus_bytes), np.uint8).copy()
    beats = list(stream.beats)
    if seed % 4 == 1:
        raw[rng.integers(0, len(raw), 3)] ^= rng.integers(1, 256, 3, np.uint8)
    if seed % 4 == 3:
        n = int(rng.integers(len(beats)))
        beats[n] = max(0, beats[n] + int(rng.integers(-3, 4)))
    if seed % 8 == 3:
        pieces, beats = pieces[1:], beats[1:]
    loads, at = [], 0
    for piece, count in zip(pieces, beats, strict=True):
        weights = isinstance(piece, np.ndarray)
        end = at + count * config.bus_bytes
        groups = piece.size // config.weight_codes if weights else 0
        loads.append(Load(CodeMode.WEIGHTS if weights else CodeMode.TABLE, groups, count, raw[at:end].tobytes()))
        at = end
    return loads


@pytest.mark.slow
@pytest.mark.parametrize("count", [4, pytest.param(16, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", CONFIGS)
def test_streams(name: str, count: int) -> None:
    """Rounds, errors and ends come in the same cycles, with the same weights and words."""
    config = CONFIGS[name]
    failed = [go_through(seed, config) for seed in range(count)]
    assert any(failed) and not all(failed)


def go_through(seed: int, config: NpuConfig) -> bool:
    """Runs the decoder to its end; returns whether that is an error."""
    rng, dut = random.Random(seed), Both(config)
    rule, number, size = dut.decoder, words_per_cycle(config), config.bus_bytes
    loads, known = loads_of(seed, config), Decoder(config)
    slots: list[Slot] = []
    states = [0] * config.weight_codes

    def state(ctx: Any) -> Any:
        reserve = [[ctx.get(w) for w in ws][: ctx.get(n)] for ws, n in zip(rule.reserve, rule.reserved, strict=True)]
        return states, reserve, [ctx.get(w) for w in rule.queue][: ctx.get(rule.waiting)], ctx.get(rule.starting)

    async def bench(ctx: Any) -> None:
        nonlocal states, slots
        for load in loads:
            load.run(known)
            drive(ctx, rule, mode=load.mode, groups=load.groups, beats=load.beats)
            rounds, at, cycle, over = iter(load.rounds), 0, 0, False
            while not over:
                if rng.random() < 0.1:
                    await ctx.tick()
                here = [slots[z % SLOTS]._asdict() for z in states] if len(slots) == SLOTS else []
                beat = int.from_bytes(load.stream[at : at + size], "little")
                at += size * ctx.get(rule.wants)
                ctx.set(dut.inputs, {"step": 1, "beat": beat, "states": states, "slots": here})
                cycle += 1
                assert ctx.get(rule.taken) <= number
                over = bool(ctx.get(rule.ends) or ctx.get(rule.error))
                if ctx.get(rule.opens_table):
                    slots = []
                if ctx.get(dut.table.appends):
                    slots = [*slots, slot_of(ctx, dut.table.slot)]
                emits, weights = ctx.get(rule.emits), ctx.get(rule.weights).to_bytes(config.weight_codes, "little")
                if ctx.get(rule.round_):
                    states = [ctx.get(z) for z in rule.nexts]
                failed = bool(ctx.get(rule.error))
                await ctx.tick()
                ctx.set(dut.inputs, {})
                if emits:
                    assert (cycle, weights, state(ctx)) == next(rounds)
            assert next(rounds, None) is None
            assert (cycle, failed) == (load.cycles, load.failed)
            if failed:
                break
            assert state(ctx) == state_of(known) and slots == known.table and at == len(load.stream)

    simulate(dut, bench)
    return any(load.failed for load in loads)
