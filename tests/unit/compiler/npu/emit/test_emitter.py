"""Nests with more levels than the machine has become several instructions; work is counted without emission."""

from __future__ import annotations

from compiler.npu.emit.emitter import Emitter
from isa.assembler import disassemble
from isa.config import PRESETS


def test_nest_with_too_many_levels_is_split() -> None:
    emitter = Emitter(PRESETS["tiny"].with_(gemm_loops=5), 0)
    outer = [(2, 3 * 10**i, 0, 2**i) for i in range(4)]
    emitter.gemm(0, 0, 0, [(2, 10, 1, 0)], [*outer, (2, 7, 0, 100)])
    emitter.end_step()
    runs = [line for line in disassemble(emitter.image).splitlines() if "LOOP" not in line]
    assert runs == ["GEMM reduce=1", "GEMM act=7 acc=100 reduce=1", "END"]


def test_products_that_do_not_fit_one_nest_accumulate() -> None:
    emitter = Emitter(PRESETS["tiny"].with_(gemm_loops=5), 0)
    inner = [(2, 3 * 10**i, 2**i, 0) for i in range(5)]
    emitter.gemm(0, 0, 0, [*inner, (2, 7, 100, 0)], [])
    emitter.end_step()
    runs = [line for line in disassemble(emitter.image).splitlines() if "LOOP" not in line]
    assert runs == ["GEMM reduce=5", "GEMM act=7 wgt=100 reduce=5 accumulate=1", "END"]


def test_dry_emission_counts_the_same_work() -> None:
    counts = []
    for dry in (False, True):
        emitter = Emitter(PRESETS["tiny"], 0, dry=dry)
        emitter.fill(5, [(300, 9)], 600, 1)
        emitter.gemm(0, 0, 0, [(2, 10, 1, 0)], [(3, 1, 0, 1)])
        counts.append(emitter.work)
    assert counts[0] == counts[1]
    assert emitter.position == 0
